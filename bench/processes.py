"""Programs as processes of their own: what they take, by the system's own account, and a provider beside them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PROVIDER = HERE / "peers" / "provider.py"


@dataclass(frozen=True, slots=True)
class Spent:
    """What a process and all that it waited for took. `code` is negative where a signal ended it."""

    code: int
    cpu_s: float  # user and system
    wall_s: float
    rss_mb: float  # the largest process's peak


def spend(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, log: Path, limit_s: float = 600
) -> Spent:
    """Run to the end with stdout and stderr in `log`; after `limit_s` it is killed with all that it started."""
    started = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    killer = threading.Timer(limit_s, os.killpg, (process.pid, signal.SIGKILL))
    killer.start()
    try:
        _, status, usage = os.wait4(process.pid, 0)
    finally:
        killer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu, wall = usage.ru_utime + usage.ru_stime, time.monotonic() - started
    return Spent(process.returncode, cpu, wall, usage.ru_maxrss / 1024)


@dataclass(frozen=True, slots=True)
class Served:
    """A provider that runs; `url` is the SDK's base URL."""

    url: str

    def counts(self) -> dict[str, int]:
        """What it was sent so far; see `peers/provider.py`."""
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/counts") as answer:
            counted: dict[str, int] = json.load(answer)
        return counted


@contextmanager
def provider(folder: Path, *options: str) -> Iterator[Served]:
    """The fake provider with its files in `folder`, for the length of a `with` block."""
    command = [sys.executable, str(PROVIDER), str(folder), *options]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdin is not None and process.stdout is not None
    with process:
        yield Served(process.stdout.readline().decode().strip())
        process.stdin.close()
