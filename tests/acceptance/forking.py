"""Commands as processes of their own without two seconds of imports each: a process that has them imported forks.

Each command is a real process (it can be killed and stopped) that runs the command line's `main` from its start; only
the imports are shared. Tests that start `sys.executable -m batchctl` instead show that this makes no difference.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_IMPORTED = (
    "alembic.command",
    "alembic.config",
    "batchctl.composition",
    "batchctl.cli",
    "batchctl.engine.intake",
    "batchctl.engine.tick",
    "batchctl.merge",
    "batchctl_adapters.openai",
    "openai.resources.batches",
    "openai.resources.files",
    "openai.types.batch",
)


class Forked:
    """What tests use of a `subprocess.Popen`, for a process whose parent is the forking one."""

    def __init__(self, forks: Forks, pid: int) -> None:
        self.pid = pid
        self._forks = forks

    def poll(self) -> int | None:
        """The exit code (negative: the signal that ended it), or None while it runs."""
        return self._forks.exit_code(self.pid, 0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code once it has ended; raises TimeoutExpired after `timeout` seconds."""
        code = self._forks.exit_code(self.pid, timeout)
        if code is None:
            raise subprocess.TimeoutExpired("batchctl", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it may end between the two
                os.kill(self.pid, number)


class Forks:
    """The process that forks, from the side of the tests."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.acceptance.forking"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._changed = threading.Condition()
        self._started: list[int] = []
        self._codes: dict[int, int] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def launch(self, args: Sequence[str], *, cwd: Path, env: Mapping[str, str], out: Path, err: Path) -> Forked:
        """Start `batchctl ARGS`."""
        order = {"args": list(args), "cwd": str(cwd), "env": dict(env), "out": str(out), "err": str(err)}
        assert self._process.stdin is not None
        with self._changed:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
            if not self._changed.wait_for(lambda: self._started, timeout=60):
                raise RuntimeError("the forking process does not answer")
            return Forked(self, self._started.pop())

    def exit_code(self, pid: int, timeout: float | None) -> int | None:
        with self._changed:
            self._changed.wait_for(lambda: pid in self._codes, timeout)
            return self._codes.get(pid)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._reader.join()
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, pid, *code = line.split()
            with self._changed:
                if word == b"started":
                    self._codes.pop(int(pid), None)  # numbers of processes come again
                    self._started.append(int(pid))
                else:
                    self._codes[int(pid)] = int(code[0])
                self._changed.notify_all()


def _serve() -> dict[str, Any] | None:
    """Fork for each order; returns it in the child, and None at the end of input."""
    ended, wake = os.pipe()
    os.set_blocking(ended, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    held = b""
    while True:
        ready, _, _ = select.select([0, ended], [], [])
        if 0 in ready:
            chunk = os.read(0, 1 << 20)
            if not chunk:
                return None
            held += chunk
            *lines, held = held.split(b"\n")
            for line in lines:
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    os.close(ended)
                    os.close(wake)
                    order: dict[str, Any] = json.loads(line)
                    return order
                os.write(1, b"started %d\n" % pid)
        if ended in ready:
            os.read(ended, 4096)
        _reap()


def _reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        os.write(1, b"ended %d %d\n" % (pid, os.waitstatus_to_exitcode(status)))


def _become(order: Mapping[str, Any]) -> None:
    """Give the child its own output, folder and environment, as a shell would."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for number, target, mode in ((0, os.devnull, os.O_RDONLY), (1, order["out"], flags), (2, order["err"], flags)):
        opened = os.open(target, mode, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    random.seed()


def _main() -> int:
    from importlib import import_module

    for name in _IMPORTED:
        import_module(name)
    gc.freeze()
    order = _serve()
    if order is None:
        return 0
    _become(order)
    from batchctl.cli import main

    code = main(order["args"])
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # taking all that was imported apart again takes longer than most commands


if __name__ == "__main__":
    sys.exit(_main())
