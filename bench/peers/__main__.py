"""Other tools beside batchctl, on the same rows against the same provider: python -m bench.peers [--rows N].

Prints two tables: what each tool takes (and what it takes for ten rows, so that its start can be told from its work),
and what each sends when a batch expires with one of its rows not answered.
A tool that cannot be installed here, or ends in an error, is a line that says so.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers.tools import TOOLS, NotInstalled, Tool, python_of, version_of
from bench.processes import Spent, provider, spend

GENERATOR = Path(__file__).parents[1] / "gen_rows.py"
ROWS, FEW = 5_000, 10
LIMIT_S = 600.0
"""A tool that takes longer is stopped."""


@dataclass(frozen=True, slots=True)
class Line:
    """What one tool did. `spent` is None where it could not run, and `remark` says why."""

    tool: str
    version: str
    spent: Spent | None = None
    sent: int = 0  # requests, in all batches
    answered: int = 0  # rows that came out with an answer
    given: int = 0  # rows that went in
    remark: str = ""


def measure(tool: Tool, rows: Path, work: Path, *, given: int, options: Sequence[str] = ()) -> Line:
    """Do the job with one tool, against a provider of its own."""
    work.mkdir(parents=True)
    try:
        python = python_of(tool)
        version = version_of(tool, python)
    except NotInstalled as error:
        return Line(tool.name, "-", remark=str(error))
    out, log = work / "out.jsonl", work / "log"
    (work / "own").mkdir()
    with provider(work / "provider", *options) as served:
        words = [python, str(tool.path), str(rows), str(out), served.url, str(work / "own")]
        env = {**os.environ, "PYTHONWARNINGS": "ignore"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # each start would compile every import again
        spent = spend(words, cwd=work, env=env, log=log, limit_s=LIMIT_S)
        sent = served.counts().get("requests", 0)
    return Line(tool.name, version, spent, sent, _answered(out), given, _remark(spent, log))


def _answered(out: Path) -> int:
    if not out.exists():
        return 0
    with out.open("rb") as lines:
        return sum(json.loads(line).get("answer") not in (None, "") for line in lines)


def _remark(spent: Spent, log: Path) -> str:
    if spent.wall_s >= LIMIT_S:
        return f"stopped after {LIMIT_S:.0f} s"
    if spent.code == 0:
        return ""
    said = [line for line in log.read_text(encoding="utf-8", errors="replace").split("\n") if line.strip()]
    return f"ended with {spent.code}: {said[-1][:120] if said else ''}"


def cost_table(lines: Sequence[Line], few: Sequence[Line]) -> str:
    """Markdown: what each tool took for all rows, and for a few."""
    work = f"CPU s | CPU s, {FEW} rows | wall s | peak RSS MB | requests sent | rows answered"
    head = f"| tool | version | {work} | remark |"
    rows = [
        f"| {one.tool} | {one.version} | {one.spent.cpu_s:.1f} | {start.spent.cpu_s:.1f} | {one.spent.wall_s:.1f} "
        f"| {one.spent.rss_mb:.0f} | {one.sent:,} | {one.answered:,} of {one.given:,} | {one.remark} |"
        if one.spent and start.spent
        else f"| {one.tool} | {one.version} | - | - | - | - | - | - | {one.remark} |"
        for one, start in zip(lines, few, strict=True)
    ]
    return "\n".join([head, "| --- | --- | --: | --: | --: | --: | --: | --: | --- |", *rows])


def expiry_table(lines: Sequence[Line]) -> str:
    """Markdown: what each tool sent when the first batch expired with one row not answered."""
    head = f"| tool | requests sent (least: {FEW + 1}) | rows answered | remark |"
    rows = [
        f"| {one.tool} | {one.sent if one.spent else '-'} "
        f"| {f'{one.answered} of {one.given}' if one.spent else '-'} | {one.remark} |"
        for one in lines
    ]
    return "\n".join([head, "| --- | --: | --: | --- |", *rows])


def _each(work: Path, *, rows: int, options: Sequence[str] = ()) -> list[Line]:
    """All tools on the same rows, one after another."""
    work.mkdir()
    table = work / "rows.jsonl"
    subprocess.run([sys.executable, str(GENERATOR), str(rows), str(table)], check=True)
    lines = []
    for tool in TOOLS:
        print(f"{tool.name}, {rows:,} rows {' '.join(options)}", file=sys.stderr, flush=True)
        lines.append(measure(tool, table, work / tool.script, given=rows, options=options))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description="batchctl beside other tools.")
    parser.add_argument("--rows", type=int, default=ROWS, help="how many rows each tool is given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="batchctl-peers-") as folder:
        work = Path(folder)
        all_ = _each(work / "all", rows=options.rows)
        few = _each(work / "few", rows=FEW)  # second: the first run of a tool may compile its imports
        expired = _each(work / "expired", rows=FEW, options=("--expire-first",))
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {dt.datetime.now(dt.UTC):%Y-%m-%d}"
    print(f"{options.rows:,} rows of about 440 bytes, one batch ({machine}):\n")
    print(cost_table(all_, few))
    print(f"\n{FEW} rows, the first batch expires with {FEW - 1} answered:\n")
    print(expiry_table(expired))


if __name__ == "__main__":
    main()
