"""What is kept and what goes: files at the provider after the merge, files here after a while, whole jobs."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from batchctl.composition import open_engine
from batchctl.engine.context import Engine
from batchctl.engine.locks import exclusive, ownership
from batchctl_store.spool import Spool
from batchctl_store.views import Views
from tests.acceptance.shell import Shell, write_rows

BAD = {"kind": "row_status", "status": 400, "share": 0.5, "message": "bad", "nth": 1}


def remote_files(shell: Shell) -> set[str]:
    """Ids of the files that the provider has."""
    with closing(shell.server.client()) as client:
        return {file.id for file in client.files.list()}


def spool(shell: Shell) -> set[str]:
    """What lies in the spool, by the last part of its name."""
    return {name.split("/")[2] for name in Spool(home(shell) / "spool").names()}


def home(shell: Shell) -> Path:
    return Path(shell.environ["BATCHCTL_HOME"])


def settings(shell: Shell, **retention: object) -> None:
    """Write `[retention]` into batchctl.toml."""
    path = shell.folder / "batchctl.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in retention.items()]
    path.write_text(path.read_text(encoding="utf-8") + "\n".join(["[retention]", *lines, ""]), encoding="utf-8")


@pytest.fixture
def engine(shell: Shell) -> Iterator[Engine]:
    found = open_engine(offline=True)
    yield found
    found.close()


# At the provider


def test_case_32_input_and_output_files_are_deleted_after_the_merge(shell: Shell) -> None:
    name = shell.submit("-o", "out.csv", "--max-batch-requests", 2, "--wait")
    assert remote_files(shell) == set()
    assert shell.server.ledger()["calls"]["delete_file"] == 6
    told = [event["text"] for event in shell.ok("logs", name, "--json").json["events"]]
    assert sum(text.startswith("deleted 2 files at the provider: file-") for text in told) == 3
    shell.ok("tick")
    assert shell.server.ledger()["calls"]["delete_file"] == 6, "once is enough"
    assert shell.ok("results", name, "-o", "again.jsonl", "--json").json["outcomes"] == {"succeeded": 6}


@pytest.mark.parametrize("where", ["settings", "profile", "submit"])
def test_case_32_files_at_the_provider_may_be_kept(shell: Shell, where: str) -> None:
    if where == "settings":
        settings(shell, keep_remote_files=True)
    if where == "profile":
        path = shell.folder / "batchctl.toml"
        path.write_text(path.read_text(encoding="utf-8") + "keep_remote_files = true\n", encoding="utf-8")
    shell.submit("-o", "out.csv", "--wait", *(["--keep-remote"] if where == "submit" else []))
    shell.ok("tick")
    assert len(remote_files(shell)) == 2


def test_case_32_without_an_output_they_go_once_results_wrote_the_whole_job(shell: Shell) -> None:
    name = shell.submit("--wait")
    shell.ok("tick")
    assert len(remote_files(shell)) == 2, "nothing was merged"
    shell.ok("results", name)
    shell.ok("tick")
    assert len(remote_files(shell)) == 2, "nobody knows what became of stdout"
    shell.ok("results", name, "-o", "out.csv")
    shell.ok("tick")
    assert remote_files(shell) == set()


def test_case_32_a_deletion_that_fails_is_a_warning_and_tried_again(shell: Shell) -> None:
    shell.server.post_faults([{"op": "delete_file", "kind": "error", "status": 503}])
    name = shell.submit("-o", "out.csv", "--max-batch-requests", 3, "--no-tick")
    done = shell.ok("wait", name)
    assert "could not be deleted, nothing depends on it" in done.err
    old = remote_files(shell)
    assert Path("out.csv").exists() and len(old) == 4
    shell.server.post_faults([])
    shell.submit("-o", "new.csv", "--again", "--no-tick")  # so that the clock is followed again
    shell.server.advance(700)
    assert "cleaned up behind" in shell.ok("tick").out
    assert not remote_files(shell) & old


def test_case_32_a_deletion_that_is_refused_leaves_the_files_to_their_expiry(shell: Shell) -> None:
    refused = {"op": "delete_file", "kind": "error", "status": 400, "message": "Invalid file id"}
    shell.server.post_faults([refused])
    name = shell.submit("-o", "out.csv", "--wait")
    assert "left to their expiry" in "".join(e["text"] for e in shell.ok("logs", name, "--json").json["events"])
    calls = shell.server.ledger()["calls"]["delete_file"]
    shell.server.advance(100_000)
    shell.ok("tick")
    assert shell.server.ledger()["calls"]["delete_file"] == calls


def test_files_of_a_batch_with_missing_rows_are_left_for_a_person(shell: Shell) -> None:
    shell.server.post_faults([{"kind": "missing_rows", "share": 0.5, "nth": 1}])
    write_rows(Path("rows.csv"), 4)
    words = ("submit", "task.yaml", "rows.csv", "--provider", "rehearsal", "-o", "out.csv", "--wait")
    assert shell(*words).code == 3
    assert len(remote_files(shell)) == 2
    shell.ok("retry", "moods-1", "--where", "missing")
    assert shell("wait", "moods-1").code == 0
    assert remote_files(shell) == set(), "the retry gave them their answers"


# Here


def test_gc_keeps_rows_and_answers_and_results_work_as_before(shell: Shell) -> None:
    name = shell.submit("-o", "out.csv", "--wait")
    assert spool(shell) == {"rows", "keys", "bodies", "lines", "results"}
    early = shell.ok("gc", name)
    assert "has not been over for long enough" in early.err and spool(shell) >= {"bodies", "results"}
    done = shell.ok("gc", "--older-than", "0s", "--json").json
    assert done["trimmed"] == [name] and done["freed"] > 0
    assert spool(shell) == {"rows", "keys"}
    assert shell.ok("results", name, "-o", "again.csv", "--json").json["outcomes"] == {"succeeded": 6}
    assert Path("again.csv").read_bytes() == Path("out.csv").read_bytes()
    assert "nothing is left to go" in shell.ok("gc", name, "--older-than", "0s").err


def test_case_33_a_retry_after_gc_sends_the_same_bytes_again(shell: Shell) -> None:
    shell.server.post_faults([BAD])
    write_rows(Path("rows.csv"), 40)
    assert shell("submit", "task.yaml", "rows.csv", "--provider", "rehearsal", "-o", "out.csv", "--wait").code == 3
    spooled = Spool(home(shell) / "spool")
    (bodies,) = (name for name in spooled.names() if name.endswith("/bodies"))
    with spooled.reader(bodies) as reader:
        before = list(reader.lines())
    size = spooled.disk_bytes(bodies)
    shell.ok("gc", "--older-than", "0s")
    with spooled.reader(bodies) as reader:
        after = list(reader.lines())
    kept = [number for number, body in enumerate(after) if body]
    assert len(after) == 40 and 0 < len(kept) < 40
    assert [after[number] for number in kept] == [before[number] for number in kept]
    assert spooled.disk_bytes(bodies) < size
    assert shell.ok("retry", "moods-1", "--where", "errored", "--json").json["rows"] == len(kept)
    assert shell("wait", "moods-1").code == 0
    assert shell.ok("results", "moods-1", "-o", "all.csv", "--json").json["outcomes"] == {"succeeded": 40}


def test_gc_touches_nothing_of_a_job_that_is_not_over(shell: Shell) -> None:
    shell.server.set_speed(1)
    name = shell.submit("-o", "out.csv")
    before = spool(shell)
    done = shell.ok("gc", name, "--older-than", "0s")
    assert "it is not over" in done.err
    refused = shell("gc", "--forget", "--yes", name)
    assert (refused.code, "is not over" in refused.err) == (1, True)
    assert spool(shell) == before
    shell.server.set_speed(1_000)
    assert shell("wait", name).code == 0


def test_a_dry_run_shows_what_lies_there_and_deletes_nothing(shell: Shell) -> None:
    name = shell.submit("-o", "out.csv", "--wait")
    before = spool(shell)
    shown = shell.ok("gc", "--dry-run", "--older-than", "0s").out
    for kind in ("input rows", "requests", "results as received", "store", "locks", name):
        assert kind in shown
    told = shell.ok("gc", "--dry-run", "--older-than", "0s", "--json").json
    assert spool(shell) == before
    sizes = {each["kind"]: (each["bytes"], each["freed"]) for each in told["kinds"]}
    assert sizes["requests"][0] == sizes["requests"][1] > 0
    assert sizes["input rows"][1] == 0 < sizes["input rows"][0]
    assert told["jobs"][0]["bytes"] == sum(sizes[kind][0] for kind in ("input rows", "requests", "results as received"))
    assert shell.ok("gc", "--older-than", "0s", "--json").json["freed"] >= told["freed"] > 0


def test_forgetting_takes_the_whole_job_and_its_name_is_never_used_again(shell: Shell) -> None:
    first = shell.submit("-o", "out.csv", "--wait")
    asked = shell("gc", "--forget", first)
    assert asked.code == 2 and "cannot be undone" in asked.err
    assert "all of it" in shell.ok("gc", "--forget", first, "--dry-run").out
    assert shell.ok("gc", "--forget", first, "--yes", "--json").json["forgotten"] == [first]
    assert spool(shell) == set()
    assert Views(home(shell) / "store.db").jobs() == []
    assert Path("out.csv").exists()
    second = shell.submit("-o", "other.csv", "--wait")
    assert (first, second) == ("moods-1", "moods-2"), "and the same table is a new job"
    assert shell("gc", "--forget").code == 2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("said", "code", "left"), [("n\n", 1, ["moods-1"]), ("y\n", 0, [])])
def test_forgetting_asks_on_a_terminal(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, said: str, code: int, left: list[str]
) -> None:
    name = shell.submit("-o", "out.csv", "--keep-remote", "--wait")
    monkeypatch.setattr(sys, "stdin", Terminal(said))
    done = shell("gc", "--forget", name)
    assert done.code == code
    assert "1 batch may still have files at the provider" in done.err
    assert "Forget moods-1 with 6 rows and all answers?" in done.err
    assert [job["name"] for job in Views(home(shell) / "store.db").jobs()] == left


def test_gc_deletes_nothing_while_a_pass_is_at_work(shell: Shell, engine: Engine) -> None:
    shell.submit("-o", "out.csv", "--wait")
    with exclusive(engine.locks / "tick.lock", owner="somebody", now=engine.clock.now()):
        done = shell("gc", "--older-than", "0s")
        assert (done.code, "somebody" in done.err) == (1, True)
        assert "would go" in shell.ok("gc", "--older-than", "0s", "--dry-run").out.lower()
    assert spool(shell) >= {"bodies", "results"}


# By itself


def days_later(shell: Shell, days: float) -> None:
    """The clock is followed while a job is open: there is one then."""
    shell.server.advance(days * 86_400)
    shell.submit("-o", f"after-{days}.csv", "--again", "--no-tick")


def test_a_tick_collects_once_a_day_and_says_so_only_where_something_went(shell: Shell) -> None:
    name = shell.submit("-o", "out.csv", "--wait")
    days_later(shell, 29)
    assert "let go" not in shell.ok("tick").err
    days_later(shell, 0.9)
    assert "let go" not in shell.ok("tick").err
    days_later(shell, 0.2)
    assert "let go of " in shell.ok("tick").err
    assert shell.ok("logs", name).out.count("let go of ") == 1
    assert "let go of " not in shell.ok("logs", "moods-2").out
    assert "let go" not in shell.ok("tick").err


def test_a_tick_collects_nothing_where_that_is_turned_off(shell: Shell) -> None:
    settings(shell, auto=False, files="0s")
    shell.submit("-o", "out.csv", "--wait")
    shell.ok("tick")
    assert "bodies" in spool(shell)
    assert shell.ok("gc", "--json").json["trimmed"] == ["moods-1"]


def test_an_age_in_the_settings_forgets_whole_jobs(shell: Shell) -> None:
    settings(shell, jobs="10d")
    shell.submit("-o", "out.csv", "--wait")
    days_later(shell, 11)
    shell.ok("tick")
    assert [job["name"] for job in Views(home(shell) / "store.db").jobs()] == ["moods-2"]


# Leftovers


def orphan(engine: Engine, *, age_s: float) -> str:
    with engine.spool.writer("jobs/0123456789abcdef/rows") as writer:
        writer.append(b"{}")
    then = time.time() - age_s
    os.utime(engine.spool.root / "jobs/0123456789abcdef", (then, then))
    return "jobs/0123456789abcdef/rows"


def test_leftovers_of_died_intakes_are_found(shell: Shell, engine: Engine) -> None:
    shell.submit("--no-tick")
    young = orphan(engine, age_s=3_600)
    shell.ok("gc")
    assert engine.spool.exists(young), "an intake may still be at it"
    orphan(engine, age_s=2 * 86_400)
    sizes = {each["kind"]: each["freed"] for each in shell.ok("gc", "--dry-run", "--json").json["kinds"]}
    assert sizes["leftovers"] > 0 and engine.spool.exists(young)
    assert shell.ok("gc", "--json").json["freed"] == sizes["leftovers"]
    assert not engine.spool.exists(young) and spool(shell) == {"rows", "keys", "bodies", "lines"}


def test_leftovers_stay_while_an_owner_as_old_is_alive(shell: Shell, engine: Engine) -> None:
    name = orphan(engine, age_s=2 * 86_400)
    with ownership(engine.locks) as owner:
        then = time.time() - 3 * 86_400
        os.utime(owner.lock.lock_file, (then, then))
        shell.ok("gc")
        assert engine.spool.exists(name)
    dead = engine.locks / "owner-deadbeef.lock"
    dead.touch()
    os.utime(dead, (then, then))
    shell.ok("gc")
    assert not engine.spool.exists(name) and not dead.exists()
