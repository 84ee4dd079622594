"""A bad night: a job run as cron would run it, with random faults at the server and kill -9 at random moments."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

from tests.acceptance.desk import KILLED, PROFILE, Command, Desk

CRON_S = (60.0, 300.0, 900.0, 3_600.0, 10_800.0)
"""Seconds of the server's clock between two ticks; the machine sleeps now and then, and nights are to be short."""
MOST_TICKS = 250


def faults(rng: random.Random) -> list[dict[str, Any]]:
    """A schedule of everything that may go wrong and must not matter: lost answers, 5xx, 429, torn downloads, lags."""
    torn = {"kind": "truncate", "probability": 0.12}
    lengths = ("announced", "chunked", "none")
    expiring, overdue = rng.sample(range(1, 21), 2), rng.randint(21, 24)  # what is overdue never expires
    return [
        {"op": "create", "kind": "drop_after", "probability": 0.08},
        {"op": "create", "kind": "error_after", "status": 502, "body": "html", "probability": 0.05},
        {"op": "create", "kind": "hang", "wall_s": 20, "nth": rng.randint(1, 20), "times": 1},
        {"op": "create", "kind": "error", "status": 500, "probability": 0.05, "times": 3},
        {"op": "create", "kind": "drop", "probability": 0.04, "times": 2},
        {"op": "create", "kind": "rate_limit", "retry_after": 30, "probability": 0.05},
        {"op": "create", "kind": "slow", "wall_s": 0.15, "probability": 0.5},
        {"kind": "file_not_visible", "probability": 0.05},
        {"op": "upload", "kind": "drop", "probability": 0.05},
        {"op": "upload", "kind": "error_after", "status": 502, "body": "empty", "probability": 0.05},
        {"op": "upload", "kind": "slow", "wall_s": 0.1, "probability": 0.3},
        {"op": "list", "kind": "error", "status": 502, "body": "html", "probability": 0.08},
        {"op": "list", "kind": "rate_limit", "retry_after": 5, "probability": 0.05},
        {"op": "list", "kind": "list_empty", "probability": 0.03},
        {"op": "retrieve", "kind": "error", "status": 503, "probability": 0.08},
        {"op": "delete_file", "kind": "error_after", "status": 500, "probability": 0.2},
        *({**torn, "share": rng.random(), "at_line_end": rng.random() < 0.5, "length": length} for length in lengths),
        {"op": "content", "kind": "error", "status": 500, "probability": 0.05},
        {"kind": "list_lag", "seconds": rng.choice([30, 300, 700]), "probability": 0.3},
        {"kind": "files_late", "seconds": rng.choice([60, 400, 1_200]), "probability": 0.2},
        {"kind": "row_status", "status": 500, "share": rng.uniform(0.05, 0.3), "probability": 0.3},
        {"kind": "row_status", "status": 429, "in_output": True, "share": 0.1, "probability": 0.1},
        {"kind": "expire", "share": rng.random(), "nth": expiring},
        {"kind": "duplicate_rows", "share": 0.1, "probability": 0.1},
        {"kind": "malformed_lines", "share": 0.05, "extra": True, "probability": 0.1},
        {"kind": "null_counts", "probability": 0.1},
        {"kind": "unknown_status", "seconds": 200, "probability": 0.1},
        {"kind": "overdue", "seconds": 100_000, "nth": overdue},
    ]


def short_faults(_: random.Random) -> list[dict[str, Any]]:
    """A few that certainly strike, for nights whose every command takes seconds to start."""
    return [
        {"op": "create", "kind": "drop_after", "nth": 2},
        {"op": "create", "kind": "error_after", "status": 502, "nth": 4},
        {"op": "create", "kind": "error", "status": 500, "nth": 6},
        {"op": "upload", "kind": "drop", "nth": 3},
        {"kind": "truncate", "share": 0.5, "length": "none", "at_line_end": True, "nth": 2},
        {"kind": "row_status", "status": 500, "share": 0.3, "nth": 5},
        {"kind": "list_lag", "seconds": 300, "nth": 2},
    ]


def interrupted(rng: random.Random, command: Command, within_s: float) -> bool:
    """Kill the command after a random while, most of the time; True where it was killed before its end."""
    if rng.random() < 0.3:
        return command.wait(0, 2).code == KILLED
    time.sleep(within_s * rng.random() ** 2)
    command.signal(signal.SIGKILL)
    return command.wait(0, 2, KILLED).code == KILLED


def submit(desk: Desk, rng: random.Random, task: Path, table: Path, within_s: float, *options: object) -> str:
    """Submit until the job exists, killed at random; a job that was stored is refused the second time."""
    for _ in range(20):
        command = desk.start("submit", task, table, "--provider", PROFILE, *options)
        interrupted(rng, command, within_s)
        ready = [job for job in desk.views.jobs() if job["ready_at"] is not None]
        if ready:
            assert len(ready) == 1
            return str(ready[0]["name"])
    raise AssertionError("the job was never stored")


def night(desk: Desk, rng: random.Random, job: str, within_s: float) -> tuple[int, int]:
    """Ticks until the job is finished and merged; returns how many there were and how many of them were killed."""
    killed = 0
    for count in range(1, MOST_TICKS + 1):
        killed += interrupted(rng, desk.start("tick"), within_s)
        found = desk.job(job)
        if found["state"] == "finished":
            return count, killed
        due = (found["next_action_at"] or 0) - desk.server.now()
        desk.server.advance(max(rng.choice(CRON_S), due if rng.random() < 0.8 else 0))
    raise AssertionError(f"{job} is not finished after {MOST_TICKS} ticks: {desk.job(job)}\n{desk.events(job)}")
