"""One batch as large as a provider takes, of lines of a megabyte: what each step of the job holds in memory."""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from pathlib import Path

from bench.figures import Figure
from bench.processes import provider, spend

LINE_BYTES = 990_000
LINES = 190  # 188 MB: just below the most that a batch may be
MOST_RSS_MB = 150.0
TASK = 'model: m\nprompt: "{{ text }}"\nmax_output_tokens: 8\n'
SETTINGS = '[profiles.bench]\nextends = "openai"\nbase_url = "%s"\npoll_interval_s = 1\n'


def measure(*, quick: bool) -> list[Figure]:
    """Peak RSS of submit (copy, lines, upload), wait (download, collect) and results (merge).

    Never with fewer lines: a program that holds the whole file would pass.
    """
    del quick
    with tempfile.TemporaryDirectory(prefix="batchctl-bench-") as folder:
        home = Path(folder)
        _write_rows(home / "rows.jsonl")
        (home / "task.yaml").write_text(TASK, encoding="utf-8")
        with provider(home / "provider", "--answer-bytes", str(LINE_BYTES)) as served:
            (home / "batchctl.toml").write_text(SETTINGS % served.url, encoding="utf-8")
            peaks = {
                "submit": _peak(home, "submit", "task.yaml", "rows.jsonl", "--provider", "bench"),
                "wait": _peak(home, "wait"),
                "results": _peak(home, "results", "1", "-o", "out.jsonl"),
            }
            if served.counts().get("batches") != 1:
                raise RuntimeError(f"the lines did not go out as one batch: {served.counts()}")
        _check(home / "out.jsonl")
    named = f"{LINES * LINE_BYTES // 1_000_000} MB"
    return [Figure(f"peak RSS, {step}, {named}", peak, MOST_RSS_MB, "MB", 1.0) for step, peak in peaks.items()]


def _write_rows(path: Path) -> None:
    """Hexadecimal digits: text that packs to half its size and no further."""
    rnd = random.Random(7)
    with path.open("w", encoding="utf-8") as out:
        for number in range(LINES):
            out.write(json.dumps({"id": number, "text": rnd.randbytes(LINE_BYTES // 2).hex()}) + "\n")


def _peak(home: Path, *words: str) -> float:
    env = {**os.environ, "BATCHCTL_HOME": str(home / "home"), "OPENAI_API_KEY": "sk-none"}
    log = home / "log"
    spent = spend([sys.executable, "-m", "batchctl", *words], cwd=home, env=env, log=log)
    if spent.code:
        raise RuntimeError(f"batchctl {words[0]} ended with {spent.code}: {log.read_text(encoding='utf-8')}")
    return spent.rss_mb


def _check(out: Path) -> None:
    with out.open("rb") as rows:
        answers = [len(json.loads(row)["answer"]) for row in rows]
    if answers != [LINE_BYTES] * LINES:
        raise RuntimeError(f"{len(answers)} rows came out of {LINES}, or not with their whole answers")
