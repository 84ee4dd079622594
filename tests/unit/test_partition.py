"""Rows into batches: within every limit, in order, and no more batches than needed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from batchctl.engine.planner import Limits, partition

ROWS = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 20)), max_size=40)


def greedy(rows: list[tuple[int, int]], limits: Limits, most_inputs: int) -> int:
    """How many batches filling one after the other takes, which is the fewest."""
    batches, count, size, inputs = 0, limits.max_requests, 0, 0
    for row_size, row_inputs in rows:
        full = size + row_size > limits.max_bytes or inputs + row_inputs > most_inputs
        if count == limits.max_requests or full:
            batches, count, size, inputs = batches + 1, 0, 0, 0
        count, size, inputs = count + 1, size + row_size, inputs + row_inputs
    return batches


@given(rows=ROWS, requests=st.integers(1, 12), size=st.integers(50, 200), inputs=st.integers(20, 60))
def test_case_43_batches_hold_so_many_texts_and_no_more(
    rows: list[tuple[int, int]], requests: int, size: int, inputs: int
) -> None:
    limits = Limits(requests, size, size, inputs)
    counts = partition([one for one, _ in rows], limits, [two for _, two in rows])
    assert sum(counts) == len(rows) and all(counts)
    start = 0
    for count in counts:
        run = rows[start : start + count]
        assert count <= requests and sum(one for one, _ in run) <= size and sum(two for _, two in run) <= inputs
        start += count
    assert len(counts) == greedy(rows, limits, inputs)


@given(rows=st.lists(st.integers(1, 50), max_size=40), requests=st.integers(1, 12), inputs=st.integers(1, 12))
def test_where_each_row_has_one_text_the_smaller_limit_counts(rows: list[int], requests: int, inputs: int) -> None:
    limits = Limits(requests, 200, 200, inputs)
    assert partition(rows, limits) == partition(rows, limits, [1] * len(rows))
    assert partition(rows, limits) == partition(rows, Limits(min(requests, inputs), 200, 200))


def test_case_43_thirty_thousand_rows_of_two_texts() -> None:
    limits = Limits(50_000, 190_000_000, 190_000_000, 50_000)
    assert partition([100] * 30_000, limits, [2] * 30_000) == [15_000, 15_000]
    assert partition([100] * 30_000, Limits(50_000, 190_000_000, 190_000_000)) == [30_000]
