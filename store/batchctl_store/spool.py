"""The spool: where bulky bytes lie (input copies, lines, raw results), framed and compressed, one object a file.

An object is a sequence of zstd frames (content checksum on) of about 256 KiB of whole lines each, then an index in a
skippable frame, so that `zstd -d` reads the file too, and any range of lines is read without the rest:

    frames | skippable-frame header | 3 columns of u64 | totals | footer

The columns have one entry a frame and one more for the end: first line, offset in the file, offset in the uncompressed
bytes. All integers are little-endian. The footer is found from the file's end, so a torn or cut file is always noticed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import struct
import sys
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import zstandard

FRAME_BYTES = 256 * 1024
_LEVEL = 3
_SKIPPABLE = 0x184D2A50  # https://www.rfc-editor.org/rfc/rfc8878#section-3.1.2
_HEADER = struct.Struct("<II")
_TOTALS = struct.Struct("<B32s")  # complete, sha256 of the uncompressed bytes
_FOOTER = struct.Struct("<QII8s")  # index size, number of frames, crc32 of the index, magic
_MAGIC = b"batchsp1"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}){0,7}")
_TEMPORARY = ".tmp"


class SpoolError(Exception):
    """An object is not there, or is not what was written. Names it and says what to do."""


class Spool:
    """A folder of objects with names like `jobs/j3/rows`. Folders have mode 700, files 600.

    An object appears whole and durable, or not at all; writing a name again replaces it at once.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)

    def writer(self, name: str) -> FrameWriter:
        """A context manager that makes the object when its block ends without an exception."""
        return FrameWriter(self._path(name), self.root / _TEMPORARY)

    def reader(self, name: str) -> FrameReader:
        """Open an object; raises SpoolError where it is missing, torn or damaged. Use it in a `with` block."""
        try:
            file = self._path(name).open("rb")
        except FileNotFoundError:
            what = f"spool object {name} is missing from {self.root}"
            raise SpoolError(f"{what}: restore the folder, or check that BATCHCTL_HOME is right") from None
        try:
            return FrameReader(file, name)
        except BaseException:
            file.close()
            raise

    def exists(self, name: str) -> bool:
        return self._path(name).is_file()

    def delete(self, name: str) -> None:
        """Delete an object; one that is not there is no error."""
        self._path(name).unlink(missing_ok=True)

    def disk_bytes(self, name: str) -> int:
        """What the object takes on disk, compressed. Raises SpoolError where it is missing."""
        try:
            return self._path(name).stat().st_size
        except FileNotFoundError:
            raise SpoolError(f"spool object {name} is missing from {self.root}") from None

    def names(self, prefix: str = "") -> Iterator[str]:
        """Names that begin with `prefix`, sorted."""
        folder = prefix.rpartition("/")[0]
        start = self.root / folder if _NAME.fullmatch(folder) else self.root
        found = (path.relative_to(self.root) for path in start.rglob("*") if path.is_file())
        names = (path.as_posix() for path in found if path.parts[0] != _TEMPORARY)
        return iter(sorted(name for name in names if name.startswith(prefix) and _NAME.fullmatch(name)))

    def sizes(self, folder: str) -> dict[str, int]:
        """The objects below a folder by name, with the bytes that each takes on disk."""
        found = {}
        for name in self.names(f"{folder}/"):
            with contextlib.suppress(SpoolError):
                found[name] = self.disk_bytes(name)
        return found

    def folders(self, parent: str) -> dict[str, float]:
        """The folders in a folder by name, with the time (UTC epoch seconds) of the last change in each."""
        found = {}
        with contextlib.suppress(FileNotFoundError):
            for path in self._path(parent).iterdir():
                if path.is_dir():
                    found[f"{parent}/{path.name}"] = path.stat().st_mtime
        return found

    def drop(self, folder: str) -> None:
        """Delete a folder with all its objects; one that is not there is no error."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._path(folder))

    def sweep(self, *, dry: bool = False) -> dict[str, int]:
        """Remove what writers that died left behind; live writers are left alone. Returns files and their bytes."""
        removed = {}
        for path in sorted((self.root / _TEMPORARY).glob("*")):
            with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                removed[path.name] = os.fstat(file.fileno()).st_size
                if not dry:
                    path.unlink()
        return removed

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError(f"not a name of a spool object: {name!r}")
        return self.root / name


class FrameWriter:
    """Writes one object in flat memory: a frame is held, or one line where that is longer."""

    def __init__(self, target: Path, temporary: Path) -> None:
        self._target = target
        self._folder = temporary
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        self._sha256 = hashlib.sha256()
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._first_lines = array("Q", [0])
        self._offsets = array("Q", [0])
        self._starts = array("Q", [0])
        self._complete = True
        self._lines = 0
        self._bytes = 0

    @property
    def lines(self) -> int:
        """Lines so far; what follows the last `\\n` counts as one."""
        held = sum(piece.count(b"\n") for piece in self._held)
        return self._lines + held + (not self._is_complete())

    @property
    def size(self) -> int:
        """Bytes so far, uncompressed."""
        return self._bytes + self._held_bytes

    def __enter__(self) -> Self:
        _make_folder(self._folder)
        _make_folder(self._target.parent)
        self._temporary, self._file = _locked_file(self._folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._flush()
                self._write_index()
                self._file.flush()
                os.fsync(self._file.fileno())
                # Renamed while the lock is held: nobody can sweep it away in between.
                self._temporary.replace(self._target)
                _sync_folder(self._target.parent)
        finally:
            self._temporary.unlink(missing_ok=True)
            # Closing flushes, and fails again where the disk is full.
            with contextlib.suppress(OSError):
                self._file.close()

    def append(self, line: bytes) -> None:
        """Add one line, without its `\\n`. Raises ValueError where it holds one, OSError where the disk is full."""
        if b"\n" in line:
            raise ValueError("a line must not hold a line end")
        self._held.append(line + b"\n")
        self._held_bytes += len(line) + 1
        if self._held_bytes >= FRAME_BYTES:
            self._flush_lines()

    def write(self, chunk: bytes) -> None:
        """Add raw bytes as they come, cut anywhere."""
        for start in range(0, len(chunk), FRAME_BYTES):
            piece = chunk[start : start + FRAME_BYTES]
            self._held.append(piece)
            self._held_bytes += len(piece)
            if self._held_bytes >= FRAME_BYTES and b"\n" in piece:
                self._flush_lines()

    def _is_complete(self) -> bool:
        return self._held[-1].endswith(b"\n") if self._held else self._complete

    def _flush_lines(self) -> None:
        """Write the whole lines that are held; the last piece has a line end."""
        last = self._held[-1]
        cut = last.rfind(b"\n") + 1
        rest = last[cut:]
        self._held[-1] = last[:cut]
        self._flush()
        if rest:
            self._held, self._held_bytes = [rest], len(rest)

    def _flush(self) -> None:
        data = b"".join(self._held)
        self._held, self._held_bytes = [], 0
        if not data:
            return
        self._sha256.update(data)
        frame = self._compressor.compress(data)
        self._file.write(frame)
        self._complete = data.endswith(b"\n")
        self._lines += data.count(b"\n")
        self._bytes += len(data)
        self._first_lines.append(self._lines + (not self._complete))
        self._offsets.append(self._offsets[-1] + len(frame))
        self._starts.append(self._bytes)

    def _write_index(self) -> None:
        columns = b"".join(map(_little_endian, (self._first_lines, self._offsets, self._starts)))
        index = columns + _TOTALS.pack(self._complete, self._sha256.digest())
        footer = _FOOTER.pack(len(index), len(self._offsets) - 1, zlib.crc32(index), _MAGIC)
        self._file.write(_HEADER.pack(_SKIPPABLE, len(index) + len(footer)) + index + footer)


class FrameReader:
    """Reads one object. Lines are split on `\\n` alone and come without it."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._decompressor = zstandard.ZstdDecompressor()
        self._first_lines, self._offsets, self._starts, self.complete, self.sha256 = self._read_index()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    @property
    def line_count(self) -> int:
        """Lines; a last one without `\\n` counts."""
        return self._first_lines[-1]

    @property
    def size(self) -> int:
        """Bytes, uncompressed."""
        return self._starts[-1]

    def lines(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """Lines `start` up to `stop` (0-based, without it). Raises SpoolError where the bytes are damaged."""
        if start < 0 or (stop is not None and stop < 0):
            raise ValueError("line numbers are not negative")
        end = self.line_count if stop is None else min(stop, self.line_count)
        if start >= end:
            return
        for number in range(self._frame_of(start), len(self._offsets) - 1):
            first = self._first_lines[number]
            if first >= end:
                return
            lines = self._frame_lines(number)
            if first < start or first + len(lines) > end:
                lines = lines[max(start - first, 0) : end - first]
            yield from lines

    def pick(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """The lines of these ascending numbers, each frame decompressed once. Raises ValueError, IndexError."""
        first = end = 0
        last = -1
        lines: list[bytes] = []
        for number in numbers:
            if number < 0 or number < last:
                raise ValueError(f"line numbers must ascend: {number} after {last}")
            if number >= end:
                if number >= self.line_count:
                    raise IndexError(f"spool object {self._name} has no line {number}: it has {self.line_count}")
                frame = self._frame_of(number)
                lines = self._frame_lines(frame)
                first, end = self._first_lines[frame], self._first_lines[frame + 1]
            last = number
            yield lines[number - first]

    def span(self, start: int, stop: int) -> bytes:
        """The bytes from `start` up to `stop`, counted uncompressed. Raises SpoolError where they are damaged."""
        pieces = []
        frame = bisect_right(self._starts, start) - 1
        while frame < len(self._starts) - 1 and self._starts[frame] < stop:
            first = self._starts[frame]
            pieces.append(self._frame(frame)[max(start - first, 0) : stop - first])
            frame += 1
        return b"".join(pieces)

    def chunks(self) -> Iterator[bytes]:
        """All bytes as they were written, in pieces."""
        return map(self._frame, range(len(self._offsets) - 1))

    def verify(self) -> None:
        """Read everything; raises SpoolError where it is not what was written."""
        digest = hashlib.sha256()
        lines = 0
        tail = b"\n"
        for number, data in enumerate(self.chunks()):
            digest.update(data)
            lines += data.count(b"\n")
            tail = data[-1:]
            if lines + (tail != b"\n") != self._first_lines[number + 1]:
                raise self._damaged("its lines are not those of its index")
        if digest.hexdigest() != self.sha256 or (tail == b"\n") != self.complete:
            raise self._damaged("its checksum is wrong")

    def _frame_of(self, line: int) -> int:
        return bisect_right(self._first_lines, line) - 1

    def _frame_lines(self, number: int) -> list[bytes]:
        lines = self._frame(number).split(b"\n")
        if not lines[-1]:
            lines.pop()
        if len(lines) != self._first_lines[number + 1] - self._first_lines[number]:
            raise self._damaged("its lines are not those of its index")
        return lines

    def _frame(self, number: int) -> bytes:
        offset, end = self._offsets[number], self._offsets[number + 1]
        size = self._starts[number + 1] - self._starts[number]
        self._file.seek(offset)
        packed = self._file.read(end - offset)
        try:
            # A damaged header may promise any size: it is compared before memory is asked for.
            if zstandard.frame_content_size(packed) == size:
                data = self._decompressor.decompress(packed)
                if len(data) == size:
                    return data
        except (zstandard.ZstdError, MemoryError):
            pass
        raise self._damaged(f"frame {number} cannot be read")

    def _read_index(self) -> tuple[array[int], array[int], array[int], bool, str]:
        total = self._file.seek(0, os.SEEK_END)
        size, frames, checksum = self._read_footer(total)
        start = total - _FOOTER.size - size
        self._file.seek(start - _HEADER.size)
        index = self._file.read(_HEADER.size + size)[_HEADER.size :]
        column = 8 * (frames + 1)
        if zlib.crc32(index) != checksum or len(index) != 3 * column + _TOTALS.size:
            raise self._damaged("its index is wrong")
        first_lines, offsets, starts = (_from_little_endian(index[column * n : column * (n + 1)]) for n in range(3))
        if offsets[-1] != start - _HEADER.size:
            raise self._damaged("its index is wrong")
        complete, digest = _TOTALS.unpack_from(index, 3 * column)
        return first_lines, offsets, starts, bool(complete), digest.hex()

    def _read_footer(self, total: int) -> tuple[int, int, int]:
        """Index size, number of frames, checksum of the index."""
        self._file.seek(max(total - _FOOTER.size, 0))
        footer = self._file.read(_FOOTER.size)
        if len(footer) == _FOOTER.size and footer.endswith(_MAGIC):
            size, frames, checksum, _ = _FOOTER.unpack(footer)
            if size + _FOOTER.size + _HEADER.size <= total:
                return size, frames, checksum
        raise self._damaged("it is cut short or of another format")

    def _damaged(self, why: str) -> SpoolError:
        return SpoolError(
            f"spool object {self._name} is damaged: {why}. Check the disk and restore {self._file.name} from a backup; "
            "results can be fetched again while the provider keeps them."
        )


def _little_endian(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _from_little_endian(data: bytes) -> array[int]:
    numbers = array("Q", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _locked_file(folder: Path) -> tuple[Path, BinaryIO]:
    """A new file under an OS lock, which a dead writer no longer holds."""
    while True:
        path = folder / secrets.token_hex(8)
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b", buffering=FRAME_BYTES)
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return path, file
        file.close()  # swept away before it was locked


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, mode 700 and durable."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
