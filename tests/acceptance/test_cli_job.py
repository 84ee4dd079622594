"""A job from submit to results, command by command."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.acceptance.shell import Shell, write_rows


def home(shell: Shell) -> Path:
    return Path(shell.environ["BATCHCTL_HOME"])


def test_submit_wait_and_results_write_every_row_in_order(shell: Shell) -> None:
    name = shell.submit("-o", "out.csv", "--max-batch-requests", 2)
    assert name == "moods-1"

    waited = shell.ok("wait", name)
    assert waited.out == ""
    assert "finished, 6 rows succeeded; the result is in" in waited.err

    with Path("out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == [f"row number {n}" for n in range(6)]
    assert {row["batchctl_label"] for row in rows} <= {"good", "bad"}
    assert [row["batch"] for row in rows] == ["b1", "b1", "b2", "b2", "b3", "b3"]
    assert shell.server.ledger()["answered_once"] == 6

    results = shell.ok("results", name)
    assert [json.loads(line)["text"] for line in results.out.splitlines()] == [row["text"] for row in rows]
    assert "6 rows in = 6 succeeded" in results.err


def test_submit_prints_the_name_alone_on_stdout(shell: Shell) -> None:
    write_rows(Path("rows.csv"), 3)
    done = shell.ok("submit", "task.yaml", "rows.csv", "--provider", "rehearsal")
    assert done.out == "moods-1\n"
    assert "3 rows in 1 batch" in done.err


def test_submit_wait_goes_on_to_the_end(shell: Shell) -> None:
    name = shell.submit("-o", "out.jsonl", "--wait")
    assert name == "moods-1"
    assert len(Path("out.jsonl").read_bytes().strip().split(b"\n")) == 6


def test_the_provider_of_batchctl_toml_is_the_default(shell: Shell) -> None:
    toml = Path("batchctl.toml")
    toml.write_text('provider = "rehearsal"\n' + toml.read_text(encoding="utf-8"), encoding="utf-8")
    write_rows(Path("rows.csv"), 2)
    assert shell.ok("submit", "task.yaml", "rows.csv", "--no-tick").out == "moods-1\n"
    assert shell.ok("status", "--json").json["jobs"][0]["provider"] == "rehearsal"


def test_no_tick_stores_the_job_and_tick_sends_it(shell: Shell) -> None:
    shell.submit("--no-tick")
    assert shell.server.ledger()["requests_received"] == 0
    job = shell.ok("status", "moods-1", "--json").json
    assert job["jobs"][0]["state"] == "queued"
    assert job["batch_list"][0]["state"] == "planned"

    done = shell.ok("tick")
    assert "uploads 1; creates 1" in done.out
    assert shell.ok("status", "moods-1", "--json").json["batch_list"][0]["state"] == "submitted"


def test_tick_says_nothing_where_nothing_happens(shell: Shell) -> None:
    done = shell.ok("tick")
    assert done.out == done.err == ""
    assert not (home(shell) / "store.db").exists()

    shell.submit("-o", "out.csv", "--wait")
    done = shell.ok("tick")
    assert done.out == done.err == ""


def test_the_same_submit_twice_is_refused_with_the_jobs_name(shell: Shell) -> None:
    shell.submit("--no-tick")
    again = shell("submit", "task.yaml", "rows.csv", "--provider", "rehearsal")
    assert again.code == 2
    assert "already job moods-1" in again.err
    assert "--again" in again.err
    assert [job["job"] for job in shell.ok("jobs", "--json").json["jobs"]] == ["moods-1"]

    assert shell.ok("submit", "task.yaml", "rows.csv", "--provider", "rehearsal", "--again", "--no-tick").out
    assert len(shell.ok("jobs", "--json").json["jobs"]) == 2


def test_results_refuse_an_unfinished_job_unless_partial(shell: Shell) -> None:
    name = shell.submit("--no-tick")
    refused = shell("results", name, "-o", "out.csv")
    assert refused.code == 1
    assert "0 of 6 rows are final" in refused.err
    assert not Path("out.csv").exists()

    partial = shell("results", name, "-o", "out.csv", "--partial", "--json")
    assert partial.code == 3
    assert partial.json["outcomes"] == {"assigned": 6}
    assert len(Path("out.csv").read_bytes().strip().split(b"\n")) == 7


def test_results_need_a_name_that_is_free(shell: Shell) -> None:
    name = shell.submit("--wait")
    Path("out.csv").write_text("mine", encoding="utf-8")
    refused = shell("results", name, "-o", "out.csv")
    assert (refused.code, Path("out.csv").read_text(encoding="utf-8")) == (2, "mine")
    assert "--force" in refused.err
    assert shell.ok("results", name, "-o", "out.csv", "--force", "--json").json["rows"] == 6
    assert shell("results", name, "--json").code == 2


def test_results_print_the_accuracy_where_the_task_names_a_gold_column(shell: Shell) -> None:
    task = Path("task.yaml")
    task.write_text(task.read_text(encoding="utf-8") + "expected: label\n", encoding="utf-8")
    name = shell.submit("--wait")
    told = shell.ok("results", name, "-o", "out.csv", "--json").json
    assert told["judged"] == 6
    assert told["accuracy"] == told["correct"] / 6
    assert "accuracy: " in shell.ok("results", name).err


def test_cancel_drops_what_was_not_sent_and_results_say_so(shell: Shell) -> None:
    name = shell.submit("--no-tick")
    canceled = shell.ok("cancel", name)
    assert "6 rows not sent yet: dropped" in canceled.err
    done = shell("wait", name)
    assert done.code == 3
    assert shell("results", name, "-o", "out.csv", "--json").json["outcomes"] == {"canceled": 6}
    assert "over already" in shell.ok("cancel", name).err
    assert shell.ok("cancel", name, "--json").json["canceling"] is False


def test_cancel_of_a_batch_that_is_out_collects_what_was_answered(shell: Shell) -> None:
    shell.server.set_speed(1)
    name = shell.submit("--max-batch-requests", 3)
    said = shell.ok("cancel", name)
    assert "2 batches at the provider: asked to stop" in said.err
    assert shell.ok("status", name, "--json").json["jobs"][0]["state"] == "canceling"
    shell.server.set_speed(1_000)
    assert shell("wait", name).code in (0, 3)
    outcomes = shell("results", name, "-o", "out.csv", "--json").json["outcomes"]
    assert sum(outcomes.values()) == 6
    assert set(outcomes) <= {"succeeded", "canceled"}


def test_pause_and_resume(shell: Shell) -> None:
    name = shell.submit("--no-tick")
    assert shell.ok("pause", name, "--json").json["state"] == "paused"
    assert shell.ok("tick").out == ""
    stuck = shell("wait", name)
    assert stuck.code == 6
    assert f"batchctl resume {name}" in stuck.err
    assert "held: the job is paused" in shell.ok("status", name).out
    assert shell.ok("resume", name, "--json").json["state"] == "running"
    assert shell("wait", name).code == 0
    assert "nothing to pause" in shell.ok("pause", name).err
    assert f"{name} is finished" in shell.ok("resume", name).err


def test_case_12_every_row_failed_groups_the_messages_and_exits_3(shell: Shell) -> None:
    shell.server.post_faults([{"kind": "row_status", "status": 400, "share": 1, "message": "invalid temperature"}])
    write_rows(Path("rows.csv"), 9)
    done = shell("submit", "task.yaml", "rows.csv", "--provider", "rehearsal", "-o", "out.csv", "--wait")
    assert done.code == 3
    told = shell("status", "moods-1", "--check")
    assert told.code == 3
    assert "9x errored" in told.out
    assert "invalid temperature" in told.out
    assert "batchctl retry moods-1" in told.out
    [group] = shell.ok("status", "moods-1", "--json").json["outcomes"]
    assert (group["outcome"], group["count"]) == ("errored", 9)
    assert shell("results", "moods-1").code == 3


def test_retry_sends_failed_rows_again_where_they_are_named(shell: Shell) -> None:
    fault = {"kind": "row_status", "status": 400, "share": 1, "nth": 1, "message": "bad"}
    shell.server.post_faults([fault])
    write_rows(Path("rows.csv"), 4)
    assert shell("submit", "task.yaml", "rows.csv", "--provider", "rehearsal", "--wait").code == 3

    default = shell.ok("retry", "moods-1")
    assert "4 errored: batchctl retry moods-1 --where errored" in default.err
    assert shell.ok("status", "--json").json["jobs"][0]["state"] == "finished"

    named = shell.ok("retry", "moods-1", "--where", "errored", "--no-tick", "--json")
    assert named.json["rows"] == 4
    assert shell.ok("wait", "moods-1", "--json").json["jobs"][0]["succeeded"] == 4


def test_a_merge_replaces_no_file_that_somebody_wrote_after_the_submit(shell: Shell) -> None:
    name = shell.submit("-o", "out.csv", "--no-tick")
    Path("out.csv").write_text("mine", encoding="utf-8")
    done = shell("wait", name)
    assert done.code == 1
    assert "written or changed after the submit" in done.err
    assert Path("out.csv").read_text(encoding="utf-8") == "mine"
    Path("out.csv").rename("mine.csv")
    shell.ok("tick")
    merged = Path("out.csv").read_bytes()
    assert merged.startswith(b"text,label,")
    again = shell.submit("-o", "out.csv", "--again", "--force", rows=3)
    assert shell.ok("wait", again).code == 0
    assert Path("out.csv").read_bytes() != merged


def test_retry_of_missing_rows_says_that_they_may_have_been_billed(shell: Shell) -> None:
    shell.server.post_faults([{"kind": "missing_rows", "share": 0.5, "nth": 1}])
    name = "moods-1"
    write_rows(Path("rows.csv"), 4)
    assert shell("submit", "task.yaml", "rows.csv", "--provider", "rehearsal", "--wait").code == 3
    assert shell("results", name, "-o", "out.csv", "--json").json["outcomes"] == {"succeeded": 2, "missing": 2}
    done = shell.ok("retry", name, "--where", "missing")
    assert "may have been answered and billed" in done.err
    assert "2 rows of moods-1 to be sent again" in done.err
    assert shell("wait", name).code == 0


@pytest.mark.parametrize("form", ["moods-1", "1"])
def test_a_job_is_found_by_name_and_by_number(shell: Shell, form: str) -> None:
    shell.submit("--no-tick")
    assert shell.ok("status", form).out.startswith("moods-1: queued")
    assert shell.ok("logs", form).out.count("\n") >= 3


def test_an_unknown_job_names_those_that_come_close(shell: Shell) -> None:
    assert "nor any other" in shell("status", "mods-1").err
    shell.submit("--no-tick")
    for words in (("status", "mods-1"), ("results", "mods-1"), ("cancel", "mods-1"), ("wait", "mods-1")):
        done = shell(*words)
        assert done.code == 2, words
        assert "did you mean moods-1?" in done.err


def test_logs_tell_every_move(shell: Shell) -> None:
    name = shell.submit("--wait")
    text = shell.ok("logs", name).out
    for move in ("planned -> uploading", "ready -> submitting", "submitting -> submitted", "ended -> collected"):
        assert f"b1 {move}" in text
    events = shell.ok("logs", name, "--json").json["events"]
    assert len(events) == text.count("\n")


def test_submit_tick_and_wait_as_json(shell: Shell) -> None:
    write_rows(Path("rows.csv"), 3)
    submitted = shell.ok("submit", "task.yaml", "rows.csv", "--provider", "rehearsal", "--no-tick", "--json").json
    assert (submitted["job"]["job"], submitted["job"]["exit_code"]) == ("moods-1", 4)
    ticked = shell.ok("tick", "--json").json
    assert ticked["done"] == {"upload": 1, "submit": 1}
    assert ticked["next_at"] is not None
    assert shell.ok("wait", "--json").json["jobs"][0]["state"] == "finished"
    assert shell.ok("tick", "--json").json["done"] == {}
