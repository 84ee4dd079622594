"""Records of equal length put in order on disk: a million of them in a few megabytes of memory."""

from __future__ import annotations

import os
import tempfile
import weakref
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO

BUCKETS = 256
_HELD = 16 * 1024  # bytes of one bucket in memory before all are written


class Sorter:
    """Takes records of `width` bytes and gives them back in order, bucket by bucket.

    Who adds a record names its bucket; each record of a bucket sorts before those of later buckets. Few records never
    touch the disk. Raises OSError where the disk is full. The file is gone once nothing refers to this any more.
    """

    def __init__(self, width: int, folder: Path | None = None) -> None:
        self._width, self._folder = width, folder
        self._held = [bytearray() for _ in range(BUCKETS)]
        self._file: IO[bytes] | None = None
        self._offsets = [array("Q") for _ in range(BUCKETS)]  # of the pieces of each bucket
        self._lengths = [array("Q") for _ in range(BUCKETS)]

    def add(self, bucket: int, record: bytes) -> None:
        """One more record."""
        held = self._held[bucket]
        held += record
        if len(held) >= _HELD:
            self._spill()

    def counts(self) -> list[int]:
        """How many records each bucket has."""
        sizes = [len(held) + sum(lengths) for held, lengths in zip(self._held, self._lengths, strict=True)]
        return [size // self._width for size in sizes]

    def __len__(self) -> int:
        return sum(self.counts())

    def buckets(self) -> Iterator[list[bytes]]:
        """The records of each bucket, in order."""
        return map(self.bucket, range(BUCKETS))

    def bucket(self, number: int) -> list[bytes]:
        """The records of one bucket, in order."""
        pieces = [bytes(self._held[number])]
        if self._file is not None:
            handle = self._file.fileno()
            places = zip(self._offsets[number], self._lengths[number], strict=True)
            pieces += [os.pread(handle, length, offset) for offset, length in places]
        return sorted(cut(b"".join(pieces), self._width))

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 -- closed with this
            weakref.finalize(self, self._file.close)
        offset = self._file.seek(0, os.SEEK_END)
        for number, held in enumerate(self._held):
            if held:
                self._offsets[number].append(offset)
                self._lengths[number].append(len(held))
                offset += len(held)
        rest = memoryview(b"".join(self._held))
        while rest:
            rest = rest[self._file.write(rest) :]
        for held in self._held:
            held.clear()


def cut(data: bytes, width: int) -> list[bytes]:
    """The records that stand one behind the other in `data`."""
    return [data[start : start + width] for start in range(0, len(data), width)]
