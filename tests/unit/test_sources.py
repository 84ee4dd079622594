"""Rows that take another row's answer, through the store's own door."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batchctl_store.records import Batch, BatchState, Job, Mark, RowResult, Shard, StoreError
from batchctl_store.repository import Repository
from batchctl_store.views import Views
from tests.unit.test_store import NEW, collect, create, ended, path_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Repository]:
    found = Repository(tmp_path / "home" / "store.db")
    yield found
    found.close()


def led(store: Repository, *marks: Mark, rows: int = 10) -> tuple[Job, Batch]:
    """A job of ten rows, of which some follow others, and the batch of the rest."""
    job = create(store)
    store.rows.add(job.id, ((row, 100) for row in range(rows)))
    store.sources.give(job.id, marks, now=1.5)
    sent = sorted(set(range(rows)) - {mark.row for mark in marks})
    store.rows.assign(job, [Shard(sent[0], sent[-1], len(sent), 100 * len(sent))], now=2.0)
    [batch] = store.batches.load(job_id=job.id)
    return store.jobs.get(job.id), batch


def following(*pairs: tuple[int, int]) -> list[Mark]:
    return [Mark(row, 1, leader) for row, leader in pairs]


def states(store: Repository, job: Job) -> list[str]:
    return [row[1] for row in store.rows.merged(job.id)]


def sums(store: Repository, job_id: int) -> None:
    """Rows in = the sum of what became of them, however it is counted."""
    job = store.jobs.get(job_id)
    assert store.rows.tally(job_id) == {
        word: count
        for word, count in store.rows.counted(job_id).items()
        if word not in ("pending", "assigned", "following")
    }
    assert job.rows == job.final_rows + job.open_rows + job.pending_rows + job.following
    assert Views(path_of(store)).jobs(str(job_id))[0]["following"] == job.following


def test_followers_are_counted_and_never_planned(store: Repository) -> None:
    job, batch = led(store, *following((3, 0), (9, 0), (7, 6)))
    assert (job.repeated, job.following, job.pending_rows, job.open_rows) == (3, 3, 0, 7)
    assert store.rows.of_batch(batch) == [0, 1, 2, 4, 5, 6, 8]
    assert list(store.rows.pending(job.id)) == []
    assert list(store.sources.marks(job.id)) == following((3, 0), (7, 6), (9, 0))
    sums(store, job.id)


def test_a_collection_gives_followers_what_their_leader_gets(store: Repository) -> None:
    job, batch = led(store, *following((3, 0), (9, 0), (7, 6), (8, 1)))
    results = [
        RowResult(0, "succeeded", "yes", "stop", 10, 2),
        RowResult(1, "expired"),
        RowResult(6, "errored", error_code="bad", error="400: no"),
    ]
    collect(store, ended(store, batch), *results)
    found = {row[0]: row for row in store.rows.merged(job.id)}
    assert [found[row][1:3] for row in (0, 3, 9)] == [("succeeded", "succeeded")] * 3
    assert [found[row][3:9] for row in (0, 3)] == [(1, 1, "yes", "stop", 10, 2), (0, None, "yes", "stop", 0, 0)]
    assert [found[row][1] for row in (1, 8)] == ["pending", "following"]
    assert found[7][1:5] + found[7][-2:] == ("failed", "errored", 0, None, "bad", "400: no")
    told = [row[0] for row in store.rows.final_of(store.batches.get(batch.id))]
    assert told == [0, 2, 4, 5, 6, 3, 7, 9], "those that follow come behind"
    sums(store, job.id)
    job = store.jobs.get(job.id)
    assert (job.following, job.pending_rows) == (1, 1)
    groups = {(group["outcome"], group["code"]): group["count"] for group in Views(path_of(store)).tally(job.id)}
    assert groups[("errored", "bad")] == 2 and groups[("succeeded", "")] == 3


def test_retry_counts_followers_and_sends_the_leader_alone(store: Repository) -> None:
    job, batch = led(store, *following((3, 0), (9, 0)))
    collect(store, ended(store, batch), RowResult(0, "refused"), RowResult(1, "refused"))
    assert store.rows.retry(job, {"refused"}, now=9.0) == 4
    sums(store, job.id)
    assert [row for row, _, _ in store.rows.pending(job.id)] == [0, 1]
    assert store.jobs.get(job.id).following == 2
    assert store.rows.retry(job, {"refused"}, now=9.5) == 0


def test_a_row_too_large_to_be_sent_fails_with_its_followers_and_stays_so(store: Repository) -> None:
    job = create(store)
    store.rows.add(job.id, ((row, 100) for row in range(10)))
    store.sources.give(job.id, following((1, 0), (2, 0)), now=1.0)
    store.rows.fail_unsent(job, [0], now=2.0, code="too_large", message="too large")
    assert states(store, job)[:4] == ["failed"] * 3 + ["pending"]
    sums(store, job.id)
    assert store.rows.retry(job, {"errored"}, now=3.0) == 0
    sums(store, job.id)


@pytest.mark.parametrize("assigned", [True, False])
def test_followers_are_canceled_with_their_leader(store: Repository, assigned: bool) -> None:
    job, batch = led(store, *following((1, 0)))
    if assigned:
        store.rows.cancel_unsent(batch, now=3.0)
    else:
        store.outcomes.fail_batch(
            ended(store, batch), to=BatchState.GONE, now=3.0, outcome="gone", code="gone", message="-", only=[]
        )
        store.rows.cancel_pending(store.jobs.get(job.id), now=4.0)
    assert states(store, job) == ["canceled"] * 10
    sums(store, job.id)
    assert store.rows.retry(job, {"canceled"}, now=5.0) == 10
    assert states(store, job)[:2] == ["pending", "following"]
    sums(store, job.id)


def answered(store: Repository) -> Job:
    """A job whose rows 0 to 4 have answers, row 1 that of row 0."""
    job, batch = led(store, *following((1, 0)))
    results = [RowResult(row, "succeeded", f"answer {row}", "stop", 10, 2, 5, "m-1") for row in (0, 2, 3)]
    results.append(RowResult(4, "succeeded", "parts", "stop", 10, 2, error_code="in_parts", error="two texts"))
    collect(store, ended(store, batch), *results)
    return store.jobs.get(job.id)


def later(store: Repository, **changes: Any) -> Job:
    job = create(store, replace(NEW, spool="jobs/b", **changes), again=True)
    store.rows.add(job.id, ((row, 100) for row in range(10)))
    return job


def test_an_earlier_answer_is_copied_at_no_cost_and_outlives_its_job(store: Repository) -> None:
    answered(store)
    job = later(store)
    counts = store.sources.give(job.id, [Mark(0, 1, 3), Mark(1, 1, 0), Mark(2, job.id, 5), Mark(9, 1, 4)], now=9.0)
    assert counts == {1: 3, job.id: 1}
    sums(store, job.id)
    with store.sources._db.begin() as connection:
        for table in ("result", "request"):
            connection.exec_driver_sql(f"DELETE FROM {table} WHERE job_id = 1")
    found = list(store.rows.merged(job.id))
    assert found[0] == (0, "succeeded", "succeeded", 0, None, "answer 3", "stop", 0, 0, 0, "m-1", None, None)
    assert found[9][5:] == ("parts", "stop", 0, 0, 0, None, "in_parts", "two texts")
    assert (store.jobs.get(job.id).reused, store.jobs.get(job.id).pending_rows) == (3, 6)
    told = [event.text for event in store.jobs.events(job.id)]
    assert "3 rows have the answer of the same request in job reviews-1: not sent" in told


def test_only_rows_with_an_answer_of_their_own_are_usable(store: Repository) -> None:
    answered(store)
    assert list(store.sources.usable(1)) == [(0, True), (2, True), (3, True), (4, True)]
    job = later(store)
    store.sources.give(job.id, [Mark(0, 1, 3), Mark(2, job.id, 1)], now=9.0)
    assert dict(store.sources.usable(job.id)) == {0: True} | dict.fromkeys(range(1, 10), False)


@pytest.mark.parametrize("mark", [Mark(0, 1, 5), Mark(0, 1, 99), Mark(0, 7, 0), Mark(99, 1, 0)])
def test_an_answer_that_is_not_there_is_refused_whole(store: Repository, mark: Mark) -> None:
    answered(store)
    job = later(store)
    with pytest.raises(StoreError, match="changed meanwhile"):
        store.sources.give(job.id, [Mark(1, 1, 0), mark], now=9.0)
    assert states(store, job) == ["pending"] * 10
    sums(store, job.id)
