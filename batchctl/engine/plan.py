"""Pending rows become batches: reads what was measured, asks the planner, stores what it says."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from batchctl.engine.context import Engine
from batchctl.engine.planner import Limits, partition
from batchctl_store.records import Job, Shard


def plan_rows(engine: Engine, job: Job) -> int:
    """Plan all pending rows of a job, groups apart; a row that no batch can hold fails alone.

    Returns the number of batches.
    """
    limits = engine.limits(job)
    room = min(limits.max_line_bytes, limits.max_bytes)
    groups: dict[str | None, tuple[array[int], array[int]]] = {}  # rows and their sizes
    too_large = []
    for row, size, group in engine.store.rows.pending(job.id):
        if size > room:
            too_large.append(row)
            continue
        if group not in groups:
            groups[group] = array("Q"), array("Q")
        numbers, sizes = groups[group]
        numbers.append(row)
        sizes.append(size)
    now = engine.clock.now()
    engine.store.rows.fail_unsent(
        job, too_large, now=now, code="too_large", message=f"the request alone is larger than the limit of {room} bytes"
    )
    shards = [shard for group, (numbers, sizes) in groups.items() for shard in _shards(group, numbers, sizes, limits)]
    if shards:
        engine.store.rows.assign(job, sorted(shards), now=now)
    return len(shards)


def _shards(group: str | None, numbers: array[int], sizes: array[int], limits: Limits) -> Iterator[Shard]:
    start = 0
    for count in partition(sizes, limits):
        end = start + count
        yield Shard(numbers[start], numbers[end - 1], count, sum(sizes[start:end]), group)
        start = end
