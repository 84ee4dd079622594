"""status: offline, in 80 columns, with exit codes; and how tick and wait stand with the same states."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.shell import Shell, write_rows
from tests.servers import QUICK, rehearsal


def fits(text: str, columns: int = 80) -> bool:
    return all(len(line) <= columns for line in text.split("\n"))


def test_status_of_an_empty_store(shell: Shell) -> None:
    done = shell.ok("status")
    assert done.out == ""
    assert "batchctl submit" in done.err
    assert shell.ok("status", "--json").json["jobs"] == []
    assert not Path(shell.environ["BATCHCTL_HOME"]).exists()


def test_status_needs_no_server(shell: Shell) -> None:
    shell.server.set_speed(1)
    name = shell.submit("--max-batch-requests", 2)
    asked = shell.server.ledger()
    told = shell.ok("status", name)
    assert told.out.startswith(f"{name}: running")
    assert "ask the provider" in told.out
    assert shell.server.ledger() == asked


def test_everything_fits_in_80_columns(shell: Shell) -> None:
    task = Path("task.yaml")
    long_name = "a-task-with-a-name-that-is-very-much-too-long-for-a-table"
    task.write_text(task.read_text(encoding="utf-8").replace("moods", long_name), encoding="utf-8")
    fault = {"kind": "row_status", "status": 400, "share": 1, "nth": 1, "message": "a long message " * 20}
    shell.server.post_faults([fault])
    write_rows(Path("rows.csv"), 50)
    code = shell(
        "submit",
        "task.yaml",
        "rows.csv",
        "--provider",
        "rehearsal",
        "-o",
        "out.csv",
        "--max-batch-requests",
        2,
        "--wait",
    ).code
    assert code == 3
    shell.submit("--max-batch-requests", 1, rows=30)
    name = shell.ok("jobs", "--json").json["jobs"][-1]["job"]
    for words in (("status",), ("status", "1"), ("status", name), ("status", name, "--all"), ("jobs",)):
        done = shell.ok(*words)
        assert fits(done.out), done.out
    assert "... and 10 more; `batchctl status" in shell.ok("status", name).out
    assert "more;" not in shell.ok("status", name, "--all").out


def test_a_wide_terminal_is_used(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    name = shell.submit("--no-tick", "-o", "o" * 90 + ".csv")
    assert "…" in shell.ok("status", name).out
    monkeypatch.setenv("COLUMNS", "400")
    assert "…" not in shell.ok("status", name).out


def test_refresh_asks_the_provider(shell: Shell) -> None:
    shell.server.set_speed(1)
    name = shell.submit()
    assert shell.ok("status", name, "--json").json["batch_list"][0]["provider_status"] == "validating"
    shell.server.advance(5_000)
    assert shell.ok("status", name, "--json").json["batch_list"][0]["provider_status"] == "validating"
    refreshed = shell.ok("status", name, "--refresh", "--json").json["batch_list"][0]
    assert refreshed["provider_status"] == "completed"
    assert refreshed["counted"] == 6


def test_check_says_running_then_done(shell: Shell) -> None:
    shell.server.set_speed(1)
    name = shell.submit()
    assert shell("status", name, "--check").code == 4
    assert shell("status", "--check").code == 4
    assert shell("tick", "--strict").code == 4
    assert shell("status").code == 0
    shell.server.set_speed(1_000)
    assert shell("wait", name).code == 0
    assert shell("status", name, "--check").code == 0
    assert shell("status", "--check").code == 0


def test_case_1_a_batch_past_its_window_is_late_and_is_not_sent_again(shell: Shell) -> None:
    shell.server.post_faults([{"kind": "overdue", "seconds": 1e9}])
    shell.server.set_speed(1)
    name = shell.submit()
    assert shell("tick", "--strict").code == 4
    shell.server.advance(26 * 3_600)
    assert shell("tick", "--strict").code == 5
    assert shell("tick").code == 0
    told = shell("status", name, "--check")
    assert told.code == 5
    assert "overdue" in told.out
    assert shell.ok("status", name, "--json").json["jobs"][0]["exit_code"] == 5
    assert shell.server.ledger()["requests_received"] == 6


@pytest.mark.parametrize(("status", "code"), [(401, "invalid_api_key"), (429, "insufficient_quota")])
def test_a_refused_key_and_an_empty_account_need_a_person(shell: Shell, status: int, code: str) -> None:
    fault = {"op": "create", "kind": "error", "status": status, "code": code, "message": "no more"}
    shell.server.post_faults([fault])
    write_rows(Path("rows.csv"), 2)
    sent = shell("submit", "task.yaml", "rows.csv", "--provider", "rehearsal")
    assert sent.code == 0
    assert "is paused" in sent.err

    waited = shell("wait")
    assert waited.code == 6
    assert "batchctl resume moods-1" in waited.err
    assert shell("status", "moods-1", "--check").code == 6
    assert shell("tick", "--strict").code == 6
    assert shell("tick").code == 0
    assert "account" in shell.ok("status").out

    shell.server.post_faults([])
    assert shell("resume", "moods-1").code == 0
    assert shell("wait", "moods-1").code == 0


def test_wait_gives_up_after_its_timeout(shell: Shell) -> None:
    shell.server.set_speed(1)
    name = shell.submit()
    done = shell("wait", name, "--timeout", 0.2)
    assert done.code == 4
    assert f"batchctl wait {name} goes on" in done.err
    assert shell("wait", name, "--timeout", 0, "--json").json["jobs"][0]["exit_code"] == 4


def test_wait_without_jobs(shell: Shell) -> None:
    done = shell.ok("wait", "--json")
    assert done.json["jobs"] == []
    assert "no open jobs" in done.err


def test_wait_says_each_change_once(shell: Shell) -> None:
    shell.server.set_speed(100)
    name = shell.submit("--max-batch-requests", 2)
    lines = shell.ok("wait", name).err.split("\n")
    assert len(lines) == len(set(lines))
    assert any("3 validating" in line or "in progress" in line for line in lines)


def test_wait_ends_where_the_result_cannot_be_written(shell: Shell) -> None:
    Path("gone").mkdir()
    name = shell.submit("-o", "gone/out.csv")
    Path("gone").rmdir()
    done = shell("wait", name)
    assert done.code == 1
    assert f"batchctl results {name} -o OTHER_FILE" in done.err
    assert "merge failed" in shell.ok("status").out
    assert shell("results", name, "-o", "other.csv").code == 0
    Path("gone").mkdir()
    shell.ok("tick")
    assert Path("gone/out.csv").exists(), "what the user mended is noticed at once"
    assert shell.ok("wait", name).code == 0


def test_long_lists_of_jobs_are_shortened(shell: Shell) -> None:
    for count in range(1, 16):
        shell.submit("--no-tick", rows=count)
    text = shell.ok("status").out
    assert "... and 3 more; `batchctl status --all` lists them" in text
    assert shell.ok("status", "--all").out.count("moods-") == 15
    assert shell.ok("jobs").out.count("moods-") == 15


def test_case_90_a_second_tick_leaves_the_first_alone_and_exits_0(shell: Shell) -> None:
    from batchctl.engine.locks import exclusive

    shell.submit("--no-tick")
    now = shell.server.now()
    locks = Path(shell.environ["BATCHCTL_HOME"]) / "locks"
    with exclusive(locks / "tick.lock", owner="process 7 on here", now=now):
        done = shell.ok("tick")
        assert "another tick (process 7 on here" in done.err
        assert shell.ok("tick", "--json").json["busy"] == "process 7 on here"
        assert shell("tick", "--strict").code == 4
        assert "will take moods-2" in shell.ok(*_submit(7)).err
        watching = shell("wait", "moods-1", "--timeout", 0.1)
        assert watching.code == 4
        assert "this is what it has stored so far" in shell.ok("status", "--refresh").err
    with exclusive(locks / "tick.lock", owner="process 7 on here", now=now - 10_000_000):
        assert "stalled" in shell.ok("tick").err
    assert "creates" in shell.ok("tick").out


def _submit(rows: int) -> tuple[str, ...]:
    write_rows(Path("more.csv"), rows)
    return ("submit", "task.yaml", "more.csv", "--provider", "rehearsal")


def test_an_offline_command_works_without_the_server(shell: Shell) -> None:
    with rehearsal(in_process=True, speed=1, timing=QUICK) as other:
        toml = Path("batchctl.toml")
        text = toml.read_text(encoding="utf-8")
        toml.write_text(text.replace(shell.server.base_url, other.base_url), encoding="utf-8")
        name = shell.submit()
    for words in (
        ("status",),
        ("logs", name),
        ("pause", name),
        ("results", name, "--partial"),
        ("cancel", name, "--no-tick"),
    ):
        assert shell(*words).code in (0, 3), words
    gone = shell("tick")
    assert gone.code == 1
    assert "no rehearsal server answers" in gone.err


@pytest.mark.parametrize("words", [("status",), ("status", "1"), ("jobs",), ("logs", "1")])
def test_reading_commands_import_nothing_heavy(shell: Shell, words: tuple[str, ...]) -> None:
    shell.submit("--no-tick")
    code = (
        "import sys; from batchctl.cli import main; assert main(sys.argv[1:]) == 0;"
        "print(sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True, cwd=shell.folder
    )
    loaded = done.stdout.strip().split("\n")[-1]
    heavy = ("sqlalchemy", "sqlmodel", "pydantic", "alembic", "openai", "rich", "jinja2", "orjson", "starlette")
    assert not [name for name in heavy if f"'{name}'" in loaded]
