"""The Python API does what the commands do."""

from __future__ import annotations

import csv
import json
import logging
import subprocess
import sys
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import batchctl
from batchctl.errors import InputError, TaskError, UsageError, UserError
from tests.acceptance.shell import Shell, write_rows


@pytest.fixture(autouse=True)
def table(shell: Shell) -> None:
    write_rows(Path("rows.csv"), 6)


def submit(**options: Any) -> str:
    return batchctl.submit("task.yaml", "rows.csv", provider="rehearsal", **options)


def test_a_job_from_python_is_a_job_of_the_command_line(shell: Shell) -> None:
    name = submit(output=Path("out.csv"), max_batch_requests=2, wait=True)
    told = shell.ok("status", name, "--json").json["jobs"][0]
    status = batchctl.status(name)
    assert {field.name for field in fields(status)} == set(told)
    assert (status.job, status.state, status.batches, status.finished) == (name, "finished", 3, True)
    assert status.created_at.tzinfo == UTC and status.finished_at is not None
    assert datetime.fromisoformat(told["finished_at"]) == status.finished_at
    assert batchctl.status(1) == status

    rows = list(batchctl.results(name))
    lines = shell.ok("results", name).out.split("\n")[:-1]
    assert [row.as_dict() for row in rows] == [json.loads(line) for line in lines]
    assert [row.number for row in rows] == [1, 2, 3, 4, 5, 6]
    with Path("out.csv").open(encoding="utf-8", newline="") as file:
        assert [row["batchctl_label"] for row in csv.DictReader(file)] == [row.answer for row in rows]
    written = batchctl.results(name).write("again.csv")
    assert (written.rows, written.written) == (6, 6)
    assert Path("again.csv").read_bytes() == Path("out.csv").read_bytes()


def test_without_a_tick_nothing_is_sent_and_any_tick_goes_on(shell: Shell) -> None:
    name = submit(tick=False)
    assert shell.server.ledger()["requests_received"] == 0
    assert batchctl.status(name).exit_code == 4
    with pytest.raises(UserError, match="0 of 6 rows are final") as caught:
        list(batchctl.results(name))
    assert "--partial" in (caught.value.hint or "")
    assert {row.outcome for row in batchctl.results(name, partial=True)} == {"assigned"}
    shell.server.set_speed(1)
    assert batchctl.wait(name, timeout=0).exit_code == 4
    assert batchctl.status(name, refresh=True).state == "running"
    shell.server.set_speed(1_000)
    assert batchctl.wait(name).exit_code == 0


def test_several_inputs_and_ready_made_requests() -> None:
    name = batchctl.submit("task.yaml", ["rows.csv"], provider="rehearsal", tick=False)
    with pytest.raises(UserError, match="twice"):
        batchctl.submit("task.yaml", ["rows.csv", "rows.csv"], provider="rehearsal", tick=False)
    body = {"model": "rehearsal", "messages": [{"role": "user", "content": "x"}]}
    request = {"custom_id": "mine", "method": "POST", "url": "/v1/chat/completions", "body": body}
    Path("requests.jsonl").write_text(json.dumps(request) + "\n", encoding="utf-8")
    made = batchctl.submit(None, "requests.jsonl", provider="rehearsal", wait=True)
    assert [row.input for row in batchctl.results(made)] == [{"custom_id": "mine"}]
    assert [one.job for one in batchctl.jobs()] == [name, made]


@pytest.mark.parametrize(
    ("error", "said", "call"),
    [
        (UsageError, "no job 'nope'", lambda: batchctl.status("nope")),
        (UsageError, "no job 'nope'", lambda: list(batchctl.results("nope"))),
        (UsageError, "no job 'nope'", lambda: batchctl.wait("nope")),
        (UsageError, "no profile", lambda: batchctl.submit("task.yaml", "rows.csv", provider="nope")),
        (UsageError, "no provider is named", lambda: batchctl.submit("task.yaml", "rows.csv")),
        (TaskError, "", lambda: batchctl.submit("rows.csv", "rows.csv", provider="rehearsal")),
        (InputError, "no.csv", lambda: batchctl.submit("task.yaml", "no.csv", provider="rehearsal")),
        (UsageError, "cannot tell", lambda: submit(output="x.doc")),
        (UsageError, "rows.csv", lambda: submit(output="rows.csv")),
    ],
)
def test_what_goes_wrong_is_one_of_batchctls_errors(error: type[UserError], said: str, call: Any, shell: Shell) -> None:
    with pytest.raises(error) as caught:
        call()
    assert said in caught.value.message
    assert batchctl.jobs() == []


def test_a_job_that_is_there_already_conditions_and_files_in_the_way(shell: Shell) -> None:
    name = submit(wait=True)
    with pytest.raises(UsageError, match=f"already job {name}"):
        submit()
    with pytest.raises(UsageError, match="no column 'x'"):
        list(batchctl.results(name, where="x=1"))
    found = batchctl.results(name, where=["text~number", "attempts=1"], sample=2, seed=3)
    assert len(list(found)) == 2 and found.accounting is not None
    assert (found.accounting.rows, found.accounting.written) == (6, 2)
    Path("there.csv").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match=r"there\.csv exists"):
        batchctl.results(name).write("there.csv")
    assert batchctl.results(name).write("there.csv", force=True).written == 6
    assert batchctl.results(name).write("lines", format="openai", id_column="text").written == 6
    assert json.loads(Path("lines").read_bytes().split(b"\n")[1])["custom_id"] == "row number 1"


def test_what_lies_below_is_explained_as_on_the_command_line(shell: Shell) -> None:
    name = submit(wait=True)
    [rows] = (Path(shell.environ["BATCHCTL_HOME"]) / "spool").glob("jobs/*/rows")
    rows.unlink()
    with pytest.raises(UserError, match="is missing from"):
        list(batchctl.results(name))
    assert "is missing from" in shell("results", name).err


def test_warnings_and_progress_are_logged(shell: Shell, caplog: pytest.LogCaptureFixture) -> None:
    shell.server.post_faults([{"kind": "missing_rows", "share": 1}])
    caplog.set_level(logging.INFO, "batchctl")
    assert batchctl.wait(submit(tick=False)).exit_code == 3
    assert "6 rows are missing" in caplog.text
    assert "0 of 6 rows done" in caplog.text
    assert not shell.capture.readouterr().out


def test_an_output_that_cannot_be_written_is_an_error(shell: Shell) -> None:
    name = submit(output="out.csv", tick=False)
    Path("out.csv").write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match="written or changed after the submit"):
        batchctl.wait(name)


@pytest.mark.parametrize("code", ["import batchctl", "import batchctl; batchctl.jobs(); batchctl.status(1)"])
def test_importing_and_looking_load_nothing_heavy(shell: Shell, code: str) -> None:
    submit(tick=False)
    code += "; import sys; print(sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=shell.folder)
    heavy = ("click", "sqlalchemy", "sqlmodel", "pydantic", "alembic", "openai", "rich", "jinja2", "orjson")
    assert not [name for name in heavy if f"'{name}'" in done.stdout]


def test_the_names_are_there_to_be_found() -> None:
    assert set(batchctl.__all__) <= set(dir(batchctl))
    with pytest.raises(AttributeError, match="no attribute 'sumbit'"):
        getattr(batchctl, "sumbit")  # noqa: B009
