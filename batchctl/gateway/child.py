"""A server of our own as a child process, for as long as a `with` block lasts."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from batchctl.errors import UserError

START_S, STOP_S = 120.0, 10.0  # seconds; a model is read from disk at the start


@dataclass(frozen=True, slots=True)
class Child:
    """A server that listens. `base_url` is the one for a profile (it ends in /v1)."""

    root_url: str
    executor: str  # what answers, in words

    @property
    def base_url(self) -> str:
        return f"{self.root_url}/v1"


@contextmanager
def child(options: Sequence[str]) -> Iterator[Child]:
    """Start `batchctl serve` with these options on a free port; it is stopped whatever happens in the block.

    It has a process group of its own, so that a Ctrl-C reaches us alone, and it ends by itself when we are killed: its
    standard input closes then. Raises UserError, with its last words, where it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="batchctl-serve-") as name:
        folder = Path(name)
        ready, log = folder / "ready", folder / "log"
        own = ["--port", "0", "--ready-file", str(ready), "--stop-on-stdin-eof"]
        with log.open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "batchctl", "serve", *options, *own],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        try:
            root_url = _await_ready(process, ready, log)
            yield Child(root_url, _executor(root_url))
        finally:
            _stop(process)


def _await_ready(process: subprocess.Popen[bytes], ready: Path, log: Path) -> str:
    stop = time.monotonic() + START_S
    while not (ready.exists() and ready.read_text(encoding="utf-8").endswith("\n")):
        if process.poll() is not None or time.monotonic() > stop:
            last = log.read_text(encoding="utf-8", errors="replace").strip().split("\n")[-3:]
            raise UserError("the server did not start: " + ("; ".join(last) or "it said nothing"))
        time.sleep(0.02)
    return ready.read_text(encoding="utf-8").strip().rpartition(" ")[2]


def _executor(root_url: str) -> str:
    with urllib.request.urlopen(f"{root_url}/rehearsal", timeout=10) as answer:  # noqa: S310 - our own address
        return str(json.load(answer)["executor"])


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    for act in (process.terminate, process.kill):
        try:
            process.wait(timeout=STOP_S)
            return
        except subprocess.TimeoutExpired:
            act()
    process.wait()
