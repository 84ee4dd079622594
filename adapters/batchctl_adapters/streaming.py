"""A stream of lines as a readable file of known size, for HTTP clients that upload files."""

from __future__ import annotations

import io
from collections.abc import Iterable


class SizeMismatch(Exception):
    """The lines are not as many bytes as was announced."""


class FileOfLines(io.RawIOBase):
    """Reads `lines` once as one file of exactly `size` bytes, holding one line and one chunk of it at a time.

    The HTTP client asks for the size by seeking to the end and announces it as Content-Length. `read` raises
    SizeMismatch at the first byte too many, or at the end where bytes are missing: in both cases before the request is
    complete, so that the server cannot take it for a whole one.
    """

    def __init__(self, lines: Iterable[bytes], size: int) -> None:
        self._lines = iter(lines)
        self._size = size
        self._rest = b""
        self._given = 0
        self._at_end = False  # the client only asks where the end is

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        """To the end and back, not to read anything again."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at_end = (offset, whence) == (0, io.SEEK_END)
        if not self._at_end and (offset, whence) != (self._given, io.SEEK_SET):
            raise io.UnsupportedOperation("these lines are read once")
        return self.tell()

    def tell(self) -> int:
        return self._size if self._at_end else self._given

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, joined from as many lines as that takes; no bytes at the end."""
        parts, missing = [self._rest], (size if size >= 0 else self._size + 1) - len(self._rest)
        while missing > 0 and (line := next(self._lines, None)) is not None:
            parts.append(line)
            missing -= len(line)
        data, self._rest = b"".join(parts), b""
        if missing < 0:
            data, self._rest = data[:missing], data[missing:]
        self._given += len(data)
        if self._given > self._size:
            raise SizeMismatch(f"{self._size} bytes were announced, but the lines are more")
        if not data and size and self._given < self._size:
            raise SizeMismatch(f"{self._size} bytes were announced, but the lines are {self._given}")
        return data
