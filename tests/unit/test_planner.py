"""The planner is pure: what it cuts rows into, and what it decides from a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchctl.engine import planner
from batchctl.engine.planner import Limits, Snapshot, Timing, decide, next_time, partition
from batchctl_store.records import CLOSED, Account, Batch, BatchState, Job, Submission, SubmissionState

NOW = 1_000_000.0
HOUR = 3_600.0


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[int], Limits]:
    most = draw(st.integers(1, 400))
    sizes = draw(st.lists(st.integers(1, most), max_size=120))
    return sizes, Limits(draw(st.integers(1, 40)), draw(st.integers(most, 3_000)), most)


@settings(deadline=None)
@given(tables())
def test_every_row_is_in_exactly_one_batch_in_order_and_no_batch_is_over_a_limit(
    table: tuple[list[int], Limits],
) -> None:
    sizes, limits = table
    counts = partition(sizes, limits)
    assert sum(counts) == len(sizes)
    assert all(count >= 1 for count in counts)
    start = 0
    for count in counts:
        assert count <= limits.max_requests
        assert sum(sizes[start : start + count]) <= limits.max_bytes
        start += count


@settings(deadline=None)
@given(tables())
def test_no_way_to_cut_consecutive_rows_needs_fewer_batches(table: tuple[list[int], Limits]) -> None:
    sizes, limits = table
    assert len(partition(sizes, limits)) == fewest(sizes, limits)


def fewest(sizes: list[int], limits: Limits) -> int:
    """By dynamic programming over all cuts, not by filling."""
    best = [0] + [len(sizes) + 1] * len(sizes)
    for end in range(1, len(sizes) + 1):
        total = 0
        for start in range(end - 1, max(-1, end - 1 - limits.max_requests), -1):
            total += sizes[start]
            if total > limits.max_bytes:
                break
            best[end] = min(best[end], best[start] + 1)
    return best[-1]


@settings(deadline=None)
@given(st.integers(1, 1_000), st.integers(1, 500))
def test_rows_of_one_size_are_spread_evenly(rows: int, most: int) -> None:
    """The last batch may be short by what rounding leaves: less than one row for each of the others."""
    counts = partition([1] * rows, Limits(most, 10**9, 1))
    assert len(set(counts[:-1])) <= 1
    assert 0 <= counts[0] - counts[-1] < max(2, len(counts))


def test_case_40_one_row_over_the_limit_makes_two_halves() -> None:
    assert partition([1] * 50_001, Limits(50_000, 190_000_000, 190_000_000)) == [25_001, 25_000]
    assert partition([1] * 50_000, Limits(50_000, 190_000_000, 190_000_000)) == [50_000]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([190_000_000], [1]),
        ([95_000_000, 95_000_000], [2]),
        ([95_000_000, 95_000_001], [1, 1]),
        ([1_000_000] * 205, [103, 102]),
        ([1] * 3 + [189_999_999] + [1] * 3, [3, 1, 3]),
    ],
)
def test_case_40_bytes_are_counted_as_they_are_sent(sizes: list[int], expected: list[int]) -> None:
    assert partition(sizes, Limits(50_000, 190_000_000, 190_000_000)) == expected


def test_no_rows_are_no_batches() -> None:
    assert partition([], Limits(10, 10, 10)) == []


def job(**values: Any) -> Job:
    base: dict[str, Any] = dict.fromkeys(Job.__dataclass_fields__)
    base |= {
        "id": 1,
        "name": "j-1",
        "rows": 10,
        "profile": "p",
        "account": "acc",
        "final_rows": 0,
        "open_rows": 10,
        "following": 0,
    }
    return Job(**base | {"columns": (), "ready_at": 1.0} | values)


def batch(state: BatchState, *tries: Submission, **values: Any) -> Batch:
    base: dict[str, Any] = {
        "id": 7,
        "job_id": 1,
        "ordinal": 1,
        "profile": "p",
        "account": "acc",
        "state": state,
        "first_row": 0,
        "last_row": 9,
        "requests": 10,
        "bytes": 1_000,
        "created_at": 0.0,
        "updated_at": 0.0,
        "owner": "host/1/abc",
        "submissions": tries,
    }
    return Batch(**base | values)


def attempt(state: SubmissionState, **values: Any) -> Submission:
    base: dict[str, Any] = {"id": 3, "batch_id": 7, "n": 1, "tag": "s-7-1", "owner": "host/1/abc", "created_at": NOW}
    return Submission(**base | {"state": state, "send_deadline": NOW + 120} | values)


def snapshot(
    jobs: list[Job],
    batches: list[Batch],
    accounts: Mapping[str, Account] | None = None,
    live: frozenset[str] = frozenset(),
) -> Snapshot:
    return Snapshot({j.id: j for j in jobs}, batches, accounts or {}, {"p": Timing(settle_s=60, coalesce_s=900)}, live)


def kinds(state: Snapshot, now: float = NOW) -> list[str]:
    return [type(decision).__name__ for decision in decide(state, now)]


@pytest.mark.parametrize(
    ("state", "tries", "expected"),
    [
        (BatchState.PLANNED, (), ["Upload"]),
        (BatchState.READY, (), ["Submit"]),
        (BatchState.UPLOADING, (), ["Recover"]),
        (BatchState.SUBMITTED, (attempt(SubmissionState.ACCEPTED, remote_id="b"),), ["Poll"]),
        (BatchState.ENDED, (attempt(SubmissionState.ACCEPTED, remote_id="b"),), ["Collect"]),
    ],
)
def test_each_open_state_leads_on(state: BatchState, tries: tuple[Submission, ...], expected: list[str]) -> None:
    assert kinds(snapshot([job()], [batch(state, *tries)])) == expected
    later = batch(state, *tries, not_before=NOW + 1)
    assert kinds(snapshot([job()], [later])) == []
    assert next_time(snapshot([job()], [later]), NOW) == NOW + 1


@pytest.mark.parametrize("state", sorted(CLOSED))
def test_a_closed_batch_is_left_alone_unless_a_try_of_it_may_turn_up(state: BatchState) -> None:
    over = job(finished_at=NOW, open_rows=0, final_rows=10)
    assert kinds(snapshot([over], [batch(state, attempt(SubmissionState.DONE))])) == []
    watched = attempt(SubmissionState.ABSENT, watch_until=NOW + HOUR)
    assert kinds(snapshot([over], [batch(state, watched)])) == ["Poll"]
    assert kinds(snapshot([over], [batch(state, watched)]), NOW + 2 * HOUR) == []
    late = attempt(SubmissionState.LATE, remote_id="b")
    assert kinds(snapshot([over], [batch(state, late)])) == ["Poll"]
    assert kinds(snapshot([over], [batch(state, replace(late, ended_at=NOW))])) == ["Collect"]


@pytest.mark.parametrize("state", [BatchState.SUBMITTING, BatchState.IN_DOUBT])
def test_nobody_looks_for_a_create_before_its_deadline_and_the_grace(state: BatchState) -> None:
    one = snapshot([job()], [batch(state, attempt(SubmissionState.OPEN))])
    assert kinds(one, NOW + 179) == []
    assert next_time(one, NOW) == NOW + 180
    assert kinds(one, NOW + 180) == ["Recover"]


@pytest.mark.parametrize("state", [BatchState.UPLOADING, BatchState.SUBMITTING])
def test_what_a_live_owner_does_is_left_alone(state: BatchState) -> None:
    one = batch(state, attempt(SubmissionState.OPEN))
    assert kinds(snapshot([job()], [one], live=frozenset({"host/1/abc"})), NOW + HOUR) == []
    assert kinds(snapshot([job()], [one], live=frozenset({"host/2/def"})), NOW + HOUR) == ["Recover"]


def test_an_account_that_is_paused_gets_nothing_and_is_tried_again_when_due() -> None:
    batches = [batch(BatchState.PLANNED, id=1), batch(BatchState.READY, id=2)]
    out = batch(BatchState.SUBMITTED, attempt(SubmissionState.ACCEPTED, remote_id="b"), id=3)
    paused = {"acc": Account("acc", paused_at=NOW, not_before=NOW + 100)}
    assert kinds(snapshot([job()], [*batches, out], paused)) == ["Poll"], "what is out is still asked about"
    assert kinds(snapshot([job()], batches, paused), NOW + 100) == ["Upload", "Submit"]
    assert kinds(snapshot([job()], batches, {"acc": Account("acc", paused_at=NOW)}), NOW + 1e9) == []


def test_a_paused_job_sends_nothing() -> None:
    batches = [batch(BatchState.PLANNED, id=1), batch(BatchState.READY, id=2)]
    assert kinds(snapshot([job(paused_at=NOW)], batches)) == []


def test_a_job_that_is_not_complete_is_nobody_s_business_yet() -> None:
    assert kinds(snapshot([job(ready_at=None)], [batch(BatchState.PLANNED)])) == []


def test_a_wish_to_cancel_drops_what_is_unsent_stops_what_is_out_and_resolves_doubt_first() -> None:
    wish = job(cancel_requested_at=NOW, open_rows=0)
    out = attempt(SubmissionState.ACCEPTED, remote_id="b")
    assert kinds(snapshot([wish], [batch(BatchState.PLANNED)]))[0] == "Cancel"
    assert kinds(snapshot([wish], [batch(BatchState.READY)]))[0] == "Cancel"
    running = snapshot([job(cancel_requested_at=NOW)], [batch(BatchState.SUBMITTED, out)])
    assert kinds(running) == ["Cancel"]
    told = batch(BatchState.SUBMITTED, replace(out, cancel_sent_at=NOW))
    assert kinds(snapshot([job(cancel_requested_at=NOW)], [told])) == ["Poll"]
    doubt = batch(BatchState.IN_DOUBT, attempt(SubmissionState.OPEN))
    assert kinds(snapshot([job(cancel_requested_at=NOW)], [doubt]), NOW + HOUR) == ["Recover"]
    assert [type(d) for d in decide(snapshot([wish], []), NOW)] == [planner.Cancel], "rows that no batch holds"


def test_results_come_in_before_anything_goes_out() -> None:
    batches = [
        batch(BatchState.READY, id=1),
        batch(BatchState.PLANNED, id=2),
        batch(BatchState.ENDED, attempt(SubmissionState.ACCEPTED, remote_id="c"), id=3),
        batch(BatchState.SUBMITTED, attempt(SubmissionState.ACCEPTED, remote_id="d"), id=4),
        batch(BatchState.UPLOADING, id=5),
    ]
    assert kinds(snapshot([job()], batches)) == ["Recover", "Poll", "Collect", "Upload", "Submit"]


def test_batches_of_one_profile_are_asked_about_together() -> None:
    out = [batch(BatchState.SUBMITTED, attempt(SubmissionState.ACCEPTED, remote_id=f"b{n}"), id=n) for n in range(5)]
    (poll,) = decide(snapshot([job()], out), NOW)
    assert isinstance(poll, planner.Poll)
    assert [one.id for one in poll.batches] == [0, 1, 2, 3, 4]


def test_rows_to_be_sent_again_wait_a_little_for_others() -> None:
    out = batch(BatchState.SUBMITTED, attempt(SubmissionState.ACCEPTED, remote_id="b"), next_poll_at=NOW + 9 * HOUR)
    waiting = job(rows=10, open_rows=5, final_rows=3, replan_at=NOW)
    assert kinds(snapshot([waiting], [out]), NOW + 899) == []
    assert next_time(snapshot([waiting], [out]), NOW) == NOW + 900
    assert kinds(snapshot([waiting], [out]), NOW + 900) == ["Plan"]
    alone = job(rows=10, open_rows=0, final_rows=3, replan_at=NOW + 60)
    assert kinds(snapshot([alone], []), NOW + 59) == []
    assert kinds(snapshot([alone], []), NOW + 60) == ["Plan"], "there is nothing to wait for"


def test_a_job_is_finished_when_every_row_is_final_and_then_merged_once() -> None:
    final = job(open_rows=0, final_rows=10, output_path="out.csv")
    assert kinds(snapshot([final], [])) == ["Finish"]
    finished = replace(final, finished_at=NOW)
    assert kinds(snapshot([finished], [])) == ["Merge"]
    assert kinds(snapshot([replace(finished, merged_at=NOW)], [])) == []
    assert kinds(snapshot([replace(finished, output_path=None)], [])) == []


@settings(deadline=None)
@given(st.lists(st.sampled_from(sorted(BatchState)), max_size=6), st.floats(0, 1e7), st.booleans(), st.booleans())
def test_decide_depends_on_its_arguments_alone(
    states: list[BatchState], now: float, cancel: bool, paused: bool
) -> None:
    batches = [batch(state, attempt(SubmissionState.OPEN), id=n) for n, state in enumerate(states)]
    one = job(cancel_requested_at=NOW if cancel else None, paused_at=NOW if paused else None)
    state = snapshot([one], batches)
    assert decide(state, now) == decide(state, now)
    later = next_time(state, now)
    assert later is None or later > now


@pytest.mark.parametrize("state", sorted(BatchState))
def test_only_batches_that_are_closed_are_cleaned_up_behind(state: BatchState) -> None:
    decisions = planner.cleanups([batch(state, attempt(SubmissionState.DONE))], {}, NOW)
    assert bool(decisions) is (state in CLOSED)


@pytest.mark.parametrize("state", sorted(SubmissionState))
def test_no_file_goes_while_a_try_may_answer_or_turn_up(state: SubmissionState) -> None:
    def cleaned(**values: Any) -> bool:
        tries = attempt(SubmissionState.DONE), attempt(state, n=2, **values)
        return bool(planner.cleanups([batch(BatchState.COLLECTED, *tries)], {}, NOW))

    awaited = state in (SubmissionState.OPEN, SubmissionState.ACCEPTED, SubmissionState.LATE)
    assert cleaned() is not awaited
    assert cleaned(watch_until=NOW) is not awaited
    assert cleaned(watch_until=NOW + 1) is not (awaited or state is SubmissionState.ABSENT)


def test_nothing_is_cleaned_up_behind_while_the_account_is_paused() -> None:
    spent, account = [batch(BatchState.COLLECTED)], Account("acc", paused_at=NOW - 60)
    assert planner.cleanups(spent, {"acc": account}, NOW) == []
    assert planner.cleanups(spent, {"acc": replace(account, not_before=NOW)}, NOW) == [planner.Clean(spent[0])]
