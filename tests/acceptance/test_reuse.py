"""Requests that are not sent twice, through the command line: what was sent is what the server's ledger says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.shell import TASK, Shell
from tests.acceptance.test_cli_kinds import add_profile, rows_of

TO = ("--provider", "rehearsal")
TEXTS = ["fine", "poor", "fine", "fair"]


def write(name: str, texts: list[str], **more: Any) -> str:
    lines = [json.dumps({"id": number, "text": text, **more}) for number, text in enumerate(texts)]
    Path(name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return name


def sent(shell: Shell) -> int:
    return int(shell.server.ledger()["requests_sent"])


@pytest.fixture
def answered(shell: Shell) -> Shell:
    """One job with its answers."""
    shell.ok("submit", "task.yaml", write("rows.jsonl", TEXTS), *TO, "-o", "first.jsonl", "--wait")
    assert sent(shell) == 3
    return shell


def reused(shell: Shell, *words: object, task: str = "task.yaml", name: str = "rows.jsonl") -> int:
    found = shell("submit", task, name, *(words or TO), "--reuse", "--no-tick", "--json", "--force", "-o", "x.jsonl")
    assert found.code == 0, found
    return int(found.json["job"]["reused"])


def test_rows_that_ask_the_same_are_counted_everywhere_and_sent_once(answered: Shell) -> None:
    for command, others in (("validate", ()), ("validate", TO), ("estimate", TO)):
        found = answered.ok(command, "task.yaml", "rows.jsonl", *others, "--json").json
        assert (found["rows"], found["repeated"]) == (4, 1)
    one = answered.ok("estimate", "task.yaml", "rows.jsonl", *TO, "--json").json
    each = answered.ok("estimate", "task.yaml", "rows.jsonl", *TO, "--json", "--no-dedupe").json
    assert (one["requests"], each["requests"]) == (3, 4)
    assert one["input_tokens"] < each["input_tokens"] and one["bytes"] < each["bytes"]
    rows = rows_of("first.jsonl")
    assert [row["text"] for row in rows] == TEXTS
    assert rows[2] == {**rows[0], "id": 2, "attempts": 0, "input_tokens": 0, "output_tokens": 0, "batch": None}
    accounting = answered.ok("results", "moods-1", "-o", "again.jsonl", "--json").json
    assert accounting["outcomes"] == {"succeeded": 4}
    assert accounting["input_tokens"] == sum(rows[number]["input_tokens"] for number in (0, 1, 3))
    [job] = answered.ok("status", "moods-1", "--json").json["jobs"]
    assert (job["rows"], job["repeated"], job["reused"], job["succeeded"]) == (4, 1, 0, 4)


def test_in_parquet_and_csv_the_counts_are_the_same(answered: Shell) -> None:
    import csv

    pq = pytest.importorskip("pyarrow.parquet")
    answered.ok("results", "moods-1", "-o", "out.parquet")
    answered.ok("results", "moods-1", "-o", "out.csv")
    assert pq.read_table("out.parquet").column("attempts").to_pylist() == [1, 1, 0, 1]
    with Path("out.csv").open(encoding="utf-8", newline="") as file:
        assert [row["batch"] for row in csv.DictReader(file)] == ["b1", "b1", "", "b1"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("model: small", "model: gpt-x", "model"),
        ("good or bad?", "good or bad ?", "prompt"),
        ("[good, bad]", "[bad, good]", "output"),
        ("[good, bad]", "[good, bad, fair]", "output"),
        ("max_output_tokens: 5", "max_output_tokens: 6", "max_output_tokens"),
        ("max_output_tokens: 5", "max_output_tokens: 5\nparams: {temperature: 0}", "params"),
        ("max_output_tokens: 5", "max_output_tokens: 5\nprovider_params: {seed: 1}", "provider_params"),
        ("max_output_tokens: 5", "max_output_tokens: 5\nsystem: Be brief.", "system"),
        ("model: small", "kind: responses\nmodel: small", "kind"),
    ],
)
def test_case_34_nothing_is_reused_across_a_change_that_may_alter_the_answer(
    answered: Shell, old: str, new: str, told: str
) -> None:
    assert old in TASK
    Path("changed.yaml").write_text(TASK.replace(old, new), encoding="utf-8")
    done = answered.ok("submit", "changed.yaml", "rows.jsonl", *TO, "--reuse", "--no-tick")
    assert f"nothing of job moods-1 is reused: other {told}\n" in done.err
    assert answered.ok("status", "moods-2", "--json").json["jobs"][0]["reused"] == 0


def test_nothing_is_reused_from_another_address(answered: Shell) -> None:
    add_profile(answered, "elsewhere", f'base_url = "{answered.server.base_url.replace("127.0.0.1", "localhost")}"')
    assert reused(answered, "--provider", "elsewhere") == 0
    add_profile(answered, "renamed", f'base_url = "{answered.server.base_url}"\naccount = "other"')
    assert reused(answered, "--provider", "renamed") == 4


def test_case_34_what_alters_no_request_alters_nothing(answered: Shell) -> None:
    Path("named.yaml").write_text(TASK.replace("moods", "tempers") + "expected: gold\n", encoding="utf-8")
    assert reused(answered, task="named.yaml", name=write("other.jsonl", TEXTS[::-1], gold="good")) == 4


def test_case_34_new_rows_alone_are_sent_and_the_log_says_why(answered: Shell) -> None:
    write("more.jsonl", [*TEXTS, "new", "new"])
    done = answered.ok("submit", "task.yaml", "more.jsonl", *TO, "-o", "more.out.jsonl", "--reuse", "--wait")
    assert "answered by the same request in job moods-1: 4 rows, not sent again" in done.err
    assert "the same as an earlier row asks: 1 row, sent once" in done.err
    assert sent(answered) == 4
    rows = rows_of("more.out.jsonl")
    assert [row["label"] for row in rows[:4]] == [row["label"] for row in rows_of("first.jsonl")]
    assert [row["attempts"] for row in rows] == [0, 0, 0, 0, 1, 0]
    assert [row["outcome"] for row in rows] == ["succeeded"] * 6
    logs = answered.ok("logs", "moods-2").out
    assert "4 rows have the answer of the same request in job moods-1: not sent" in logs
    assert "1 rows ask the same as an earlier row and get its answer: sent once" in logs


def test_the_same_submit_with_reuse_is_over_at_once(answered: Shell) -> None:
    again = ("submit", "task.yaml", "rows.jsonl", *TO, "-o", "again.jsonl")
    refused = answered(*again)
    assert refused.code == 2 and "already job moods-1" in refused.err and "--reuse" in refused.err
    assert answered.ok(*again, "--reuse", "--json").json["job"]["state"] == "finished"
    assert sent(answered) == 3
    assert [row["label"] for row in rows_of("again.jsonl")] == [row["label"] for row in rows_of("first.jsonl")]


def test_an_open_job_is_named_and_nothing_is_stored(shell: Shell) -> None:
    shell.ok("submit", "task.yaml", write("rows.jsonl", TEXTS), *TO, "--no-tick")
    for name, told in (
        ("rows.jsonl", "already job moods-1, which is not over"),
        ("b.jsonl", "job moods-1 asks 4 rows"),
    ):
        write("b.jsonl", [*TEXTS, "new"])
        done = shell("submit", "task.yaml", name, *TO, "--reuse")
        assert done.code == 2 and told in done.err and "batchctl wait moods-1" in done.err
    assert len(shell.ok("status", "--json").json["jobs"]) == 1
    done = shell.ok("submit", "task.yaml", "b.jsonl", *TO, "--no-tick")
    assert "job moods-1, which is not over, asks 4 rows of these as well" in done.err


def test_ready_made_requests_are_sent_once_and_reused(shell: Shell) -> None:
    def line(name: str, text: str) -> str:
        body = {"model": "rehearsal", "messages": [{"role": "user", "content": text}]}
        return json.dumps({"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body})

    Path("a.jsonl").write_text("\n".join([line("1", "x"), line("2", "y"), line("3", "x")]), encoding="utf-8")
    Path("b.jsonl").write_text("\n".join([line("9", "y"), line("8", "z")]), encoding="utf-8")
    shell.ok("submit", "--requests", "a.jsonl", *TO, "-o", "a.out.jsonl", "--wait")
    assert sent(shell) == 2
    shell.ok("submit", "--requests", "b.jsonl", *TO, "-o", "b.out.jsonl", "--reuse", "--wait")
    assert sent(shell) == 3
    rows = {row["custom_id"]: row for path in ("a.out.jsonl", "b.out.jsonl") for row in rows_of(path)}
    assert rows["1"]["answer"] == rows["3"]["answer"] and rows["2"]["answer"] == rows["9"]["answer"]
    assert {row["outcome"] for row in rows.values()} == {"succeeded"}


def test_show_says_whose_answer_a_row_has(answered: Shell) -> None:
    write("more.jsonl", [*TEXTS, "new", "new"])
    answered.ok("submit", "task.yaml", "more.jsonl", *TO, "-o", "more.out.jsonl", "--reuse", "--wait")
    found = answered.ok("show", "moods-1", "3", "--json").json
    assert (found["source_job"], found["source_row"], found["attempts"]) == ("moods-1", 1, [])
    assert found["answer"] == answered.ok("show", "moods-1", "1", "--json").json["answer"] is not None
    assert answered.ok("show", "moods-1", "1", "--json").json["source_job"] is None
    assert "none: it has the answer of row 1, which asks the same" in answered.ok("show", "moods-1", "3").out
    told = answered.ok("show", "moods-2", "4").out
    assert "none: it has the answer of row 4 of job moods-1, which asks the same" in told and "not sent itself" in told


def test_rows_are_followed_with_those_that_ask_the_same(answered: Shell) -> None:
    rows = answered.ok("results", "moods-1", "--follow").out.split("\n")[:-1]
    assert [json.loads(row)["id"] for row in rows] == [0, 1, 2, 3]
    lines = answered.ok("results", "moods-1", "--format", "openai", "-o", "lines.jsonl")
    assert lines.code == 0 and len(rows_of("lines.jsonl")) == 4


def test_python_dedupes_and_reuses(answered: Shell) -> None:
    import batchctl.api as batchctl

    name = batchctl.submit("task.yaml", "rows.jsonl", provider="rehearsal", reuse=True)
    assert name == "moods-2" and batchctl.status(name).reused == 4
    name = batchctl.submit("task.yaml", "rows.jsonl", provider="rehearsal", dedupe=False, again=True, tick=False)
    assert batchctl.status(name).repeated == 0


def test_answers_are_reused_after_gc_and_outlive_their_job(answered: Shell) -> None:
    answered.ok("gc", "--older-than", "0s")
    answered.ok("submit", "task.yaml", "rows.jsonl", *TO, "-o", "again.jsonl", "--reuse")
    answered.ok("gc", "--forget", "moods-1", "--yes")
    assert [row["label"] for row in rows_of("again.jsonl")] == [row["label"] for row in rows_of("first.jsonl")]
    answered.ok("results", "moods-2", "-o", "later.jsonl")
    assert rows_of("later.jsonl") == rows_of("again.jsonl")
    assert "which was forgotten" in answered.ok("show", "moods-2", "1").out
    assert reused(answered) == 4
    assert sent(answered) == 3
