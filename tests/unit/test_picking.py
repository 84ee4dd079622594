"""Samples: the same again with the same seed, and every row as likely as any other."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from batchctl.outputs.picking import sample


@given(
    numbers=st.lists(st.integers(0, 10_000), unique=True).map(sorted),
    size=st.integers(1, 50),
    seed=st.integers(-5, 2**40),
)
def test_a_sample_is_of_the_numbers_in_their_order_and_reproducible(numbers: list[int], size: int, seed: int) -> None:
    found = sample(iter(numbers), size, seed)
    assert found == sorted(set(found))
    assert set(found) <= set(numbers)
    assert len(found) == min(size, len(numbers))
    assert sample(iter(numbers), size, seed) == found


def test_a_seed_means_the_same_rows_in_every_version() -> None:
    assert sample(range(1_000_000), 5, 0) == [233736, 375937, 564761, 614397, 922413]


def test_every_row_is_as_likely_as_any_other() -> None:
    counted = Counter(number for seed in range(2_000) for number in sample(range(20), 5, seed))
    assert set(counted) == set(range(20))
    assert all(abs(count - 500) < 100 for count in counted.values()), counted  # five standard deviations
