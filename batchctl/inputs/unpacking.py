"""A file's bytes in pieces: hashed as they lie on the disk, unpacked, brought to UTF-8. Memory stays flat.

What a small file may unpack to is limited, and so is a single line: both could fill the memory or the night.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from batchctl.errors import InputError
from batchctl.inputs.sources import Source
from batchctl.rowjson import BOM

CHUNK = 256 * 1024  # bytes
LONGEST_LINE = 256 * 1024 * 1024  # bytes; more than any provider takes
MOST_UNPACKED = 1024**3  # bytes that any packed file may unpack to
MOST_RATIO = 200  # times its size, for one that unpacks to more than that; tables reach 5 to 20

_ZSTD_INPUT = 4096  # bytes given to zstd at once, which may answer with 128 KiB for every four of them
_UTF8_BOM = BOM.encode()


class Digest:
    """sha256 and size of what was read from the disk."""

    def __init__(self, file: BinaryIO) -> None:
        self.sha256 = hashlib.sha256()
        self.size = 0
        self._file = file

    def read(self, size: int = CHUNK) -> bytes:
        """As a file's."""
        data = self._file.read(CHUNK if size < 0 else size)
        self.sha256.update(data)
        self.size += len(data)
        return data

    def seek(self, _offset: int) -> None:
        """gzip wants it there, to read from the start again, which nobody does."""
        raise io.UnsupportedOperation("this file is read once")


def pieces_of(source: Source, digest: Digest) -> Iterator[bytes]:
    """The source's bytes, unpacked. Raises InputError where the packing is damaged, cut short or a bomb."""
    if source.packing is None:
        return _plain(digest)
    unpack = _gunzip if source.packing == "gz" else _unzstd
    return _limited(source, _named(source, unpack(digest)), digest)


@contextmanager
def unpacked_file(source: Source) -> Iterator[tuple[Path, str]]:
    """The path of the unpacked file, for formats that are read from their end; and the sha256 of the packed one."""
    assert source.path is not None
    with source.path.open("rb") as file:
        digest = Digest(file)
        if source.packing is None:
            for _ in _plain(digest):
                pass
            yield source.path, digest.sha256.hexdigest()
            return
        with tempfile.NamedTemporaryFile(prefix="batchctl-unpacked-") as copy:
            for piece in pieces_of(source, digest):
                copy.write(piece)
            copy.flush()
            yield Path(copy.name), digest.sha256.hexdigest()


def _plain(digest: Digest) -> Iterator[bytes]:
    while piece := digest.read(CHUNK):
        yield piece


def _gunzip(digest: Digest) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=digest, mode="rb") as file:
        while piece := file.read(CHUNK):
            yield piece


def _unzstd(digest: Digest) -> Iterator[bytes]:
    import zstandard

    unpacker = None
    held: list[bytes] = []
    size = 0
    for piece in _plain(digest):
        for start in range(0, len(piece), _ZSTD_INPUT):
            data = piece[start : start + _ZSTD_INPUT]
            while data:
                if unpacker is None or unpacker.eof:
                    unpacker = zstandard.ZstdDecompressor().decompressobj()
                held.append(unpacker.decompress(data))
                size += len(held[-1])
                data = unpacker.unused_data if unpacker.eof else b""
            if size >= CHUNK:
                yield b"".join(held)
                held, size = [], 0
    yield b"".join(held)
    if unpacker is not None and not unpacker.eof:
        raise EOFError


def _named(source: Source, pieces: Iterator[bytes]) -> Iterator[bytes]:
    from zstandard import ZstdError

    try:
        yield from pieces
    except EOFError:
        hint = "it was not copied or written to its end: make it again"
        raise source.problem(None, f"the .{source.packing} file is cut short", hint=hint) from None
    except (gzip.BadGzipFile, zlib.error, ZstdError) as error:
        what = f"is no whole .{source.packing} file: {error}"
        raise source.problem(None, what, hint="is it packed as its name says? make it again") from None


def _limited(source: Source, pieces: Iterator[bytes], digest: Digest) -> Iterator[bytes]:
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > MOST_UNPACKED and size > digest.size * MOST_RATIO:
            what = f"unpacks to more than {MOST_RATIO} times its size ({size:,} bytes so far)"
            raise source.problem(None, what, hint="unpack it yourself, should that be right")
        yield piece


def transcoded(source: Source, pieces: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """The same as UTF-8. Raises InputError for an unknown encoding, and for bytes that are not in it."""
    decode = _decoder(source, encoding)
    start = 0  # of the piece, in bytes
    for piece in pieces:
        yield _decoded(source, decode, piece, start, encoding, final=False)
        start += len(piece)
    yield _decoded(source, decode, b"", start, encoding, final=True)


def _decoder(source: Source, encoding: str) -> codecs.IncrementalDecoder:
    try:
        "".encode(encoding)  # refuses codecs that are not of text, such as hex
        return codecs.getincrementaldecoder(encoding)()
    except (LookupError, UnicodeError):
        raise source.problem(None, f"there is no encoding {encoding!r}", hint="such as --encoding cp1252") from None


def _decoded(
    source: Source, decode: codecs.IncrementalDecoder, piece: bytes, start: int, encoding: str, *, final: bool
) -> bytes:
    try:
        return decode.decode(piece, final).encode()
    except UnicodeDecodeError as error:
        place = start + len(piece) - len(error.object) + error.start  # `object` begins with what was left over before
        what = f"byte 0x{error.object[error.start]:02X} is not {encoding} (byte {place} of the file)"
    except UnicodeError as error:
        what = f"cannot be read as {encoding}: {error}"
    raise source.problem(None, what, hint="try another --encoding, or save the file as UTF-8")


class Lines:
    """Lines with their ends, in lists of about `CHUNK` bytes; leaves out the byte order mark."""

    def __init__(self, pieces: Iterable[bytes], problem: Callable[[str, str], InputError]) -> None:
        """`problem` makes an error of what is wrong and what to do."""
        self.offset = 0  # of the first byte of the list last given out
        self.skipped = 0  # bytes of the byte order mark
        self._pieces = pieces
        self._problem = problem

    def __iter__(self) -> Iterator[tuple[list[bytes], bytes]]:
        """Lists of lines, each with the same bytes in one piece."""
        end = 0
        for block in self._whole_lines():
            self.offset, end = end, end + len(block)
            joined = block
            if not self.offset and block.startswith(_UTF8_BOM):
                self.skipped = len(_UTF8_BOM)
                joined = block[self.skipped :]
            yield io.BytesIO(joined).readlines(), joined

    def _whole_lines(self) -> Iterator[bytes]:
        rest: list[bytes] = []
        held = 0
        for piece in self._pieces:
            cut = piece.rfind(b"\n") + 1
            if cut:
                yield b"".join((*rest, piece[:cut]))
                rest, held = [piece[cut:]], len(piece) - cut
            else:
                rest.append(piece)
                held += len(piece)
                if held > LONGEST_LINE:
                    what = f"a line of more than {LONGEST_LINE:,} bytes"
                    raise self._problem(what, "no provider takes that: is it the right file?")
        if held:
            yield b"".join(rest)

    def start_of(self, lines: list[bytes], index: int) -> int:
        """The offset in the file of a line of the list last given out."""
        first = self.skipped if not self.offset else 0
        return self.offset + first + sum(map(len, lines[:index]))
