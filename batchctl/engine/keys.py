"""What a row asks, in sixteen bytes: rows with the same key are the same request, in this job or in an earlier one.

The key is that of the body: model, settings, schema, prompt and text. What else may alter the answer is the same for
all rows of a job, its context: the adapter and its address, the endpoint, how answers are judged. Keys of different
contexts are never compared. A job's keys lie in its spool folder, sorted:

    context (16 bytes) | records in each of 256 buckets (u32) | records: key (16 bytes), row (u64, big-endian)
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from hashlib import blake2b
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

from batchctl.engine.sorting import BUCKETS, Sorter, cut
from batchctl.task import Task
from batchctl_adapters.base import Kind
from batchctl_adapters.profile import Profile
from batchctl_store.spool import FrameReader, Spool

KEYS = "keys"
"""The spool object with the keys of a job's rows; a job without it is no source of answers."""

_KEY = 16
_ROW = 8
_HEADER = struct.Struct(f"<{_KEY}s{BUCKETS}I")
_FORM = 1  # of keys and their file: others are never the same


def context_of(task: Task, profile: Profile, kind: Kind) -> bytes:
    """What all keys of a job have in common. A schema counts with the order of its keys: models heed it."""
    output = task.output
    schema = None if output.json_schema is None else json.dumps(output.json_schema)
    told = [
        _FORM,
        profile.adapter,
        profile.address,
        kind,
        profile.endpoints.get(kind),
        output.labels,
        schema,
        task.has_several_texts,
    ]
    return blake2b(json.dumps(told).encode(), digest_size=_KEY).digest()


class Keys:
    """Collects the keys of a table's rows. Few rows never touch the disk."""

    def __init__(self, folder: Path | None = None) -> None:
        self._sorter = Sorter(_KEY + _ROW, folder)

    def add(self, row: int, body: bytes) -> None:
        """The request of a row; equal requests have equal bytes here."""
        key = blake2b(body, digest_size=_KEY).digest()
        self._sorter.add(key[0], key + row.to_bytes(_ROW, "big"))

    def write(self, spool: Spool, name: str, context: bytes) -> bool:
        """Store them under this name; keys of other contexts are not comparable. True where two rows ask the same."""
        repeats = False
        with spool.writer(name) as writer:
            writer.write(_HEADER.pack(context, *self._sorter.counts()))
            for records in self._sorter.buckets():
                writer.write(b"".join(records))
                repeats = repeats or len(set(map(key_of, records))) < len(records)
        return repeats

    def repeated(self) -> Iterator[int]:
        """The rows that ask the same as an earlier one, in no order."""
        for records in self._sorter.buckets():
            for before, record in pairwise(records):
                if before[:_KEY] == record[:_KEY]:
                    yield int.from_bytes(record[_KEY:], "big")


class StoredKeys:
    """The keys of a job, read back a bucket at a time."""

    def __init__(self, reader: FrameReader) -> None:
        self._reader = reader
        self.context, *counts = _HEADER.unpack(reader.span(0, _HEADER.size))
        self._offsets = [_HEADER.size]
        for count in counts:
            self._offsets.append(self._offsets[-1] + count * (_KEY + _ROW))

    def bucket(self, number: int) -> list[bytes]:
        """The records of one bucket, in order: `key_of` and `row_of` take them apart."""
        return cut(self._reader.span(self._offsets[number], self._offsets[number + 1]), _KEY + _ROW)


key_of = itemgetter(slice(_KEY))
"""The key of a record."""


def row_of(record: bytes) -> int:
    """The row of a record."""
    return int.from_bytes(record[_KEY:], "big")
