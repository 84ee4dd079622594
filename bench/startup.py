"""What a command costs before it does anything: CPU beside `python -c "import click, sqlite3"` in the same run."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.figures import Figure

HERE = Path(__file__).parent
BATCHCTL = str(Path(sys.executable).with_name("batchctl"))
FLOOR = (sys.executable, "-c", "import click, sqlite3")


@dataclass(frozen=True, slots=True)
class Case:
    """A command line whose CPU is at most `limit` times the floor's."""

    name: str
    argv: Sequence[str]
    limit: float
    env: Mapping[str, str] = field(default_factory=dict)


CASES = [
    Case("batchctl --help", [BATCHCTL, "--help"], 2),
    Case("batchctl --version", [BATCHCTL, "--version"], 2),
    Case(
        "completion of a command",
        [BATCHCTL],
        2,
        {"_BATCHCTL_COMPLETE": "bash_complete", "COMP_WORDS": "batchctl s", "COMP_CWORD": "1"},
    ),
    Case("batchctl status, a job", [BATCHCTL, "status"], 4),
]


def cpu_s(argv: Sequence[str], env: Mapping[str, str]) -> float:
    """User and system seconds of one run, its children included. Raises RuntimeError where it does not exit with 0."""
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1)]
    pid = os.posix_spawn(argv[0], list(argv), env, file_actions=quiet)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(argv)}: exit {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime


def _store_with_a_job(home: Path) -> None:
    rows = home / "rows.jsonl"
    for script, *words in (("gen_rows.py", "1000", str(rows)), ("half.py", "build", str(rows), str(home))):
        subprocess.run([sys.executable, str(HERE / script), *words], check=True, stdout=subprocess.DEVNULL)


def measure(*, quick: bool) -> list[Figure]:
    """Medians of runs that take turns, so that a busy machine slows all of them alike."""
    cases = [Case("floor", FLOOR, 1), *CASES]
    spent: dict[str, list[float]] = {case.name: [] for case in cases}
    with tempfile.TemporaryDirectory() as home:
        _store_with_a_job(Path(home))
        for turn in range((7 if quick else 21) + 1):
            for case in cases:
                seconds = cpu_s(case.argv, {**os.environ, "BATCHCTL_HOME": home, **case.env})
                if turn:  # the first turn only warms caches and writes bytecode
                    spent[case.name].append(seconds * 1000)
    middle = {name: statistics.median(values) for name, values in spent.items()}
    return [Figure(case.name, middle[case.name], middle["floor"], "ms CPU", case.limit) for case in CASES]
