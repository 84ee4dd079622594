"""Many batches: what a tick over all of them asks and takes, and what a look at ten large jobs takes."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from pathlib import Path

from bench.crowd import fill
from bench.figures import Figure
from bench.processes import Spent, provider, spend

JOBS, BATCHES = 10, 1_000  # batches of each job
ROWS, FEWER_ROWS = 1_000_000, 100_000  # of each job
A_LIST_CALL = 100
"""So many batches one list call brings."""
MOST_OF_IDLE = 3.5
"""A tick that hears of all batches, in those of one that finds nothing due."""
TICK_MOST_RSS_MB = 200.0
STATUS_MS = 100.0
"""What `status` may take above its start-up."""


def measure(*, quick: bool) -> list[Figure]:
    """Calls, CPU and memory of a tick over 10,000 batches that are out; `status` beside that of an empty store."""
    with tempfile.TemporaryDirectory(prefix="batchctl-bench-") as folder:
        work = Path(folder)
        home, empty = work / "home", work / "empty"
        empty.mkdir()
        with provider(work / "provider", "--open", str(JOBS * BATCHES)) as served:
            fill(
                home,
                served.url,
                jobs=JOBS,
                batches=BATCHES,
                rows=FEWER_ROWS if quick else ROWS,
                requests=True,
            )
            looks = [(_status(home), _status(empty)) for _ in range(4 if quick else 12)][1:]
            tick, idle = _batchctl(home, "tick"), _batchctl(home, "tick")
            counts = served.counts()
    asked = counts.get("lists", 0) + counts.get("retrieves", 0)
    full, start = (statistics.median(turn) for turn in zip(*looks, strict=True))
    return [
        Figure("calls, 10k open batches", asked, JOBS * BATCHES / A_LIST_CALL, "calls", 1.0),
        Figure("tick, 10k open batches", tick.cpu_s, idle.cpu_s, "s CPU", MOST_OF_IDLE),
        Figure("tick, peak RSS", tick.rss_mb, TICK_MOST_RSS_MB, "MB", 1.0),
        Figure("status, ten large jobs", full, start + STATUS_MS, "ms CPU", 1.0),
    ]


def _status(home: Path) -> float:
    return _batchctl(home, "status").cpu_s * 1000


def _batchctl(home: Path, command: str) -> Spent:
    program, log = str(Path(sys.executable).with_name("batchctl")), home / "log"
    env = {**os.environ, "BATCHCTL_HOME": str(home), "OPENAI_API_KEY": "sk-none"}
    spent = spend([program, command], cwd=home, env=env, log=log)
    if spent.code:
        raise RuntimeError(f"batchctl {command} ended with {spent.code}: {log.read_text(encoding='utf-8')}")
    return spent
