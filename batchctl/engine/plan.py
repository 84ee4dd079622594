"""Pending rows become batches: reads what was measured, asks the planner, stores what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, repeat
from pathlib import Path

from batchctl.engine.context import Engine
from batchctl.engine.numbers import Numbers
from batchctl.engine.planner import Limits, partition
from batchctl_store.records import Job, Shard

INPUTS = "inputs"
"""The spool object with a line a row, the number of its texts; only jobs whose rows may have several have it."""

_CHUNK = 5_000


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that may share a batch, in input order."""

    numbers: Numbers
    sizes: Numbers
    inputs: Numbers | None  # texts of each row; None: one a row

    @classmethod
    def empty(cls, folder: Path, *, counted: bool) -> Group:
        """No rows yet; with `counted` their texts will count. `folder` is where they may lie."""
        return cls(Numbers(folder), Numbers(folder), Numbers(folder) if counted else None)

    def add(self, row: int, size: int, texts: int) -> None:
        """One more row, behind those that are there."""
        self.numbers.append(row)
        self.sizes.append(size)
        if self.inputs is not None:
            self.inputs.append(texts)

    def without(self, left_out: bytearray, folder: Path) -> Group:
        """The same but for rows that are not zero in `left_out`."""
        if not any(left_out):
            return self
        kept = Group.empty(folder, counted=self.inputs is not None)
        inputs = repeat(1) if self.inputs is None else self.inputs
        for number, size, texts in zip(self.numbers, self.sizes, inputs, strict=False):
            if not left_out[number]:
                kept.add(number, size, texts)
        return kept


def plan_rows(engine: Engine, job: Job) -> int:
    """Plan all pending rows of a job, groups apart; a row that no batch can hold fails alone.

    Returns the number of batches.
    """
    limits = engine.limits(job)
    room, most = min(limits.max_line_bytes, limits.max_bytes), most_inputs(limits)
    groups: dict[str | None, Group] = {}
    too_large = _Unsendable(engine, job, "too_large", f"the request alone is larger than the limit of {room} bytes")
    too_many = _Unsendable(engine, job, "too_many_inputs", f"the row has more texts than the limit of {most}")
    with _texts(engine, job, counted=most is not None) as texts_of:
        for row, size, group in engine.store.rows.pending(job.id):
            if size > room:
                too_large.add(row)
                continue
            texts = 1 if texts_of is None else texts_of(row)
            if most is not None and texts > most:
                too_many.add(row)
                continue
            if group not in groups:
                groups[group] = Group.empty(engine.home, counted=texts_of is not None)
            groups[group].add(row, size, texts)
    too_large.store()
    too_many.store()
    shards = [shard for group, rows in groups.items() for shard in shards_of(group, rows, limits)]
    if shards:
        engine.store.rows.assign(job, sorted(shards), now=engine.clock.now())
    return len(shards)


def shards_of(group: str | None, rows: Group, limits: Limits) -> Iterator[Shard]:
    """The batches that rows of one group make, in input order."""
    start, sizes = 0, iter(rows.sizes)
    for count in partition(rows.sizes, limits, rows.inputs):
        last = start + count - 1
        yield Shard(rows.numbers[start], rows.numbers[last], count, sum(islice(sizes, count)), group)
        start += count


def most_inputs(limits: Limits) -> int | None:
    """How many texts a single row may have."""
    return min((n for n in (limits.max_inputs, limits.max_request_inputs) if n is not None), default=None)


class _Unsendable:
    """Rows that no batch can hold, stored as failed some thousands at a time."""

    def __init__(self, engine: Engine, job: Job, code: str, message: str) -> None:
        self._engine, self._job, self._code, self._message = engine, job, code, message
        self._rows: list[int] = []

    def add(self, row: int) -> None:
        self._rows.append(row)
        if len(self._rows) == _CHUNK:
            self.store()

    def store(self) -> None:
        fail, now = self._engine.store.rows.fail_unsent, self._engine.clock.now()
        fail(self._job, self._rows, now=now, code=self._code, message=self._message)
        self._rows = []


@contextmanager
def _texts(engine: Engine, job: Job, *, counted: bool) -> Iterator[Callable[[int], int] | None]:
    """How many texts a row of the job has, asked for in ascending order; None where each has one or nobody counts."""
    name = f"{job.spool}/{INPUTS}"
    if not counted or not engine.spool.exists(name):
        yield None
        return
    with engine.spool.reader(name) as reader:
        lines = enumerate(reader.lines())
        yield lambda row: next(int(line) for number, line in lines if number == row)
