"""When faults happen: by number, by share, and the same for the same seed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from batchctl.gateway.faults import Fault, FaultPlan, FaultSchedule, Kind, Op


def _schedule(*faults: dict[str, Any], seed: int = 0) -> FaultSchedule:
    return FaultSchedule(FaultPlan.model_validate({"faults": faults}), seed)


def _numbers(schedule: FaultSchedule, op: Op, calls: int) -> list[int]:
    """The calls, from 1, on which something happened."""
    return [number for number in range(1, calls + 1) if schedule.on_request(op)]


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({"nth": 2}, [2]),
        ({"nth": [1, 4]}, [1, 4]),
        ({"every": 3}, [3, 6]),
        ({"times": 2}, [1, 2]),
        ({"every": 2, "times": 1}, [2]),
        ({"probability": 0}, []),
        ({"probability": 1}, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_when_a_fault_happens(when: dict[str, Any], expected: list[int]) -> None:
    assert _numbers(_schedule({"kind": "drop", "op": "create", **when}), Op.CREATE, 6) == expected


def test_only_calls_of_its_operation_count() -> None:
    schedule = _schedule({"kind": "drop", "op": "create", "nth": 2}, {"kind": "slow", "nth": 3})
    assert schedule.on_request(Op.CREATE) is None
    assert schedule.on_request(Op.UPLOAD) is None
    both = schedule.on_request(Op.CREATE)
    assert both is not None and both.kind is Kind.DROP, "the first of two that are due"
    assert [entry["fired"] for entry in schedule.report()["faults"]] == [1, 0]


@given(seed=st.integers(0, 1_000), probability=st.floats(0.2, 0.8))
def test_the_same_seed_makes_the_same_faults(seed: int, probability: float) -> None:
    fault = {"kind": "error", "op": "list", "probability": probability}
    first, second = _schedule(fault, seed=seed), _schedule(fault, seed=seed)
    second.on_request(Op.CREATE)  # calls of other operations do not move the draws
    assert _numbers(first, Op.LIST, 60) == _numbers(second, Op.LIST, 60)


def test_another_seed_makes_other_faults_at_about_the_same_rate() -> None:
    fault = {"kind": "error", "op": "list", "probability": 0.3}
    runs = [_numbers(_schedule(fault, seed=seed), Op.LIST, 500) for seed in (1, 2)]
    assert runs[0] != runs[1]
    assert all(100 < len(run) < 200 for run in runs)


def test_a_new_plan_counts_anew() -> None:
    schedule = _schedule({"kind": "drop", "op": "create", "nth": 1})
    assert schedule.on_request(Op.CREATE)
    schedule.replace(FaultPlan.model_validate({"faults": [{"kind": "error", "op": "create", "nth": 1}]}))
    again = schedule.on_request(Op.CREATE)
    assert again is not None and again.kind is Kind.ERROR


def test_faults_of_batches_add_up_and_can_be_matched() -> None:
    schedule = _schedule(
        {"kind": "expire", "share": 0.5}, {"kind": "list_lag", "seconds": 5, "match": "tag-7"}, {"kind": "drop"}
    )
    assert [fault.kind for fault in schedule.on_batch(["tag-1", "in.jsonl"])] == [Kind.EXPIRE]
    assert [fault.kind for fault in schedule.on_batch(["tag-7", "in.jsonl"])] == [Kind.EXPIRE, Kind.LIST_LAG]


def test_kinds_know_where_they_apply() -> None:
    assert Fault(kind=Kind.EXPIRE).op is Op.BATCH
    assert Fault(kind=Kind.TRUNCATE).op is Op.CONTENT
    assert Fault(kind=Kind.FILE_NOT_VISIBLE).op is Op.CREATE
    with pytest.raises(ValidationError, match="fault of a batch"):
        Fault(kind=Kind.EXPIRE, op=Op.LIST)
