"""What CSV, TSV and JSON lines have in common: their lines, and bytes that are not UTF-8."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from batchctl.errors import InputError
from batchctl.inputs.sources import PACKINGS, Source
from batchctl.inputs.unpacking import Digest, Lines, pieces_of, transcoded

_PACKED = ((b"\x1f\x8b", ".gz"), (b"\x28\xb5\x2f\xfd", ".zst"), (b"PK\x03\x04", ".xlsx"), (b"PAR1", ".parquet"))


@contextmanager
def lines_of(source: Source, sha256: list[str], encoding: str | None) -> Iterator[Lines]:
    """The source's lines; its hash is added to `sha256` where the block ends well."""
    assert source.path is not None
    with source.path.open("rb") as file:
        digest = Digest(file)
        pieces = pieces_of(source, digest)
        if encoding is not None:
            pieces = transcoded(source, pieces, encoding)

        def problem(what: str, hint: str) -> InputError:
            return source.problem(None, what, hint=hint)

        yield Lines(pieces, problem)
        sha256.append(digest.sha256.hexdigest())


def bad_byte(line: bytes) -> int | None:
    """The offset of the first byte that is not UTF-8."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return None


def encoding_hint(source: Source, line: bytes) -> str:
    """What to do about a line that is not UTF-8."""
    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "the file looks like UTF-16: save it as UTF-8, or say --encoding utf-16"
    for magic, suffix in _PACKED:
        if line.startswith(magic):
            full = f"{source.format}{suffix}" if suffix in PACKINGS else suffix.lstrip(".")
            return f"the file looks like {suffix[1:]}: give it a name that ends in .{full}"
    return "save the file as UTF-8, or say what it is, such as --encoding cp1252"
