"""Pending rows become batches: reads what was measured, asks the planner, stores what it says."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from batchctl.engine.context import Engine
from batchctl.engine.planner import Limits, partition
from batchctl_store.records import Job, Shard

INPUTS = "inputs"
"""The spool object with a line a row, the number of its texts; only jobs whose rows may have several have it."""


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that may share a batch, in input order."""

    numbers: array[int]
    sizes: array[int]
    inputs: array[int] | None  # texts of each row; None: one a row

    @classmethod
    def empty(cls, *, counted: bool) -> Group:
        """No rows yet; with `counted` their texts will count."""
        return cls(array("Q"), array("Q"), array("Q") if counted else None)

    def add(self, row: int, size: int, texts: int) -> None:
        """One more row, behind those that are there."""
        self.numbers.append(row)
        self.sizes.append(size)
        if self.inputs is not None:
            self.inputs.append(texts)


def plan_rows(engine: Engine, job: Job) -> int:
    """Plan all pending rows of a job, groups apart; a row that no batch can hold fails alone.

    Returns the number of batches.
    """
    limits = engine.limits(job)
    room, most = min(limits.max_line_bytes, limits.max_bytes), most_inputs(limits)
    inputs_of = None if most is None else _inputs(engine, job)
    groups: dict[str | None, Group] = {}
    too_large, too_many = [], []
    for row, size, group in engine.store.rows.pending(job.id):
        if size > room:
            too_large.append(row)
            continue
        texts = 1 if inputs_of is None else inputs_of[row]
        if most is not None and texts > most:
            too_many.append(row)
            continue
        if group not in groups:
            groups[group] = Group.empty(counted=inputs_of is not None)
        groups[group].add(row, size, texts)
    now, fail = engine.clock.now(), engine.store.rows.fail_unsent
    fail(
        job, too_large, now=now, code="too_large", message=f"the request alone is larger than the limit of {room} bytes"
    )
    fail(job, too_many, now=now, code="too_many_inputs", message=f"the row has more texts than the limit of {most}")
    shards = [shard for group, rows in groups.items() for shard in shards_of(group, rows, limits)]
    if shards:
        engine.store.rows.assign(job, sorted(shards), now=now)
    return len(shards)


def shards_of(group: str | None, rows: Group, limits: Limits) -> Iterator[Shard]:
    """The batches that rows of one group make, in input order."""
    start = 0
    for count in partition(rows.sizes, limits, rows.inputs):
        end = start + count
        yield Shard(rows.numbers[start], rows.numbers[end - 1], count, sum(rows.sizes[start:end]), group)
        start = end


def most_inputs(limits: Limits) -> int | None:
    """How many texts a single row may have."""
    return min((n for n in (limits.max_inputs, limits.max_request_inputs) if n is not None), default=None)


def _inputs(engine: Engine, job: Job) -> array[int] | None:
    """How many texts each row of the job has; None where each has one."""
    name = f"{job.spool}/{INPUTS}"
    if not engine.spool.exists(name):
        return None
    with engine.spool.reader(name) as reader:
        return array("Q", map(int, reader.lines()))
