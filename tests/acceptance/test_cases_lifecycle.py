"""CASES A, through the command line: how batches end, or do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.acceptance.conftest import MakeDesk
from tests.acceptance.desk import numbered, outcomes
from tests.servers import QUICK

DAY_S = 86_400


def test_case_01_an_overdue_batch_is_late_and_still_collected_once(make_desk: MakeDesk) -> None:
    desk = make_desk(faults=[{"kind": "overdue", "seconds": 2.5 * DAY_S}])
    job = desk.submit(desk.task(), desk.table(numbered(10)))
    desk.server.advance(1.1 * DAY_S)
    desk.tick("--strict", codes=(5,))
    desk.run("status", job, "--check", codes=(5,))
    assert "overdue" in desk.run("status", job).out
    desk.settle(job, every_s=DAY_S / 2)
    assert outcomes(desk.results(job, codes=(0,))) == {"succeeded": 10}
    assert desk.server.ledger()["requests_received"] == 10


@pytest.mark.parametrize("share", [0.7, 0.0], ids=["some answered", "no file at all"])
def test_case_03_an_expired_batch_keeps_its_answers_and_sends_the_rest(make_desk: MakeDesk, share: float) -> None:
    desk = make_desk(faults=[{"kind": "expire", "nth": 1, "share": share}])
    job = desk.submit(desk.task(), desk.table(numbered(10)))
    desk.settle(job, every_s=20_000)
    rows = desk.results(job, codes=(0,))
    answered = round(share * 10)
    assert sorted(row["attempts"] for row in rows) == [1] * answered + [2] * (10 - answered)
    counted = desk.server.ledger()
    assert (counted["answered_once"], counted["unanswered"]) == (10, 10 - answered)
    assert (counted["sent_after_answered"], counted["max_in_flight_twice"]) == (0, 0)


def test_case_04_a_batch_that_somebody_cancels_at_the_provider_is_collected(make_desk: MakeDesk) -> None:
    desk = make_desk(timing=replace(QUICK, queue_s=0, row_s=100))
    job = desk.submit(desk.task(), desk.table(numbered(20)))
    desk.server.advance(600)
    with desk.server.client() as client:
        (batch,) = client.batches.list().data
        client.batches.cancel(batch.id)
    desk.settle(job)
    rows = desk.results(job, codes=(0,))
    again = sum(row["attempts"] == 2 for row in rows)
    counted = desk.server.ledger()
    assert 0 < again < 20 and counted["requests_received"] == 20 + again and counted["answered_once"] == 20


def test_case_05_retry_waits_for_the_cancel_and_a_cancel_of_what_ended_is_no_error(make_desk: MakeDesk) -> None:
    desk = make_desk(timing=replace(QUICK, queue_s=0, row_s=100, cancelling_s=1_500))
    job = desk.submit(desk.task(), desk.table(numbered(20)))
    desk.run("cancel", job)
    for _ in range(3):
        assert "still being canceled" in desk.run("retry", job, codes=(1,)).err
        desk.server.advance(300)
        desk.tick()
    assert desk.server.ledger()["creates"] == 1
    desk.settle(job)
    desk.run("retry", job, "--where", "canceled")
    desk.server.advance(3_000)  # ended at the provider; nobody has asked yet
    desk.run("cancel", job)
    desk.settle(job)
    assert outcomes(desk.results(job, codes=(0,))) == {"succeeded": 20}


def test_case_07_unknown_statuses_are_kept_raw_and_polled_on(make_desk: MakeDesk) -> None:
    raw = ["pre_schedule", "PartiallyCompleted", "JOB_STATE_PARTIALLY_SUCCEEDED", "paused_by_admin"]
    faults = [
        {"kind": "unknown_status", "nth": nth, "raw_status": status, "seconds": 2_000}
        for nth, status in enumerate(raw, start=1)
    ]
    desk = make_desk(faults=faults, timing=replace(QUICK, queue_s=2_500))
    job = desk.submit(desk.task(), desk.table(numbered(40)), "--max-batch-requests", 10)
    desk.server.advance(300)
    told = desk.tick().err
    assert [batch["raw_status"] for batch in desk.batches(job)] == raw
    assert all(status in told for status in raw), "each is warned about"
    assert "succeeded" not in outcomes(desk.results(job, "--partial")), "and none counts as success"
    desk.settle(job)
    assert outcomes(desk.results(job, codes=(0,))) == {"succeeded": 40}


def test_case_09_a_batch_that_is_gone_is_lost_with_its_reason_and_not_sent_again(make_desk: MakeDesk) -> None:
    desk = make_desk(faults=[{"kind": "vanish", "nth": 1, "seconds": 50}])
    job = desk.submit(desk.task(), desk.table(numbered(20)), "--max-batch-requests", 10)
    desk.settle(job)
    rows = desk.results(job, codes=(3,))
    assert outcomes(rows) == {"gone": 10, "succeeded": 10}
    assert "may have been billed" in rows[0]["error"]
    desk.server.advance(DAY_S)
    desk.tick()
    assert desk.server.ledger()["creates"] == 2
    desk.run("retry", job)  # not unless it is named
    assert desk.job(job)["state"] == "finished"


def test_case_10_a_window_that_the_provider_has_not_is_refused_before_the_upload(make_desk: MakeDesk) -> None:
    desk = make_desk(profile={"completion_window": "5m"})
    done = desk.run("submit", desk.task(), desk.table(numbered(3)), "--provider", "night", codes=(1, 2, 3))
    assert "completion_window" in done.err or "window" in done.err
    assert desk.server.ledger()["uploads"] == 0


@pytest.mark.parametrize("file", ["output", "error", "both"])
def test_case_11_results_that_are_gone_are_named_gone_and_the_others_kept(make_desk: MakeDesk, file: str) -> None:
    faults = [{"kind": "files_gone", "file": file}, {"kind": "row_status", "status": 400, "share": 0.4}]
    desk = make_desk(faults=faults)
    job = desk.submit(desk.task(), desk.table(numbered(10)))
    desk.settle(job)
    expected = {"output": {"gone": 6, "errored": 4}, "error": {"succeeded": 6, "gone": 4}, "both": {"gone": 10}}
    assert outcomes(desk.results(job, codes=(3,))) == expected[file]
    assert desk.server.ledger()["requests_received"] == 10
