"""Pending rows become batches: reads what was measured, asks the planner, stores what it says."""

from __future__ import annotations

from array import array

from batchctl.engine.context import Engine
from batchctl.engine.planner import partition
from batchctl_store.records import Job


def plan_rows(engine: Engine, job: Job) -> int:
    """Plan all pending rows of a job; a row that no batch can hold fails alone. Returns the number of batches."""
    limits = engine.limits(job)
    room = min(limits.max_line_bytes, limits.max_bytes)
    numbers, sizes, too_large = array("Q"), array("Q"), []
    for row, size in engine.store.rows.pending(job.id):
        if size > room:
            too_large.append(row)
        else:
            numbers.append(row)
            sizes.append(size)
    now = engine.clock.now()
    engine.store.rows.fail_unsent(
        job, too_large, now=now, code="too_large", message=f"the request alone is larger than the limit of {room} bytes"
    )
    shards, start = [], 0
    for count in partition(sizes, limits):
        end = start + count
        shards.append((numbers[start], numbers[end - 1], count, sum(sizes[start:end])))
        start = end
    if shards:
        engine.store.rows.assign(job, shards, now=now)
    return len(shards)
