"""Runs drawn from seeds. `SEEDS=1000 pytest ...` plays more of them, `SEED=123 pytest ...` plays one again.

A failing seed prints what does not hold, what went wrong in that run, and the end of its history.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.simulation.night import Violated, run_seed
from tests.simulation.world import Worlds

SEEDS = 1 if os.environ.get("SEED") else int(os.environ.get("SEEDS", "60"))
FIRST = int(os.environ.get("SEED") or os.environ.get("FIRST", "0"))
SHARES = 30


def _share(first: int, last: int) -> dict[int, str]:
    """Play seeds in a process of its own; returns what was violated, by seed."""
    found = {}
    with Worlds() as worlds:
        for seed in range(first, last):
            try:
                worlds.drop(run_seed(worlds, seed))
            except Violated as violated:
                found[seed] = str(violated)
            except Exception as error:
                error.add_note(f"in seed {seed}")
                raise
    return found


@pytest.mark.long
def test_whatever_goes_wrong_nothing_is_lost_and_nothing_is_paid_twice() -> None:
    size = max(1, SEEDS // SHARES)
    starts = range(FIRST, FIRST + SEEDS, size)
    # spawned, not forked: the test's own process may have threads
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        shares = [pool.submit(_share, start, min(start + size, FIRST + SEEDS)) for start in starts]
        found = {seed: violation for share in shares for seed, violation in share.result().items()}
    assert not found, f"{len(found)} of {SEEDS} seeds: {sorted(found)}\n" + "\n\n".join(list(found.values())[:3])


def test_a_seed_is_the_same_run_each_time(worlds: Worlds) -> None:
    one, other = run_seed(worlds, 7), run_seed(worlds, 7)
    assert one.trace == other.trace
    assert one.trace
