"""Ctrl-C and SIGTERM, as signals to the real command."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.acceptance.shell import Shell, interrupt, write_rows


def await_call(shell: Shell, route: str) -> None:
    """Until the server has seen a call of `route`."""
    stop = time.monotonic() + 30
    while not shell.server.ledger()["calls"].get(route):
        assert time.monotonic() < stop
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_wait_sends_no_cancel_and_says_how_to_go_on(shell: Shell, number: int) -> None:
    shell.server.set_speed(1)
    name = shell.submit()
    process = shell.start("wait", name)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert f"{name}: running" in line
    time.sleep(0.3)
    done = interrupt(process, number)
    assert done.code == 130
    assert "no cancel was sent" in done.err
    assert "batchctl wait" in done.err
    assert "Traceback" not in done.err
    batch = shell.ok("status", name, "--refresh", "--json").json["batch_list"][0]
    assert batch["provider_status"] == "validating"
    assert "cancel" not in shell.server.ledger()["calls"]


def test_an_interrupt_during_a_create_lets_it_be_written_down(shell: Shell) -> None:
    shell.server.post_faults([{"op": "create", "kind": "slow", "wall_s": 1.5}])
    write_rows(Path("rows.csv"), 4)
    process = shell.start(
        "submit",
        "task.yaml",
        "rows.csv",
        "--provider",
        "rehearsal",
        "--max-batch-requests",
        2,
        stdin=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "moods-1\n"
    await_call(shell, "create")
    done = interrupt(process)
    assert done.code == 130
    assert "Ctrl-C again leaves at once" in done.err
    assert "job moods-1 is stored and no cancel was sent" in done.err
    states = [batch["state"] for batch in shell.ok("status", "moods-1", "--json").json["batch_list"]]
    assert set(states) <= {"planned", "ready", "submitted"}, states
    shell.server.post_faults([])
    assert shell("wait", "moods-1").code == 0
    assert shell.server.ledger()["requests_received"] == 4


def test_a_second_ctrl_c_leaves_at_once(shell: Shell) -> None:
    shell.server.post_faults([{"op": "create", "kind": "slow", "wall_s": 20}])
    write_rows(Path("rows.csv"), 2)
    process = shell.start("submit", "task.yaml", "rows.csv", "--provider", "rehearsal")
    assert process.stdout is not None
    process.stdout.readline()
    await_call(shell, "create")
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None
    started = time.monotonic()
    assert interrupt(process).code == 130
    assert time.monotonic() - started < 3


def test_an_interrupted_submit_before_the_job_is_stored_keeps_nothing(shell: Shell) -> None:
    write_rows(Path("rows.csv"), 300_000)
    process = shell.start("submit", "task.yaml", "rows.csv", "--provider", "rehearsal")
    spool = Path(shell.environ["BATCHCTL_HOME"]) / "spool"
    stop = time.monotonic() + 30
    while not spool.exists() or not any(path.is_file() for path in spool.rglob("*")):
        assert time.monotonic() < stop
        time.sleep(0.02)
    done = interrupt(process)
    assert (done.code, done.out) == (130, "")
    assert "nothing was stored and nothing was sent" in done.err
    assert shell.ok("jobs", "--json").json["jobs"] == []
    assert not [path for path in (spool / "jobs").rglob("*") if path.is_file()]


def on_terminal(shell: Shell, *words: str, **environ: str) -> str:
    """What the command writes to a terminal of 100 columns."""
    reader, writer = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "batchctl", *words],
        stdin=writer,
        stdout=writer,
        stderr=writer,
        env={**os.environ, **shell.environ, "TERM": "xterm", "COLUMNS": "100", **environ},
    )
    os.close(writer)
    written = b""
    while True:
        try:
            chunk = os.read(reader, 65_536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        written += chunk
    os.close(reader)
    assert process.wait() == 0, written
    return written.decode()


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_a_terminal_gets_bars_and_no_color_is_honoured(shell: Shell) -> None:
    name = shell.submit()
    assert "━" in on_terminal(shell, "wait", name)
    shown = on_terminal(shell, "status", name)
    assert COLOUR.search(shown)
    for words in (("status", name), ("wait", name)):
        assert not COLOUR.search(on_terminal(shell, *words, NO_COLOR="1"))


def test_a_pipe_gets_no_escape_and_a_reader_that_leaves_no_traceback(shell: Shell) -> None:
    name = shell.submit(rows=3_000)
    assert shell("wait", name).code == 0
    assert "\x1b" not in shell.spawn("status", name).out
    process = shell.start("results", name)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline().startswith('{"text"')
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait()
