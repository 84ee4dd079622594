"""Which files are meant: names, globs, `-`, `hf:...`; what each one is and how it is packed."""

from __future__ import annotations

import glob
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from batchctl.errors import InputError

Format = Literal["csv", "tsv", "jsonl", "parquet", "excel"]
Packing = Literal["gz", "zst"]
Named = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""One input or several, as the user names them."""

FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "excel",
    ".xlsm": "excel",
}
PACKINGS: dict[str, Packing] = {".gz": "gz", ".zst": "zst", ".zstd": "zst"}
STDIN = "-"
DATASET = "hf:"

_MAGIC: tuple[tuple[bytes, Packing], ...] = ((b"\x1f\x8b", "gz"), (b"\x28\xb5\x2f\xfd", "zst"))
_OTHERS = {
    ".json": "write one object a line: jq -c '.[]' {name} > rows.jsonl (--format jsonl where they are lines already)",
    ".yaml": "is it the task? One is named, before the inputs; with --requests there is none",
    ".xls": "save it as .xlsx",
    ".ods": "save it as .xlsx or .csv",
    ".txt": "say what it is: --format csv, --format tsv or --format jsonl",
    ".zip": "unpack it first: unzip {name}",
    ".bz2": "pack it with gzip or zstd, or unpack it first: bunzip2 {name}",
    ".xz": "pack it with gzip or zstd, or unpack it first: unxz {name}",
}


class _Copy:
    """A temporary file that is deleted with this object."""

    def __init__(self) -> None:
        number, name = tempfile.mkstemp(prefix="batchctl-stdin-")
        os.close(number)
        self.path = Path(name)
        weakref.finalize(self, self.path.unlink, missing_ok=True)


@dataclass(frozen=True, slots=True)
class Source:
    """One file, or a Hugging Face dataset, which has no path. `name` is what the user calls it, for messages."""

    name: str
    format: Format | Literal["dataset"]
    path: Path | None = None
    packing: Packing | None = None
    held: _Copy | None = None  # the temporary copy of standard input

    def problem(self, line: int | None, what: str, *, column: int | None = None, hint: str | None = None) -> InputError:
        """What is wrong in it, as an error."""
        return InputError(self.name, line, what, column=column, hint=hint)

    @property
    def stem(self) -> str:
        """A short name without folder and suffixes."""
        if self.path is None:
            return self.name.removeprefix(DATASET).split(":")[0].rstrip("/").rsplit("/", 1)[-1]
        name = Path(self.name)
        return "stdin" if self.name == STDIN else Path(name.stem).stem if self.packing else name.stem


def find_sources(named: Named, format: Format | None) -> tuple[Source, ...]:
    """Every source, in the order given, those of a glob sorted by name. Raises InputError.

    `format` is of all of them; without it each suffix says its own.
    """
    words = [named] if isinstance(named, str | os.PathLike) else list(named)
    if not words:
        raise InputError("input", None, "no input is named", hint="name a file, or - for standard input")
    found: list[Source] = []
    seen: dict[object, str] = {}
    for word in words:
        for source in _of_word(os.fspath(word), format):
            key = source.name if source.path is None or source.held else source.path.resolve()
            if key in seen:
                what = "is named twice" if seen[key] == source.name else f"is the same file as {seen[key]}"
                raise source.problem(None, what, hint="each row would be sent twice: name it once")
            seen[key] = source.name
            found.append(source)
    return tuple(found)


def _of_word(word: str, format: Format | None) -> Iterator[Source]:
    if word == STDIN:
        yield _stdin(format)
    elif word.startswith(DATASET):
        if format is not None:
            raise InputError(word, None, f"is a dataset, not {format}", hint="leave --format out")
        yield Source(word, "dataset")
    elif glob.has_magic(word) and not Path(word).exists():
        names = [name for name in sorted(glob.glob(word, recursive=True)) if not Path(name).is_dir()]
        if not names:
            raise InputError(word, None, "matches no file", hint="check the pattern")
        for name in names:
            yield _file(name, format)
    else:
        yield _file(word, format)


def _file(name: str, format: Format | None) -> Source:
    path = Path(name)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packing = PACKINGS.get(suffixes[-1]) if suffixes else None
    suffix = "".join(suffixes[-2:-1] if packing else suffixes[-1:])
    chosen = format or FORMATS.get(suffix)
    if path.is_dir():
        hint = f"name the files in it, such as '{name.rstrip('/')}/*.csv'"
        raise InputError(name, None, "is a folder", hint=hint)
    if chosen is None:
        known = f"rename it to .csv or .jsonl, or say --format ({', '.join(get_args(Format))})"
        raise InputError(
            name,
            None,
            f"cannot tell the format from the suffix {suffix!r}" if suffix else "the name has no suffix",
            hint=_OTHERS.get(suffix, known).format(name=name),
        )
    if not path.exists():
        raise InputError(name, None, "no such file", hint="check the path")
    return Source(name, chosen, path, packing)


def _stdin(format: Format | None) -> Source:
    """Standard input, copied to a temporary file: it may be read twice, and Parquet from its end."""
    if format is None:
        hint = f"say --format ({', '.join(get_args(Format))})"
        raise InputError(STDIN, None, "standard input has no name that tells its format", hint=hint)
    copy = _Copy()
    try:
        with copy.path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
    except OSError as error:
        raise InputError(STDIN, None, f"cannot be copied to {copy.path}: {error.strerror or error}") from error
    with copy.path.open("rb") as file:
        start = file.read(4)
    packing = next((packing for magic, packing in _MAGIC if start.startswith(magic)), None)
    return Source(STDIN, format, copy.path, packing, copy)
