"""Build and merge beside floor.py on the same rows in one run: CPU at most 4 times the floor's, memory under 200 MB."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.figures import Figure

HERE = Path(__file__).parent
CPU_LIMIT = 4
MEMORY_MB = 200


def run(script: str, *args: str | Path) -> Any:
    """What one script in a process of its own printed, as JSON; None where it prints nothing."""
    words = [sys.executable, str(HERE / script), *(str(arg) for arg in args)]
    printed = subprocess.run(words, check=True, stdout=subprocess.PIPE, cwd=HERE.parent).stdout
    return json.loads(printed) if printed else None


def measure(*, quick: bool) -> list[Figure]:
    """One run of the floor and one of batchctl, on 200,000 generated rows (20,000 when quick)."""
    with tempfile.TemporaryDirectory() as folder:
        rows, home = Path(folder, "rows.jsonl"), Path(folder, "home")
        run("gen_rows.py", "20000" if quick else "200000", rows)
        floor = run("floor.py", rows, Path(folder, "floor"))
        build = run("throughput.py", "build", rows, home)
        run("throughput.py", "answer", home)
        merge = run("throughput.py", "merge", home)
    figures = []
    for name, half in (("build", build), ("merge", merge)):
        figures.append(
            Figure(f"{name}, {half['rows']:,} rows", half["cpu_s"], floor[f"{name}_cpu_s"], "s CPU", CPU_LIMIT)
        )
        figures.append(Figure(f"{name}, peak memory", half["rss_mb"], MEMORY_MB, "MB", 1))
    return figures
