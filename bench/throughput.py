"""Build and merge beside the plain script of `floor.py`, on the same rows in the same run; memory beside its limit."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from bench.figures import Figure

HERE = Path(__file__).parent
ROWS = 200_000  # fewer would measure the imports
RUNS = 3
MOST_OF_FLOOR = 4.0
MOST_RSS_MB = 200.0


def measure(*, quick: bool) -> list[Figure]:
    """CPU seconds of both halves as ratios to the floor's (medians of interleaved runs), and the larger peak RSS."""
    with tempfile.TemporaryDirectory(prefix="batchctl-bench-") as folder:
        work = Path(folder)
        source = work / "rows.jsonl"
        _run("gen_rows.py", str(ROWS), str(source))
        runs = [_once(source, work / str(number)) for number in range(1 if quick else RUNS)]
    named = f"{ROWS // 1000}k rows"
    peak = max(half["rss_mb"] for run in runs for half in (run["build"], run["merge"]))
    return [
        *(
            Figure(
                f"{half}, {named}",
                measured=median(run[half]["cpu_s"] for run in runs),
                floor=median(run["floor"][f"{half}_cpu_s"] for run in runs),
                limit=MOST_OF_FLOOR,
                unit="s",
            )
            for half in ("build", "merge")
        ),
        Figure(f"peak RSS, {named}", measured=peak, floor=MOST_RSS_MB, limit=1.0, unit="MB"),
    ]


def _once(source: Path, work: Path) -> dict[str, Any]:
    work.mkdir()
    floor = json.loads(_run("floor.py", str(source), str(work / "floor")))
    build = json.loads(_run("half.py", "build", str(source), str(work / "home")))
    _run("half.py", "answer", str(work / "home"))
    merge = json.loads(_run("half.py", "merge", str(work / "home")))
    return {"floor": floor, "build": build, "merge": merge}


def _run(script: str, *words: str) -> str:
    return subprocess.run(
        [sys.executable, str(HERE / script), *words], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
