"""Pending rows become batches: reads what was measured, asks the planner, stores what it says."""

from __future__ import annotations

from array import array

from batchctl.engine.context import Engine
from batchctl.engine.planner import Limits, partition
from batchctl_store.records import Job

INPUTS = "inputs"
"""The spool object with a line a row, the number of its texts; only jobs whose rows may have several have it."""


def plan_rows(engine: Engine, job: Job) -> int:
    """Plan all pending rows of a job; a row that no batch can hold fails alone. Returns the number of batches."""
    limits = engine.limits(job)
    room, most = min(limits.max_line_bytes, limits.max_bytes), most_inputs(limits)
    inputs_of = _inputs(engine, job)
    numbers, sizes, too_large, too_many = array("Q"), array("Q"), [], []
    inputs = None if inputs_of is None else array("Q")
    for row, size in engine.store.rows.pending(job.id):
        if size > room:
            too_large.append(row)
            continue
        if inputs is not None and inputs_of is not None:
            if most is not None and inputs_of[row] > most:
                too_many.append(row)
                continue
            inputs.append(inputs_of[row])
        numbers.append(row)
        sizes.append(size)
    now, fail = engine.clock.now(), engine.store.rows.fail_unsent
    fail(
        job, too_large, now=now, code="too_large", message=f"the request alone is larger than the limit of {room} bytes"
    )
    fail(job, too_many, now=now, code="too_many_inputs", message=f"the row has more texts than the limit of {most}")
    shards, start = [], 0
    for count in partition(sizes, limits, inputs):
        end = start + count
        shards.append((numbers[start], numbers[end - 1], count, sum(sizes[start:end])))
        start = end
    if shards:
        engine.store.rows.assign(job, shards, now=now)
    return len(shards)


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
