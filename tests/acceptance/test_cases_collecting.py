"""CASES B, 55 to 57, through the command line: what comes back, and to which row it belongs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.conftest import MakeDesk
from tests.acceptance.desk import Desk, numbered, outcomes


def run(make_desk: MakeDesk, *faults: dict[str, Any], rows: int = 20, every_s: float = 300) -> tuple[Desk, str]:
    """A job of one batch that met these faults, to its end."""
    desk = make_desk(faults=list(faults))
    job = desk.submit(desk.task(), desk.table(numbered(rows)))
    desk.settle(job, every_s=every_s)
    return desk, job


def answers_fit(rows: list[dict[str, Any]]) -> bool:
    """Each answer is that to its own row: the rehearsal's answers quote the prompt."""
    return all(row["answer"].endswith(f": {row['text']}") for row in rows if row["outcome"] == "succeeded")


def test_case_12_every_row_failed_is_no_success_and_is_not_tried_again(make_desk: MakeDesk) -> None:
    fault = {
        "kind": "row_status",
        "status": 400,
        "share": 1.0,
        "message": "invalid temperature",
        "param": "temperature",
    }
    desk, job = run(make_desk, fault, rows=9)
    assert outcomes(desk.results(job, codes=(3,))) == {"errored": 9}
    assert "9x errored" in desk.run("status", job).out and "invalid temperature" in desk.run("status", job).out
    desk.tick()
    assert desk.server.ledger()["creates"] == 1


def test_case_13_answers_errors_and_what_was_never_answered_add_up(make_desk: MakeDesk) -> None:
    desk, job = run(
        make_desk,
        {"kind": "row_status", "status": 400, "share": 0.2},
        {"kind": "missing_rows", "share": 0.15},
        {"kind": "expire", "share": 0.8, "nth": 1},
        every_s=20_000,
    )
    rows = desk.results(job, codes=(3,))
    found = outcomes(rows)
    assert [row["id"] for row in rows] == [row["id"] for row in numbered(20)]
    assert sum(found.values()) == 20 and found["missing"] >= 1 and found["errored"] >= 1
    assert "20 rows" in desk.run("results", job, "-o", desk.folder / "again.csv", codes=(3,)).err
    assert answers_fit(rows) and all(row["error"] for row in rows if row["outcome"] != "succeeded")


@pytest.mark.parametrize("in_output", [True, False], ids=["output file", "error file"])
def test_case_15_an_http_error_in_a_line_is_never_an_answer(make_desk: MakeDesk, in_output: bool) -> None:
    fault = {"kind": "row_status", "share": 0.25, "in_output": in_output, "nth": 1}
    desk, job = run(make_desk, {**fault, "status": 400, "code": "context_length_exceeded"})
    failed = [row for row in desk.results(job, codes=(3,)) if row["outcome"] != "succeeded"]
    assert len(failed) == 5
    assert all(row["outcome"] == "errored" and row["answer"] is None for row in failed)
    assert all("context_length_exceeded" in row["error"] for row in failed)
    assert desk.server.ledger()["creates"] == 1, "what would fail the same way is not sent again"


@pytest.mark.parametrize("status", [429, 500, 0])
def test_case_15_what_failed_for_the_moment_is_sent_again(make_desk: MakeDesk, status: int) -> None:
    desk, job = run(make_desk, {"kind": "row_status", "share": 0.25, "status": status, "nth": 1})
    rows = desk.results(job, codes=(0,))
    assert sum(row["attempts"] == 2 for row in rows) == 5
    assert desk.server.ledger()["requests_received"] == 25


def test_case_16_bad_lines_are_kept_aside_and_the_others_merged(make_desk: MakeDesk) -> None:
    desk, job = run(make_desk, {"kind": "malformed_lines", "share": 0.4})
    rows = desk.results(job, codes=(3,))
    assert outcomes(rows) == {"succeeded": 12, "missing": 8} and answers_fit(rows)
    assert "8 result lines name no row" in "".join(log.read_text() for log in (desk.folder / "log").glob("*.err"))
    kept = list((desk.home / "spool").rglob("quarantine/*"))
    assert len(kept) == 1, "with their line numbers, in a file of their own"


def test_case_17_a_batch_that_completed_says_nothing_of_its_rows(make_desk: MakeDesk) -> None:
    desk, job = run(make_desk, {"kind": "row_status", "status": 422, "share": 1.0})
    assert desk.server.ledger()["batches"] == {"completed": 1}
    assert outcomes(desk.results(job, codes=(3,))) == {"errored": 20}
    desk.run("status", job, "--check", codes=(3,))


@pytest.mark.parametrize("at_line_end", [True, False], ids=["at a line end", "in a line"])
def test_case_20_downloads_cut_short_are_fetched_again(make_desk: MakeDesk, at_line_end: bool) -> None:
    cut = {"kind": "truncate", "share": 0.5, "at_line_end": at_line_end}
    lengths = enumerate(("announced", "chunked", "none"), start=1)
    desk = make_desk(
        faults=[*({**cut, "nth": nth, "length": length} for nth, length in lengths), {"kind": "null_counts"}]
    )
    job = desk.submit(desk.task(), desk.table(numbered(30)), "--max-batch-requests", 10)
    desk.settle(job)
    rows = desk.results(job, codes=(0,))
    assert outcomes(rows) == {"succeeded": 30} and answers_fit(rows)
    assert desk.server.ledger()["calls"]["content"] == 6
    assert desk.server.ledger()["creates"] == 3


def test_case_22_a_refused_file_names_the_users_own_line_and_sends_the_others(make_desk: MakeDesk) -> None:
    fault = {"kind": "fail", "nth": 1, "code": "invalid_json_line", "message": "This line is not parseable", "line": 7}
    desk, job = run(make_desk, fault)
    rows = desk.results(job, codes=(3,))
    assert [row["id"] for row in rows if row["outcome"] != "succeeded"] == ["0007"]
    assert "invalid_json_line" in rows[6]["error"] and "input.csv, line 8" in rows[6]["error"]
    counted = desk.server.ledger()
    assert (counted["creates"], counted["answered_once"]) == (2, 19)


def test_case_22_a_refused_file_without_a_line_fails_its_rows_with_the_reason(make_desk: MakeDesk) -> None:
    desk, job = run(make_desk, {"kind": "fail", "nth": 1, "code": "model_mismatch", "message": "Several models"})
    rows = desk.results(job, codes=(3,))
    assert outcomes(rows) == {"errored": 20}
    assert all("model_mismatch" in row["error"] and "Several models" in row["error"] for row in rows)
    assert desk.server.ledger()["requests_sent"] == 0
    desk.run("retry", job, "--where", "errored")  # nothing ran, so it is safe to send once it is mended
    desk.settle(job)
    assert outcomes(desk.results(job, codes=(0,))) == {"succeeded": 20}


def test_case_56_results_join_on_the_id_and_never_on_their_place(make_desk: MakeDesk) -> None:
    desk, job = run(
        make_desk,
        {"kind": "malformed_lines", "share": 0.05, "form": "no_custom_id"},
        {"kind": "duplicate_rows", "share": 0.2},
        rows=100,
    )
    rows = desk.results(job, codes=(3,))
    assert [row["id"] for row in rows] == [row["id"] for row in numbered(100)]
    assert outcomes(rows) == {"succeeded": 95, "missing": 5} and answers_fit(rows)


def test_case_57_the_users_ids_may_repeat_and_differ_by_anything(desk: Desk) -> None:
    ids: list[Any] = ["1", 1, "1", "1 ", "A", "a", "é", "x" * 65, "", "doc/1:2.txt"]
    rows = [{"id": name, "text": f"text {number}"} for number, name in enumerate(ids)]
    rows += [rows[0]]
    job = desk.submit(desk.task(), desk.table(rows, "input.jsonl"), "--max-batch-requests", 4)
    desk.settle(job)
    merged = desk.results(job, codes=(0,))
    assert [{"id": row["id"], "text": row["text"]} for row in merged] == rows
    assert [type(row["id"]) for row in merged] == [type(row["id"]) for row in rows]
    assert answers_fit(merged) and desk.server.ledger()["requests_received"] == 10  # one text is there twice


def test_case_93_exit_codes_tell_a_partial_success_from_a_whole_one(make_desk: MakeDesk) -> None:
    desk = make_desk(faults=[{"kind": "row_status", "status": 400, "share": 0.01, "nth": 1}])
    desk.run("status", "--check")
    desk.tick("--strict")  # nothing to do
    job = desk.submit(desk.task(), desk.table(numbered(100)))
    desk.run("status", job, "--check", codes=(4,))
    desk.tick("--strict", codes=(4,))
    desk.server.advance(300)
    desk.tick("--strict", codes=(3,))
    assert outcomes(desk.results(job, codes=(3,))) == {"succeeded": 99, "errored": 1}
    (found,) = desk.run("status", job, "--json").json()["jobs"]
    assert (found["exit_code"], found["succeeded"], found["failed"]) == (3, 99, 1)
    desk.run("wait", job, codes=(3,))
