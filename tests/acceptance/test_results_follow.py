"""`results --follow`: rows as they become final, each once, whoever does the work meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import batchctl
from batchctl.errors import UserError
from tests.acceptance.shell import Shell, interrupt, write_rows


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.split("\n")[:-1]]


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["text"].rpartition(" ")[2]) for row in rows]


def followed(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def await_rows(path: Path, count: int) -> None:
    stop = time.monotonic() + 30
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        assert time.monotonic() < stop, path.read_bytes() if path.exists() else "no file"
        time.sleep(0.05)


def test_rows_come_as_batches_finish_each_once_and_then_it_ends(shell: Shell) -> None:
    shell.server.set_speed(20_000)
    shell.server.post_faults([{"kind": "expire", "share": 0.5, "nth": 1}])
    name = shell.submit("--max-batch-requests", 4, "--no-tick", rows=12)
    target = Path("rows.jsonl")
    with shell.start("results", name, "--follow", "-o", target) as process:
        await_rows(target, 0)
        shell.ok("wait", name)
        code, _, err = followed(process)
    rows = rows_of(target.read_text(encoding="utf-8"))
    assert code == 0
    assert "12 rows in = 12 succeeded" in err
    whole = rows_of(shell.ok("results", name).out)
    assert sorted(rows, key=lambda row: numbers([row])) == whole, "each once, and final from the first"
    resent = {number for row, number in zip(whole, numbers(whole), strict=True) if row["attempts"] == 2}
    assert resent
    assert set(numbers(rows)[-len(resent) :]) == resent, "rows that are sent again come last"
    assert rows_of(shell.ok("results", name, "--follow").out) == rows, "the same order from the store alone"


def test_a_file_grows_and_conditions_hold(shell: Shell) -> None:
    shell.server.set_speed(1)
    name = shell.submit("--max-batch-requests", 3, "--no-tick", rows=6)
    target = Path("some.jsonl")
    with shell.start("results", name, "--follow", "--where", "text!~number 4", "-o", target, "--json") as process:
        shell.server.set_speed(1_000)
        shell.ok("wait", name)
        code, out, err = followed(process)
    assert (code, json.loads(out)["written"], json.loads(out)["rows"]) == (0, 5, 6)
    assert sorted(numbers(rows_of(target.read_text(encoding="utf-8")))) == [0, 1, 2, 3, 5]
    assert "note" not in err
    refused = shell("results", name, "--follow", "-o", target)
    assert (refused.code, "--force" in refused.err) == (2, True)
    shell.ok("results", name, "--follow", "-o", target, "--force")
    assert numbers(rows_of(target.read_text(encoding="utf-8"))) == list(range(6))


def test_a_retry_meanwhile_writes_no_row_twice_and_says_so(shell: Shell) -> None:
    shell.server.post_faults(
        [
            {"kind": "row_status", "status": 400, "share": 1, "nth": 1, "message": "bad"},
            {"kind": "overdue", "seconds": 30_000, "nth": 2},
        ]
    )
    name = shell.submit("--max-batch-requests", 3, rows=6)
    target = Path("rows.jsonl")
    with shell.start("results", name, "--follow", "-o", target) as process:
        stop = time.monotonic() + 30
        while not shell.ok("status", name, "--refresh", "--json").json["jobs"][0]["failed"]:
            assert time.monotonic() < stop
            shell.ok("tick")
        await_rows(target, 3)
        shell.ok("retry", name, "--where", "errored")
        shell.server.advance(30_000)
        shell.ok("wait", name)
        code, _, err = followed(process)
    rows = rows_of(target.read_text(encoding="utf-8"))
    assert code == 0
    assert Counter(numbers(rows)) == dict.fromkeys(range(6), 1)
    assert [row["outcome"] for row in rows] == ["errored"] * 3 + ["succeeded"] * 3
    assert "3 rows were written with an outcome that has changed since" in err
    assert "6 rows in = 6 succeeded" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_whole_lines_and_the_job_as_it_is(shell: Shell, number: int) -> None:
    shell.server.set_speed(1)
    name = shell.submit("--no-tick", rows=3)
    process = shell.start("results", name, "--follow", "-o", "some.jsonl")
    await_rows(Path("some.jsonl"), 0)
    time.sleep(0.3)
    done = interrupt(process, number)
    assert done.code == 130
    assert "nothing was sent or canceled" in done.err
    assert "Traceback" not in done.err
    assert Path("some.jsonl").read_bytes() == b""
    assert shell.ok("status", name, "--json").json["jobs"][0]["state"] == "queued"


def test_it_ends_where_nothing_moves_on_without_a_person(shell: Shell) -> None:
    name = shell.submit("--no-tick")
    shell.ok("pause", name)
    done = shell("results", name, "--follow")
    assert (done.code, done.out) == (6, "")
    assert f"batchctl resume {name}" in done.err
    assert "6 rows in = 6 assigned" in done.err
    with pytest.raises(UserError, match="needs you"):
        list(batchctl.results(name, follow=True))


def test_rows_in_no_batch_are_written_too(shell: Shell) -> None:
    name = shell.submit("--no-tick")
    shell.ok("cancel", name)
    shell("wait", name)
    done = shell("results", name, "--follow")
    assert done.code == 3
    assert [row["outcome"] for row in rows_of(done.out)] == ["canceled"] * 6


def test_python_follows_too(shell: Shell) -> None:
    write_rows(Path("rows.csv"), 4)
    name = batchctl.submit("task.yaml", "rows.csv", provider="rehearsal", max_batch_requests=2, wait=True)
    found = batchctl.results(name, follow=True)
    assert [row.number for row in found] == [1, 2, 3, 4]
    assert found.accounting is not None and found.accounting.succeeded == 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--sample", 2), "leave --follow or --sample out"),
        (("--format", "csv"), "--follow writes JSONL only"),
        (("-o", "x.parquet"), "--follow writes JSONL only"),
        (("--where", "x=1"), "no column 'x'"),
    ],
)
def test_what_cannot_be_followed_is_refused(shell: Shell, options: tuple[object, ...], said: str) -> None:
    name = shell.submit("--no-tick")
    done = shell("results", name, "--follow", *options)
    assert (done.code, said in done.err) == (2, True), done
    assert not Path("x.parquet").exists()
