"""A stream of lines as a readable file of known size, for HTTP clients that upload files."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class SizeMismatch(Exception):
    """The lines are not as many bytes as was announced."""


class FileOfLines(io.RawIOBase):
    """Reads `lines` as one file of exactly `size` bytes and holds one line and one chunk of it at a time.

    The HTTP client asks for the size by seeking to the end and announces it as Content-Length. `read` raises
    SizeMismatch at the first byte too many, or at the end where bytes are missing: in both cases before the request is
    complete, so that the server cannot take it for a whole one. Rewinding starts the lines again.
    """

    def __init__(self, lines: Iterable[bytes], size: int) -> None:
        self._lines = lines
        self._size = size
        self._next = iter(lines)
        self._started = False
        self._rest = b""
        self._given = 0
        self._at_end = False  # the client only asks where the end is

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END and offset == 0:
            self._at_end = True
        elif whence == io.SEEK_SET and offset == 0 and not self._started:
            self._at_end = False
        elif whence == io.SEEK_SET and offset == 0 and iter(self._lines) is not self._lines:
            self._next, self._rest, self._given, self._started = iter(self._lines), b"", 0, False
        elif whence != io.SEEK_SET or offset != self._given:
            raise io.UnsupportedOperation("these lines can be read once only")
        return self.tell()

    def tell(self) -> int:
        return self._size if self._at_end else self._given

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, joined from as many lines as that takes."""
        self._started = True
        parts, missing = [self._rest], (size if size >= 0 else self._size + 1) - len(self._rest)
        while missing > 0 and (line := next(self._next, None)) is not None:
            parts.append(line)
            missing -= len(line)
        data = b"".join(parts)
        if missing < 0:
            data, self._rest = data[:missing], data[missing:]
        else:
            self._rest = b""
        self._given += len(data)
        if self._given > self._size or (not data and size and self._given < self._size):
            raise SizeMismatch(f"{self._size} bytes were announced, but the lines are {self._words()}")
        return data

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def _words(self) -> str:
        return f"more than {self._size}" if self._given > self._size else str(self._given)
