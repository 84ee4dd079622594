"""The promises, shown by the server's own count: nothing lost, nothing sent twice, whatever happens to a create."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.acceptance.conftest import MakeDesk
from tests.acceptance.desk import PROFILE, Desk, numbered, outcomes
from tests.servers import QUICK, RehearsalServer

LOOK_AFTER_S = 120  # the desks' create limit and grace, 5 s of the wall, at 20 s of the server's clock a second


def one_batch(desk: Desk, rows: int = 10, *options: object) -> str:
    """Submit a small table as one batch; returns the job's name."""
    return desk.submit(desk.task(), desk.table(numbered(rows)), *options)


def assert_sent_once(server: RehearsalServer, rows: int) -> None:
    """Each row was sent in exactly one batch, answered once, and never stood in two batches at the same time."""
    found = server.ledger()
    assert (found["requests_received"], found["answered_once"]) == (rows, rows), found
    assert found["sent_after_answered"] == found["max_in_flight_twice"] == 0, found


def test_ten_rows_of_which_nine_are_answered_before_expiry_take_eleven_requests(make_desk: MakeDesk) -> None:
    desk = make_desk(faults=[{"kind": "expire", "nth": 1, "share": 0.9}])
    job = one_batch(desk)
    desk.settle(job, every_s=20_000)
    rows = desk.results(job, codes=(0,))
    assert outcomes(rows) == {"succeeded": 10}
    assert sorted(row["attempts"] for row in rows) == [1] * 9 + [2]
    counted = desk.server.ledger()
    assert (counted["requests_received"], counted["requests_sent"], counted["creates"]) == (11, 11, 2)
    assert counted["answered_once"] == 10


LOST_ANSWERS: list[dict[str, Any]] = [
    {"kind": "drop_after"},
    {"kind": "error_after", "status": 500},
    {"kind": "error_after", "status": 502, "body": "html"},
    {"kind": "error_after", "status": 409},
    {"kind": "error_after", "status": 408, "body": "empty"},
    {"kind": "error_after", "status": 400, "body": "html"},
    {"kind": "error_after", "status": 200},
    {"kind": "hang", "wall_s": 30},
]
"""Created, and no trustworthy answer: a cut connection, the provider's and a proxy's errors, no id, silence."""

NEVER_STORED: list[dict[str, Any]] = [
    {"kind": "drop"},
    {"kind": "error", "status": 500},
    {"kind": "error", "status": 503, "body": "html"},
    {"kind": "hang_before", "wall_s": 30},
]
"""The same, and nothing was created."""


def test_case_26_creates_whose_answers_are_lost_end_in_one_batch_each(make_desk: MakeDesk) -> None:
    faults = [{"op": "create", "nth": nth, **fault} for nth, fault in enumerate(LOST_ANSWERS, start=1)]
    desk = make_desk(faults=faults, profile={"create_limit_s": 1.5})
    rows, batches = 3 * len(LOST_ANSWERS), len(LOST_ANSWERS)
    job = one_batch(desk, rows, "--max-batch-requests", 3)
    assert [batch["state"] for batch in desk.batches(job)] == ["in_doubt"] * batches, desk.events(job)
    desk.settle(job)
    assert desk.server.fired() == [1] * batches
    assert outcomes(desk.results(job)) == {"succeeded": rows}
    assert desk.events(job).count("found again") == batches
    assert desk.server.ledger()["creates"] == batches
    assert_sent_once(desk.server, rows)


@pytest.mark.parametrize("lag_s", [LOOK_AFTER_S / 2, LOOK_AFTER_S + 500], ids=["before", "after"])
def test_case_26_a_lost_create_is_found_though_the_list_lags_until_before_or_after_the_first_look(
    make_desk: MakeDesk, lag_s: float
) -> None:
    faults = [{"kind": "drop_after", "op": "create", "nth": 1}, {"kind": "list_lag", "seconds": lag_s}]
    desk = make_desk(faults=faults)
    job = one_batch(desk)
    desk.server.advance(LOOK_AFTER_S)
    desk.tick()
    assert [batch["state"] for batch in desk.batches(job)] == ["in_doubt" if lag_s > LOOK_AFTER_S else "submitted"]
    desk.settle(job)
    assert outcomes(desk.results(job)) == {"succeeded": 10}
    assert desk.server.ledger()["creates"] == desk.server.ledger()["uploads"] == 1
    assert_sent_once(desk.server, 10)


@pytest.mark.long
def test_a_list_that_lags_longer_than_the_proof_costs_once_more_and_says_so(make_desk: MakeDesk) -> None:
    """Nothing can be known here; what is promised is that both are collected, one answer stays, the waste is told."""
    faults = [{"kind": "drop_after", "op": "create", "nth": 1}, {"kind": "list_lag", "nth": 1, "seconds": 6_000}]
    desk = make_desk(faults=faults, timing=replace(QUICK, validation_s=5, queue_s=7_000, row_s=0.01, cancelling_s=60))
    job = one_batch(desk)
    desk.settle(job)
    assert outcomes(desk.results(job)) == {"succeeded": 10}
    counted = desk.server.ledger()
    assert counted["creates"] == 2
    assert "exists after all" in desk.events(job) and "10 more than once" in desk.events(job)
    assert "cancelled" in counted["batches"], "the less advanced batch was canceled"


def test_creates_that_were_never_stored_are_sent_again_only_after_the_proof(make_desk: MakeDesk) -> None:
    faults = [{"op": "create", "nth": nth, **fault} for nth, fault in enumerate(NEVER_STORED, start=1)]
    desk = make_desk(faults=faults, profile={"create_limit_s": 1.5})
    began, batches = desk.server.now(), len(NEVER_STORED)
    job = one_batch(desk, 10, "--max-batch-requests", 3)
    while desk.server.ledger()["creates"] == 0:
        desk.server.advance(300)
        desk.tick()
        assert desk.server.now() - began < 7_200, desk.events(job)
    assert desk.server.now() - began > 900, "absence is believed after 15 minutes, not sooner"
    desk.settle(job)
    assert outcomes(desk.results(job)) == {"succeeded": 10}
    assert desk.events(job).count("proved by") == batches
    counted = desk.server.ledger()
    calls = counted["calls"]
    assert (counted["creates"], counted["uploads"], calls["delete_file"]) == (batches, 2 * batches, batches)
    assert_sent_once(desk.server, 10)


KEYS = {"sk-the-right-project": "mine", "sk-another-project": "theirs"}


@pytest.fixture
def keyed_desk(make_desk: MakeDesk) -> Callable[..., Desk]:
    """A desk whose key is that of the right project, at a server that knows two."""

    def make(**options: Any) -> Desk:
        env = {"NIGHT_KEY": "sk-the-right-project"}
        return make_desk(profile={"key_env": "NIGHT_KEY"}, env=env, keys=KEYS, **options)

    return make


def test_a_rotated_key_sends_nothing_again_and_asks_for_a_person(keyed_desk: Callable[..., Desk]) -> None:
    desk = keyed_desk(faults=[{"kind": "drop_after", "op": "create", "nth": 1}])
    job = one_batch(desk)
    desk.env["NIGHT_KEY"] = "sk-another-project"
    for _ in range(8):
        desk.server.advance(900)
        desk.tick()
    desk.tick("--strict", codes=(6,))
    assert "needs you" in desk.run("status", job).out
    assert "not visible with this key" in desk.run("logs", job).out
    assert desk.run("wait", job, codes=(6,)).code == 6
    assert desk.server.ledger()["creates"] == 1
    desk.env["NIGHT_KEY"] = "sk-the-right-project"
    desk.server.advance(900)
    desk.settle(job)
    assert outcomes(desk.results(job)) == {"succeeded": 10}
    assert_sent_once(desk.server, 10)


def test_a_rotated_key_does_not_make_batches_gone_that_are_out(keyed_desk: Callable[..., Desk]) -> None:
    desk = keyed_desk(timing=replace(QUICK, queue_s=40_000))
    job = desk.submit(desk.task(), desk.table(numbered(10)), "--max-batch-requests", 5)
    desk.env["NIGHT_KEY"] = "sk-another-project"
    for _ in range(8):
        desk.server.advance(900)
        desk.tick()
    desk.tick("--strict", codes=(6,))
    assert [batch["state"] for batch in desk.batches(job)] == ["submitted", "submitted"]
    desk.env["NIGHT_KEY"] = "sk-the-right-project"
    desk.server.advance(40_000)
    desk.settle(job)
    assert outcomes(desk.results(job)) == {"succeeded": 10}
    assert_sent_once(desk.server, 10)


def test_a_refused_key_pauses_the_account_and_loses_nothing(keyed_desk: Callable[..., Desk]) -> None:
    desk = keyed_desk(timing=replace(QUICK, queue_s=2_000))
    job = one_batch(desk)
    desk.env["NIGHT_KEY"] = "sk-nobody-knows"
    for _ in range(4):
        desk.server.advance(900)
        desk.tick()
    told = desk.tick("--strict", codes=(6,))
    assert "sk-nobody-knows" not in told.err + told.out
    desk.env["NIGHT_KEY"] = "sk-the-right-project"
    desk.server.advance(900)
    desk.settle(job)
    assert outcomes(desk.results(job)) == {"succeeded": 10}
    assert_sent_once(desk.server, 10)


def test_the_same_file_twice_is_refused_with_the_name_of_its_job(desk: Desk) -> None:
    job = one_batch(desk)
    again = desk.run("submit", desk.folder / "task.yaml", desk.folder / "input.csv", "--provider", PROFILE, codes=(2,))
    assert job in again.err and "--again" in again.err
    copy = desk.folder / "copy.csv"
    copy.write_bytes((desk.folder / "input.csv").read_bytes())
    desk.run("submit", desk.folder / "task.yaml", copy, "--provider", PROFILE, codes=(2,))
    desk.settle(job)
    desk.run("submit", desk.folder / "task.yaml", desk.folder / "input.csv", "--provider", PROFILE, codes=(2,))
    assert len(desk.views.jobs()) == 1
    assert_sent_once(desk.server, 10)
    assert desk.submit(desk.folder / "task.yaml", desk.folder / "input.csv", "--again") != job


def test_two_submits_of_the_same_file_at_the_same_instant_make_one_job(desk: Desk) -> None:
    task, table = desk.task(), desk.table(numbered(200))
    desk.run("status")  # so that neither is held up by making the store
    both = [desk.start("submit", task, table, "--provider", PROFILE) for _ in range(2)]
    assert sorted(command.wait(0, 2).code for command in both) == [0, 2]
    (job,) = desk.views.jobs()
    desk.settle(job["name"])
    assert_sent_once(desk.server, 200)


def test_cancel_keeps_what_is_answered_and_retry_sends_only_the_rest_once(make_desk: MakeDesk) -> None:
    desk = make_desk(timing=replace(QUICK, validation_s=5, queue_s=10, row_s=100, finalizing_s=5, cancelling_s=60))
    job = one_batch(desk, 20)
    desk.server.advance(500)
    desk.tick()
    desk.run("cancel", job)
    refused = desk.run("retry", job, "--where", "canceled", codes=(1,))
    assert "still being canceled" in refused.err
    desk.settle(job, every_s=60)
    first = outcomes(desk.results(job))
    assert set(first) == {"succeeded", "canceled"} and sum(first.values()) == 20
    assert first["succeeded"] == desk.server.ledger()["answered"], "what was answered is billed, and kept"
    desk.server.advance(86_400)
    desk.tick()
    assert desk.server.ledger()["creates"] == 1, "rows that the user canceled are not sent again by themselves"

    desk.run("retry", job, "--where", "canceled")
    desk.run("retry", job, "--where", "canceled", codes=(0, 1))
    desk.settle(job, every_s=600)
    desk.run("retry", job, "--where", "canceled", codes=(0, 1))
    desk.tick()
    assert outcomes(desk.results(job)) == {"succeeded": 20}
    counted = desk.server.ledger()
    assert (counted["creates"], counted["requests_received"]) == (2, 20 + first["canceled"])
    assert counted["sent_after_answered"] == counted["max_in_flight_twice"] == 0


def test_cancel_before_anything_was_sent_sends_nothing(make_desk: MakeDesk) -> None:
    desk = make_desk(faults=[{"kind": "rate_limit", "op": "create", "retry_after": 600}])
    job = one_batch(desk)
    desk.run("cancel", job)
    desk.settle(job, every_s=900, ticks=3)
    assert outcomes(desk.results(job)) == {"canceled": 10}
    assert desk.server.ledger()["creates"] == 0


def test_cancel_while_a_create_is_in_doubt_finds_it_first_and_then_cancels_it(make_desk: MakeDesk) -> None:
    faults = [{"kind": "drop_after", "op": "create", "nth": 1}]
    desk = make_desk(faults=faults, timing=replace(QUICK, queue_s=7_000, cancelling_s=60))
    job = one_batch(desk)
    desk.run("cancel", job)
    assert [batch["state"] for batch in desk.batches(job)] == ["in_doubt"]
    desk.settle(job)
    assert outcomes(desk.results(job)) == {"canceled": 10}
    assert desk.server.ledger()["batches"] == {"cancelled": 1}


@pytest.mark.parametrize("seed", range(4))
def test_ctrl_c_in_submit_leaves_a_job_that_tick_completes_or_none(make_desk: MakeDesk, seed: int) -> None:
    desk = make_desk(faults=[{"kind": "slow", "op": "create", "wall_s": 0.1}])
    rng = random.Random(f"ctrl-c/{seed}")
    task, table = desk.task(), desk.table(numbered(200))
    desk.run("status")
    command = desk.start("submit", task, table, "--provider", PROFILE, "--max-batch-requests", 40)
    time.sleep(rng.uniform(0.0, 1.6))
    command.signal(signal.SIGINT)
    code = command.wait(0, 130).code
    jobs = desk.views.jobs()
    if not jobs:
        assert code == 130
        assert desk.server.ledger()["uploads"] == 0, "nothing is sent before the job exists"
        desk.submit(task, table, "--max-batch-requests", 40)
    name = desk.views.jobs()[0]["name"]
    desk.settle(name)
    assert outcomes(desk.results(name)) == {"succeeded": 200}
    assert desk.server.ledger()["creates"] == 5
    assert_sent_once(desk.server, 200)


@pytest.mark.parametrize("seed", range(3))
def test_ctrl_c_in_wait_sends_no_cancel_and_tick_goes_on(make_desk: MakeDesk, seed: int) -> None:
    desk = make_desk(speed=300, timing=replace(QUICK, queue_s=200, row_s=1))
    rng = random.Random(f"wait/{seed}")
    job = desk.submit(desk.task(), desk.table(numbered(100)), "--max-batch-requests", 20, "--no-tick")
    command = desk.start("wait", job)
    time.sleep(rng.uniform(0.2, 2.0))
    command.signal(signal.SIGINT)
    code = command.wait(0, 130).code
    assert code == 130 or desk.job(job)["state"] == "finished"
    desk.settle(job)
    assert outcomes(desk.results(job)) == {"succeeded": 100}
    assert "cancel" not in desk.server.ledger()["calls"]
    assert_sent_once(desk.server, 100)


@pytest.mark.parametrize("apart_s", [0.0, 0.1, 0.4])
def test_case_90_overlapping_ticks_create_each_batch_once(make_desk: MakeDesk, apart_s: float) -> None:
    desk = make_desk(faults=[{"kind": "slow", "op": "create", "wall_s": 0.2}])
    job = desk.submit(desk.task(), desk.table(numbered(60)), "--max-batch-requests", 10, "--no-tick")
    ticks = []
    for _ in range(4):
        ticks.append(desk.start("tick"))
        time.sleep(apart_s)
    for tick in ticks:
        tick.wait(0)
    desk.settle(job)
    assert desk.server.ledger()["creates"] == 6
    assert_sent_once(desk.server, 60)


@pytest.mark.parametrize("revived", [True, False], ids=["continued", "killed"])
def test_case_90_a_tick_stopped_in_create_is_reported_and_not_overridden(make_desk: MakeDesk, revived: bool) -> None:
    desk = make_desk(faults=[{"kind": "slow", "op": "create", "nth": 2, "wall_s": 1.0}])
    job = desk.submit(desk.task(), desk.table(numbered(30)), "--max-batch-requests", 10, "--no-tick")
    first = desk.start("tick")
    _until(lambda: desk.server.ledger()["calls"].get("create") == 2)
    first.signal(signal.SIGSTOP)
    _until(lambda: desk.server.ledger()["creates"] == 2)
    desk.server.advance(1_200)  # far past the create's limit and its grace
    second = desk.tick()
    assert str(first.process.pid) in second.err, "the second tick names the process that holds the lock"
    assert desk.server.ledger()["calls"]["create"] == 2
    first.signal(signal.SIGCONT if revived else signal.SIGKILL)
    first.wait(0 if revived else -signal.SIGKILL)
    desk.settle(job)
    assert outcomes(desk.results(job)) == {"succeeded": 30}
    assert desk.server.ledger()["creates"] == 3
    assert_sent_once(desk.server, 30)


def _until(true: Callable[[], bool], timeout_s: float = 30.0) -> None:
    stop = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < stop, "it did not happen in time"
        time.sleep(0.01)
