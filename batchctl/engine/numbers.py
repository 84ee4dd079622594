"""Whole numbers by the million in no memory: a list that lies in a file without a name."""

from __future__ import annotations

import os
import tempfile
import weakref
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, overload

_HELD = 4096  # numbers in memory before they are written, and read at a time
_WIDTH = 8


class Numbers(Sequence[int]):
    """Numbers from 0 to 2**64 - 1; grows at its end. Few of them never touch the disk.

    Raises OSError where the disk is full. The file is gone once nothing refers to this any more.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._written = 0
        self._held = array("Q")

    def append(self, number: int) -> None:
        """One more, behind those that are there."""
        self._held.append(number)
        if len(self._held) >= _HELD:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 -- closed with this
                weakref.finalize(self, self._file.close)
            self._file.write(self._held)
            self._written += len(self._held)
            self._held = array("Q")

    def __len__(self) -> int:
        return self._written + len(self._held)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> array[int]: ...
    def __getitem__(self, place: int | slice) -> int | array[int]:
        if isinstance(place, slice):
            start, stop, step = place.indices(len(self))
            return self._read(start, max(start, stop))[::step]
        if place < 0:
            place += len(self)
        if not 0 <= place < len(self):
            raise IndexError(f"no number {place} of {len(self)}")
        return self._read(place, place + 1)[0]

    def __iter__(self) -> Iterator[int]:
        for start in range(0, len(self), _HELD):
            yield from self._read(start, start + _HELD)

    def _read(self, start: int, stop: int) -> array[int]:
        found = array("Q")
        if start < self._written and self._file is not None:
            count = min(stop, self._written) - start
            found.frombytes(os.pread(self._file.fileno(), count * _WIDTH, start * _WIDTH))
        if stop > self._written:
            found.extend(self._held[max(start - self._written, 0) : stop - self._written])
        return found
