"""What is wrong is said before anything is stored or sent: what, where, and what to type next."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from batchctl.cli import main
from batchctl_store.spool import Spool
from tests.acceptance.shell import Shell, write_rows

SUBMIT = ("submit", "task.yaml", "rows.csv", "--provider", "rehearsal")


def nothing_happened(shell: Shell) -> bool:
    """No job, no spooled byte, no file at the provider."""
    jobs = shell.ok("jobs", "--json").json["jobs"]
    spool = Path(shell.environ["BATCHCTL_HOME"]) / "spool"
    spooled = [path for path in spool.rglob("*") if path.is_file()] if spool.exists() else []
    return not jobs and not spooled and shell.server.ledger()["requests_received"] == 0


def test_a_bad_task_lists_every_problem_by_line(shell: Shell) -> None:
    Path("task.yaml").write_text("model: small\nprompt: '{{ text'\nlabel: [a, b]\n", encoding="utf-8")
    write_rows(Path("rows.csv"), 2)
    done = shell(*SUBMIT)
    assert done.code == 2
    assert "task.yaml:2: prompt:" in done.err
    assert "task.yaml:3: label:" in done.err
    assert nothing_happened(shell)


def test_a_bad_row_is_named_by_line_and_nothing_is_kept(shell: Shell) -> None:
    Path("rows.csv").write_text("text,label\nfine,good\nragged\n", encoding="utf-8")
    done = shell(*SUBMIT)
    assert done.code == 2
    assert "rows.csv:3" in done.err
    assert nothing_happened(shell)


def test_a_missing_column_is_named(shell: Shell) -> None:
    Path("rows.csv").write_text("txt,label\nfine,good\n", encoding="utf-8")
    done = shell(*SUBMIT)
    assert done.code == 2
    assert "the task uses the column 'text'" in done.err
    assert nothing_happened(shell)


def test_a_missing_input_and_an_unknown_format(shell: Shell) -> None:
    assert "no such file" in shell(*SUBMIT).err
    Path("rows.txt").write_text("a\n", encoding="utf-8")
    done = shell("submit", "task.yaml", "rows.txt", "--provider", "rehearsal")
    assert done.code == 2
    assert "--format" in done.err


def test_a_missing_key_is_said_before_anything_is_stored(shell: Shell) -> None:
    write_rows(Path("rows.csv"), 2)
    done = shell("submit", "task.yaml", "rows.csv", "--provider", "openai")
    assert done.code == 2
    assert "OPENAI_API_KEY" in done.err
    assert nothing_happened(shell)


def test_an_unknown_provider_and_none_at_all(shell: Shell) -> None:
    write_rows(Path("rows.csv"), 2)
    done = shell("submit", "task.yaml", "rows.csv", "--provider", "rehersal")
    assert done.code == 2
    assert "rehearsal" in done.err
    done = shell("submit", "task.yaml", "rows.csv")
    assert done.code == 2
    assert "--provider" in done.err
    assert nothing_happened(shell)


def test_an_output_that_exists_is_refused_before_anything_is_sent(shell: Shell) -> None:
    write_rows(Path("rows.csv"), 2)
    Path("out.csv").write_text("mine", encoding="utf-8")
    done = shell(*SUBMIT, "-o", "out.csv")
    assert done.code == 2
    assert "--force" in done.err
    assert nothing_happened(shell)
    assert Path("out.csv").read_text(encoding="utf-8") == "mine"
    assert shell(*SUBMIT, "-o", "out.csv", "--force", "--wait").code == 0
    assert Path("out.csv").read_text(encoding="utf-8").startswith("text,label")


@pytest.mark.parametrize("target", ["out.xlsx", "no/such/folder/out.csv", "rows.csv", "."])
def test_an_output_that_cannot_be_written_is_refused(shell: Shell, target: str) -> None:
    write_rows(Path("rows.csv"), 2)
    before = Path("rows.csv").read_bytes()
    assert shell(*SUBMIT, "-o", target, "--force").code == 2
    assert nothing_happened(shell)
    assert Path("rows.csv").read_bytes() == before


def test_no_server_at_the_profiles_address(shell: Shell) -> None:
    text = Path("batchctl.toml").read_text(encoding="utf-8")
    Path("batchctl.toml").write_text(text.replace(shell.server.base_url, "http://127.0.0.1:9/v1"), encoding="utf-8")
    write_rows(Path("rows.csv"), 2)
    done = shell(*SUBMIT)
    assert done.code == 1
    assert "batchctl serve" in done.err
    assert "Traceback" not in done.err


def test_validate_reports_everything_at_once_and_sends_nothing(shell: Shell) -> None:
    Path("rows.csv").write_text("text,label\nfine,good\nragged\nok,good\n,,\n", encoding="utf-8")
    done = shell("validate", "task.yaml", "rows.csv", "--provider", "openai")
    assert done.code == 2
    assert "OPENAI_API_KEY" in done.out
    assert "rows.csv:3: " in done.out
    assert "rows.csv:5: " in done.out
    found = shell("validate", "task.yaml", "rows.csv", "--provider", "openai", "--json").json
    assert (found["ok"], len(found["problems"]), found["rows"]) == (False, 3, 2)
    assert not Path(shell.environ["BATCHCTL_HOME"]).exists()


def test_validate_of_what_is_fine(shell: Shell) -> None:
    write_rows(Path("rows.csv"), 3)
    done = shell.ok("validate", "task.yaml", "rows.csv", "--provider", "rehearsal")
    assert "3 rows and the task are fine for rehearsal" in done.err
    assert shell.ok("validate", "task.yaml", "rows.csv", "--json").json["ok"] is True


def test_validate_finds_a_row_that_no_batch_can_hold(shell: Shell) -> None:
    toml = Path("batchctl.toml")
    toml.write_text(toml.read_text(encoding="utf-8") + "max_line_bytes = 1000\n", encoding="utf-8")
    Path("rows.csv").write_text(f"text,label\nfine,good\n{'x' * 2000},good\n", encoding="utf-8")
    done = shell("validate", "task.yaml", "rows.csv", "--provider", "rehearsal")
    assert done.code == 2
    assert "rows.csv:3: the request has" in done.out


def test_validate_of_a_task_that_is_wrong(shell: Shell) -> None:
    Path("task.yaml").write_text("prompt: hi\n", encoding="utf-8")
    write_rows(Path("rows.csv"), 1)
    found = shell("validate", "task.yaml", "rows.csv", "--json")
    assert found.code == 2
    assert "model: is missing" in found.json["problems"][0]


def test_estimate_is_what_submit_sends(shell: Shell) -> None:
    write_rows(Path("rows.csv"), 10)
    options = ("task.yaml", "rows.csv", "--provider", "rehearsal", "--max-batch-requests", "4")
    told = shell.ok("estimate", *options, "--json").json
    assert shell.ok("estimate", *options).out.startswith("rows           10\n")
    shell.ok("submit", *options)
    job = shell.ok("status", "moods-1", "--json").json
    assert told["batches"] == job["jobs"][0]["batches"] == 3
    assert told["requests"] == 10
    assert told["max_output_tokens"] == 50
    assert told["input_tokens"] > 10 * 10
    with shell.server.client() as client:
        files = list(client.files.list())
    assert told["bytes"] == sum(file.bytes for file in files if file.purpose == "batch")


def test_a_bad_settings_file_is_named(shell: Shell) -> None:
    Path("batchctl.toml").write_text("provider = openai\n", encoding="utf-8")
    done = shell("status")
    assert done.code == 2
    assert "batchctl.toml: not TOML" in done.err


@pytest.mark.parametrize(
    "words",
    [("submit",), ("status", "--nope"), ("tick", "--max-runtime", "0"), ("nosuch",), ("retry", "x", "--where", "y")],
)
def test_wrong_usage_exits_2(words: tuple[str, ...]) -> None:
    assert main(list(words)) == 2


def _no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/spool/file")


def _database_full(*_: object, **__: object) -> None:
    raise sqlite3.OperationalError("database or disk is full")


@pytest.mark.parametrize("failure", [_no_space, _database_full])
def test_a_full_disk_is_said_and_nothing_is_kept(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, failure: Callable[..., None]
) -> None:
    write_rows(Path("rows.csv"), 2)
    with monkeypatch.context() as patch:
        patch.setattr(Spool, "writer", failure)
        done = shell(*SUBMIT)
    assert done.code == 1
    assert "the disk is full" in done.err
    assert "batchctl tick" in done.err
    assert "Traceback" not in done.err
    assert nothing_happened(shell)


def test_debug_shows_the_traceback(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHCTL_DEBUG", "1")
    done = shell.spawn("status", "nosuch", cwd=shell.folder)
    assert done.code == 1
    assert "Traceback" in done.err


def test_case_76_the_key_is_in_no_output_and_no_file(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-secret-key-of-mine-0123456789"
    monkeypatch.setenv("MY_KEY", key)
    toml = Path("batchctl.toml")
    toml.write_text(toml.read_text(encoding="utf-8") + 'key_env = "MY_KEY"\n', encoding="utf-8")
    shell.server.post_faults([{"op": "create", "kind": "error", "status": 401, "message": f"Incorrect key: {key}"}])
    name = shell.submit()
    said = [shell("status", name), shell("logs", name), shell("tick"), shell("wait", name), shell("status", "--json")]
    assert not any(key in done.out + done.err for done in said)
    stored = [path for path in Path(shell.environ["BATCHCTL_HOME"]).rglob("*") if path.is_file()]
    assert stored
    assert not any(key.encode() in path.read_bytes() for path in stored)


def test_a_disk_that_is_full_while_results_come_in_loses_nothing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.server.set_speed(1)
    name = shell.submit()
    shell.server.advance(5_000)
    with monkeypatch.context() as patch:
        patch.setattr(Spool, "writer", _no_space)
        done = shell("tick")
    assert done.code == 1
    assert "the disk is full" in done.err
    assert "Traceback" not in done.err
    assert shell("wait", name).code == 0
    assert shell.server.ledger()["answered_once"] == 6
    assert shell.server.ledger()["requests_received"] == 6
