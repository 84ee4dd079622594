"""Build and merge beside the plain script of `floor.py`, on the same rows in the same run; memory and disk as well."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from bench.figures import Figure

HERE = Path(__file__).parent
QUICK_ROWS = 200_000  # fewer would measure the imports
RUNS = 3  # one slow run is no figure
FEW, MANY = 100_000, 1_000_000
BUILD, MERGE = 2.5, 2.0  # times the floor's CPU
MOST_RSS_MB = 150.0
RSS_GROWTH = 1.1  # of MANY rows beside FEW
DISK = 1.5  # times the bytes of all requests and answers


def measure(*, quick: bool) -> list[Figure]:
    """CPU seconds of both halves beside the floor's, peak memory, and what lies on the disk in the end.

    Quick: fewer rows. Else a million rows, and the memory of a tenth of them beside theirs.
    """
    if quick:
        return _figures(QUICK_ROWS, [_measured(QUICK_ROWS) for _ in range(RUNS)])
    few, many = [_measured(FEW) for _ in range(RUNS)], _measured(MANY)
    growth = Figure("peak RSS, 1000k beside 100k", _peak([many]), median(_peak([run]) for run in few), "MB", RSS_GROWTH)
    return [*_figures(FEW, few)[:2], *_figures(MANY, [many]), growth]


def _figures(rows: int, runs: list[dict[str, Any]]) -> list[Figure]:
    named = f"{rows // 1000}k rows"
    halves = [
        Figure(
            f"{half}, {named}",
            measured=median(run[half]["cpu_s"] for run in runs),
            floor=median(run["floor"][f"{half}_cpu_s"] for run in runs),
            limit=limit,
            unit="s",
        )
        for half, limit in (("build", BUILD), ("merge", MERGE))
    ]
    memory = Figure(f"peak RSS, {named}", _peak(runs), MOST_RSS_MB, "MB", 1.0)
    disk = Figure(f"disk, {named}", runs[0]["disk_mb"], runs[0]["sent_mb"], "MB", DISK)
    return [*halves, memory, disk]


def _peak(runs: list[dict[str, Any]]) -> float:
    return max(float(half["rss_mb"]) for run in runs for half in (run["build"], run["merge"]))


def _measured(rows: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="batchctl-bench-") as folder:
        work = Path(folder)
        source, home, plain = work / "rows.jsonl", work / "home", work / "floor"
        _run("gen_rows.py", str(rows), str(source))
        floor = json.loads(_run("floor.py", str(source), str(plain)))
        sent = _megabytes(path for path in plain.iterdir() if path.name.startswith(("shard-", "output-")))
        build = json.loads(_run("half.py", "build", str(source), str(home)))
        _run("half.py", "answer", str(home))
        merge = json.loads(_run("half.py", "merge", str(home)))
        kept = _megabytes(path for path in home.rglob("*") if path.is_file() and path.name != "out.jsonl")
        return {"floor": floor, "build": build, "merge": merge, "sent_mb": sent, "disk_mb": kept}


def _megabytes(paths: Iterable[Path]) -> float:
    return sum(path.stat().st_size for path in paths) / 1e6


def _run(script: str, *words: str) -> str:
    return subprocess.run(
        [sys.executable, str(HERE / script), *words], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
