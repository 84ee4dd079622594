"""What the store lets go: which jobs are at rest, which rows a retry may send, what forgetting leaves behind."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batchctl_store.records import BatchState, IllegalMove, Job, RowResult, Shard, SubmissionState
from batchctl_store.repository import Repository
from tests.unit.test_store import NEW, collect, create, ended, planned

NOW = 100.0
MERGED = {"finished_at": 10.0, "merged_at": 20.0}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Repository]:
    found = Repository(tmp_path / "home" / "store.db")
    yield found
    found.close()


def over(store: Repository, **values: Any) -> Job:
    """A job of ten answered rows in one batch, over."""
    job, (batch,) = planned(store, shards=1)
    collect(store, ended(store, batch), *(RowResult(row, "succeeded", "yes") for row in range(10)))
    store.jobs.update(job.id, now=10.0, event="over", **{"finished_at": 10.0, **values})
    return store.jobs.get(job.id)


def tables(store: Repository) -> dict[str, int]:
    """Rows of each table that holds anything of a job."""
    names = ("job", "batch", "submission", "request", "result", "tally")
    with closing(sqlite3.connect(store.batches._db.path)) as db:
        return {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}


def at_rest(store: Repository, before: float = NOW) -> list[int]:
    return [job.id for job in store.keeping.at_rest(before=before, now=NOW)]


def test_a_job_is_at_rest_from_its_merge_on_or_from_its_end_without_one(store: Repository) -> None:
    over(store)
    assert (at_rest(store, before=9.9), at_rest(store, before=10.0)) == ([], [1])
    store.jobs.update(1, now=1.0, event="", output_path="/out.csv")
    assert at_rest(store) == []
    store.jobs.update(1, now=1.0, event="", merged_at=20.0)
    assert (at_rest(store, before=19.9), at_rest(store, before=20.0)) == ([], [1])
    store.jobs.update(1, now=1.0, event="", finished_at=None)
    assert at_rest(store) == []


@pytest.mark.parametrize("state", sorted(SubmissionState))
@pytest.mark.parametrize("watch_until", [None, NOW, NOW + 1])
def test_nothing_of_a_job_goes_while_a_try_may_answer_or_turn_up(
    store: Repository, state: SubmissionState, watch_until: float | None
) -> None:
    job = over(store, output_path="/out.csv", **MERGED)
    (batch,) = store.batches.load()
    store.batches.note_submission(batch.submissions[0], state=state, watch_until=watch_until)
    awaited = state in (SubmissionState.OPEN, SubmissionState.ACCEPTED, SubmissionState.LATE)
    awaited = awaited or (state is SubmissionState.ABSENT and watch_until == NOW + 1)
    assert at_rest(store) == ([] if awaited else [job.id])
    assert len(store.keeping.spent("openai", now=NOW, limit=9)) == (not awaited)
    before = tables(store)
    if awaited:
        with pytest.raises(IllegalMove, match="may still answer"):
            store.keeping.forget(job, now=NOW)
        assert tables(store) == before
    else:
        store.keeping.forget(job, now=NOW)
        assert set(tables(store).values()) == {0}


def test_a_forgotten_jobs_number_is_not_given_to_another(store: Repository) -> None:
    create(store, replace(NEW, stem="a", input_hash="a"))
    other = create(store, replace(NEW, stem="b", input_hash="b"))
    store.jobs.update(other.id, now=1.0, event="", finished_at=10.0)
    store.keeping.forget(store.jobs.get(other.id), now=NOW)
    assert create(store, replace(NEW, stem="c", input_hash="c")).name == "c-3"
    assert [job.name for job in store.jobs.all()] == ["a-1", "c-3"]


def test_the_files_of_a_merged_job_are_spent_until_they_are_cleaned(store: Repository) -> None:
    job = over(store, output_path="/out.csv", **MERGED)
    (batch,) = store.keeping.spent("openai", now=NOW, limit=9)
    assert store.keeping.uncleaned_profiles() == ["openai"]
    assert store.keeping.spent("other", now=NOW, limit=9) == []
    assert store.keeping.spent("openai", now=NOW, limit=9, jobs=[job.id + 1]) == []
    store.keeping.clean_later(batch, at=NOW + 5, tries=1)
    assert store.keeping.spent("openai", now=NOW, limit=9) == [] and store.keeping.clean_tries(batch) == 1
    assert len(store.keeping.spent("openai", now=NOW + 5, limit=9)) == 1
    store.keeping.cleaned(batch, now=NOW + 5, event="deleted")
    assert store.keeping.spent("openai", now=NOW + 5, limit=9) == [] and store.keeping.uncleaned_profiles() == []


@pytest.mark.parametrize(
    "changed",
    [
        {"merged_at": None},
        {"merged_at": None, "written_at": 30.0},  # a merge is still to come
        {"keep_remote": True},
        {"finished_at": None},
    ],
)
def test_files_stay_where_the_job_is_not_merged_or_wants_them(store: Repository, changed: dict[str, Any]) -> None:
    job = over(store, output_path="/out.csv", **MERGED)
    store.jobs.update(job.id, now=1.0, event="", **changed)
    assert store.keeping.spent("openai", now=NOW, limit=9) == []


def test_a_retry_takes_the_merge_back(store: Repository) -> None:
    job = over(store, written_at=30.0)
    assert len(store.keeping.spent("openai", now=NOW, limit=9)) == 1
    with store.batches._db.begin() as connection:
        connection.exec_driver_sql("UPDATE request SET state = 'failed', outcome = 'empty' WHERE row = 3")
    assert list(store.keeping.may_be_retried(job.id)) == [3]
    assert store.rows.retry(job, ["empty"], now=40.0) == 1
    assert list(store.keeping.may_be_retried(job.id)) == [3]
    assert store.keeping.spent("openai", now=NOW, limit=9) == []
    store.jobs.update(job.id, now=50.0, event="", finished_at=50.0)
    assert store.keeping.spent("openai", now=NOW, limit=9) == [], "the file that was written is not the whole any more"


def test_rows_that_could_never_be_sent_are_not_kept_for_a_retry(store: Repository) -> None:
    job = create(store)
    store.rows.add(job.id, ((row, 100) for row in range(10)))
    store.rows.fail_unsent(job, [4], now=2.0, code="too_large", message="too large")
    store.rows.assign(job, [Shard(0, 9, 9, 900)], now=2.0)
    assert list(store.keeping.may_be_retried(job.id)) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    (batch,) = store.batches.load()
    store.rows.cancel_unsent(batch, now=3.0)
    assert store.batches.get(batch.id).state is BatchState.CANCELED
    assert len(list(store.keeping.may_be_retried(job.id))) == 9, "canceled rows may be sent after all"


def test_compacting_gives_free_pages_back(store: Repository) -> None:
    job = create(store, replace(NEW, rows=20_000))
    store.rows.add(job.id, ((row, 100) for row in range(20_000)))
    store.jobs.update(job.id, now=1.0, event="", finished_at=10.0)
    size, free = store.keeping.usage()
    assert (free, store.keeping.is_at_rest(store.jobs.get(job.id), now=NOW)) == (0, True)
    store.keeping.forget(store.jobs.get(job.id), now=NOW)
    assert store.keeping.usage()[1] > size // 2
    store.keeping.compact()
    after, free = store.keeping.usage()
    assert after < size // 2 and free == 0
    assert store.check() == []
