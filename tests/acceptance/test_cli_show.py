"""`batchctl show`: one row with its request, its answer and each attempt."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.shell import Shell


def jobs_folder(shell: Shell) -> Path:
    return Path(shell.environ["BATCHCTL_HOME"]) / "spool" / "jobs"


def shown(shell: Shell, *words: object) -> dict[str, Any]:
    return shell.ok("show", *words, "--json").json


def test_a_row_is_shown_as_it_was_sent_and_answered(shell: Shell) -> None:
    name = shell.submit("--wait")
    view = shown(shell, name, 3)
    assert (view["job"], view["number"], view["outcome"]) == (name, 3, "succeeded")
    assert view["row"] == {"text": "row number 2", "label": "good"}
    assert view["request"]["messages"] == [{"role": "user", "content": "Is this good or bad? row number 2"}]
    assert view["answer"] in ("good", "bad") and view["text"] == view["answer"]
    assert view["input_tokens"] > 0 and view["cost"] is None
    [attempt] = view["attempts"]
    assert (attempt["batch"], attempt["outcome"]) == ("b1", "succeeded")
    assert attempt["custom_id"].startswith(f"{attempt['submission']}-") and attempt["custom_id"].endswith("2")
    assert attempt["remote_id"].startswith("batch_")
    assert attempt["sent_at"] < attempt["ended_at"]

    text = shell.ok("show", name, 3).out
    for part in ("row 3: succeeded", "Is this good or bad? row number 2", f"\n  {view['answer']}\n", "b1 succeeded"):
        assert part in text
    assert "no price is known" in text
    assert all(len(line) <= 80 for line in text.split("\n"))


def test_each_attempt_of_a_row_that_was_sent_again(shell: Shell) -> None:
    shell.server.post_faults([{"kind": "row_status", "status": 503, "share": 1, "nth": 1, "message": "busy"}])
    name = shell.submit("--wait", rows=1)
    view = shown(shell, name, 1)
    assert [(one["batch"], one["outcome"], one["error"]) for one in view["attempts"]] == [
        ("b1", "errored_transient", "busy"),
        ("b2", "succeeded", None),
    ]
    assert len({one["custom_id"] for one in view["attempts"]}) == 2
    assert shell.ok("show", name, 1).out.count("sent 20") == 2


def test_half_an_answer_and_a_failure_are_shown_with_their_reason(shell: Shell) -> None:
    shell.server.post_faults([{"kind": "row_status", "status": 400, "share": 1, "message": "bad \x1b[31m temperature"}])
    name = shell.submit(rows=1)
    assert shell("wait", name).code == 3
    text = shell.ok("show", name, 1).out
    assert "row 1: errored" in text
    assert "bad \\x1b[31m temperature" in text and "\x1b" not in text
    assert "answer\n  none\n" in text
    assert "no tokens were counted" in text


def test_a_row_before_it_is_sent_while_it_is_out_and_one_that_never_was(shell: Shell) -> None:
    shell.server.set_speed(1)
    name = shell.submit("--no-tick", rows=2)
    assert "not sent yet\n  [user]" in shell.ok("show", name, 1).out
    assert shown(shell, name, 1)["attempts"][0]["sent_at"] is None
    shell.ok("tick")
    [attempt] = shown(shell, name, 1)["attempts"]
    assert (attempt["outcome"], attempt["ended_at"]) == (None, None)
    assert "b1 no result yet: sent 20" in shell.ok("show", name, 1).out
    other = shell.submit("--again", "--no-tick", rows=2)
    shell.ok("cancel", other)
    assert shown(shell, other, 2)["outcome"] in ("canceled", "assigned")


def test_a_row_is_found_by_a_condition(shell: Shell) -> None:
    name = shell.submit("--wait")
    assert shown(shell, name, "--where", "text=row number 4")["number"] == 5
    assert shown(shell, name, "--where", "label=good", "--where", "text~4")["number"] == 5
    for words, said in (
        (("--where", "text=x"), "no row of moods-1 is like that"),
        (("--where", "label=good"), "1, 2, 3, 4, 5 and more"),
        (("--where", "textt=x"), "did you mean text?"),
        ((), "name a row: its number, or --where"),
        ((1, "--where", "text=x"), "name a row: its number, or --where"),
        ((7,), "its rows are 1 to 6"),
        ((0,), "0 is not in the range x>=1"),
    ):
        done = shell("show", name, *words)
        assert (done.code, said in done.err) == (2, True), done


def test_what_gc_let_go_is_said_to_be_gone(shell: Shell) -> None:
    name = shell.submit("--wait")
    [folder] = jobs_folder(shell).iterdir()
    (folder / "bodies").unlink()
    shutil.rmtree(folder / "results")
    assert shown(shell, name, 1)["request"] is None
    text = shell.ok("show", name, 1).out
    assert "the request is not kept any more" in text
    assert "b1 succeeded" in text


def test_a_vector_is_shown_by_its_length(shell: Shell) -> None:
    Path("embed.yaml").write_text('model: small\nkind: embedding\nprompt: "{{ text }}"\n', encoding="utf-8")
    Path("rows.jsonl").write_text(json.dumps({"text": "a"}) + "\n", encoding="utf-8")
    name = shell.ok("submit", "embed.yaml", "rows.jsonl", "--provider", "rehearsal", "--wait").out.strip()
    view = shown(shell, name, 1)
    assert len(view["answer"]) > 4
    text = shell.ok("show", name, 1).out
    assert f"{len(view['answer']):,} numbers: " in text and "input: a" in text
    assert all(len(line) <= 80 for line in text.split("\n"))


@pytest.mark.parametrize("column", ["id", "my column"])
def test_a_long_row_is_cut_to_the_terminal_and_whole_in_json(shell: Shell, column: str) -> None:
    long = "word " * 100 + "end"
    Path("rows.jsonl").write_text(json.dumps({column: long, "text": long}) + "\n", encoding="utf-8")
    name = shell.ok("submit", "task.yaml", "rows.jsonl", "--provider", "rehearsal", "--wait").out.strip()
    text = shell.ok("show", name, "--where", f'"{column}"~END').out
    assert all(len(line) <= 80 for line in text.split("\n"))
    assert text.count("word end") == 1, "the prompt is wrapped, the cells are cut"
    assert shown(shell, name, 1)["row"][column] == long
