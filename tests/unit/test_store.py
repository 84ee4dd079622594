"""The store through its own door: guarded moves, what the database refuses, bulk rows, and first starts at once."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock
from sqlalchemy.exc import IntegrityError

from batchctl_store.batches import SUBMISSION
from batchctl_store.migrations import HEAD
from batchctl_store.records import (
    BATCH_MOVES,
    Batch,
    BatchState,
    DuplicateJob,
    IllegalMove,
    Job,
    NewJob,
    RowResult,
    Shard,
    StoreError,
    Submission,
    SubmissionState,
)
from batchctl_store.repository import Repository
from batchctl_store.views import Views

NEW = NewJob(
    stem="reviews",
    task="{}",
    task_hash="t1",
    input_name="reviews.csv",
    input_hash="i1",
    input_format="csv",
    route_hash="r1",
    profile="openai",
    account="openai",
    model="m",
    columns=("id", "text"),
    rows=10,
    output_path=None,
    max_batch_requests=None,
    max_batch_bytes=None,
    max_attempts=3,
    spool="jobs/a",
)
WEEK = 7 * 86_400.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Repository]:
    found = Repository(tmp_path / "home" / "store.db")
    yield found
    found.close()


def create(store: Repository, new: NewJob = NEW, *, now: float = 1.0, again: bool = False, ready: bool = True) -> Job:
    job = store.jobs.create(new, now=now, owner="me", again=again, same_within_s=WEEK)
    if ready:
        store.jobs.update(job.id, now=now, event="ready", ready_at=now)
    return store.jobs.get(job.id)


def planned(store: Repository, shards: int = 2) -> tuple[Job, list[Batch]]:
    """A job of ten rows of 100 bytes in batches of equal length."""
    job = create(store)
    store.rows.add(job.id, ((row, 100) for row in range(10)))
    each = 10 // shards
    store.rows.assign(job, [Shard(n * each, n * each + each - 1, each, each * 100) for n in range(shards)], now=2.0)
    return store.jobs.get(job.id), store.batches.load(job_id=job.id)


def submitting(store: Repository, batch: Batch) -> tuple[Batch, Submission]:
    store.batches.begin_upload(batch, tag=f"s-{batch.id}-1", n=1, owner="me", now=3.0)
    store.batches.move(
        batch.id, BatchState.READY, sources={BatchState.UPLOADING}, now=3.0, text="up", upload_id="f", uploaded_at=3.0
    )
    batch = store.batches.get(batch.id)
    opened = store.batches.begin_submit(batch, tag=f"s-{batch.id}-1", n=1, owner="me", now=4.0, send_deadline=124.0)
    return store.batches.get(batch.id), opened


def submitted(store: Repository, batch: Batch, remote_id: str = "remote-1") -> Batch:
    batch, opened = submitting(store, batch)
    store.batches.resolve(
        batch,
        opened,
        to=BatchState.SUBMITTED,
        submission_to=SubmissionState.ACCEPTED,
        now=5.0,
        text="created",
        submission_values={"remote_id": remote_id},
    )
    return store.batches.get(batch.id)


def ended(store: Repository, batch: Batch) -> Batch:
    batch = submitted(store, batch, f"remote-{batch.id}")
    store.batches.move(batch.id, BatchState.ENDED, sources={BatchState.SUBMITTED}, now=6.0, text="ended")
    return store.batches.get(batch.id)


def collect(store: Repository, batch: Batch, *results: RowResult) -> dict[str, int]:
    store.outcomes.stage(batch, results)
    return store.outcomes.collect(
        batch, now=7.0, resent=("expired",), absent=("missing", "in no file"), replan_at=8.0, text_="collected"
    )


def contents(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        return list(db.iterdump())


def path_of(store: Repository) -> Path:
    return store.batches._db.path


@pytest.mark.parametrize("source", sorted(BatchState))
@pytest.mark.parametrize("target", sorted(BatchState))
def test_a_batch_moves_along_the_legal_moves_only(
    store_with_one_batch: Repository, source: BatchState, target: BatchState
) -> None:
    store = store_with_one_batch
    with closing(sqlite3.connect(path_of(store))) as db:
        db.execute("UPDATE batch SET state = ? WHERE id = 1", (source,))
        db.commit()
    before = contents(path_of(store))
    if (source, target) in BATCH_MOVES:
        store.batches.move(1, target, sources={source}, now=9.0, text="moved", note="new")
        assert store.batches.get(1).state is target
        event = store.jobs.events(1)[-1]
        assert (event.source, event.target, event.text) == (source, target, "moved")
        return
    with pytest.raises(IllegalMove):
        store.batches.move(1, target, sources={source}, now=9.0, text="moved", note="new")
    assert contents(path_of(store)) == before


@pytest.fixture(scope="module")
def store_with_one_batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    found = Repository(tmp_path_factory.mktemp("moves") / "store.db")
    planned(found, shards=1)
    yield found
    found.close()


def test_a_batch_that_is_elsewhere_is_not_moved(store: Repository) -> None:
    _, (batch, _) = planned(store)
    before = contents(path_of(store))
    with pytest.raises(IllegalMove, match="is planned and cannot become submitting now"):
        store.batches.move(batch.id, BatchState.SUBMITTING, sources={BatchState.READY}, now=3.0, text="x")
    assert contents(path_of(store)) == before


def test_a_create_is_refused_in_the_same_breath_as_the_cancel_wish(store: Repository) -> None:
    job, (batch, _) = planned(store)
    store.batches.begin_upload(batch, tag="s-1-1", n=1, owner="me", now=3.0)
    store.batches.move(batch.id, BatchState.READY, sources={BatchState.UPLOADING}, now=3.0, text="up", upload_id="f")
    seen = store.batches.get(batch.id)
    store.jobs.update(job.id, now=4.0, event="cancel wished for", cancel_requested_at=4.0)
    with pytest.raises(IllegalMove):
        store.batches.begin_submit(seen, tag="s-1-1", n=1, owner="me", now=5.0, send_deadline=9.0)
    assert store.batches.get(batch.id).submissions == ()


def test_the_database_refuses_a_second_open_submission(store: Repository) -> None:
    _, (batch, _) = planned(store)
    batch, opened = submitting(store, batch)
    values = {"batch_id": batch.id, "account": "openai", "owner": "me", "created_at": 1.0, "send_deadline": 2.0}
    with pytest.raises(IntegrityError), store.batches._db.begin() as connection:
        connection.execute(
            SUBMISSION.insert().values(n=2, tag="s-1-2", state="open", files="[]", looks=0, gone_looks=0, **values)
        )
    assert store.batches.get(batch.id).submissions == (opened,)


def test_a_remote_batch_belongs_to_one_submission(store: Repository) -> None:
    _, (first, second) = planned(store)
    submitted(store, first, "remote-1")
    with pytest.raises(IntegrityError):
        submitted(store, second, "remote-1")


def test_what_a_failed_transaction_did_is_undone(store: Repository) -> None:
    _, (batch, _) = planned(store)
    batch, opened = submitting(store, batch)
    gone = replace(opened, id=999)
    before = contents(path_of(store))
    with pytest.raises(IllegalMove, match="no submission 999"):
        store.batches.resolve(
            batch, gone, to=BatchState.SUBMITTED, submission_to=SubmissionState.ACCEPTED, now=5.0, text="created"
        )
    assert contents(path_of(store)) == before


def test_the_same_job_is_refused_while_open_and_for_a_week(store: Repository) -> None:
    job = create(store)
    with pytest.raises(DuplicateJob, match=job.name):
        create(store)
    store.jobs.update(job.id, now=10.0, event="done", finished_at=10.0)
    with pytest.raises(DuplicateJob):
        create(store, now=10.0 + WEEK - 1)
    later = create(store, now=10.0 + WEEK)
    assert create(store, now=10.0 + WEEK, again=True).id == later.id + 1


@pytest.mark.parametrize(
    "other",
    [replace(NEW, input_hash="other"), replace(NEW, task_hash="other"), replace(NEW, route_hash="other")],
    ids=["input", "task", "route"],
)
def test_another_input_task_or_route_is_another_job(store: Repository, other: NewJob) -> None:
    create(store)
    assert create(store, other).name == "reviews-2"


def test_of_two_submits_at_once_one_is_refused(tmp_path: Path) -> None:
    stores = [Repository(tmp_path / "store.db") for _ in range(4)]

    def submit(store: Repository) -> str:
        try:
            return create(store, ready=False).name
        except DuplicateJob as same:
            return f"refused: {same.name}"

    with ThreadPoolExecutor(4) as pool:
        names = sorted(pool.map(submit, stores))
    for store in stores:
        store.close()
    assert names == ["refused: reviews-1"] * 3 + ["reviews-1"]


def test_an_intake_that_never_ended_is_forgotten_whole(store: Repository) -> None:
    kept, _ = planned(store)
    job = create(store, replace(NEW, input_hash="i2"), ready=False)
    store.rows.add(job.id, ((row, 100) for row in range(10)))
    store.rows.assign(job, [Shard(0, 9, 10, 1_000)], now=2.0)
    assert [(found.id, owner) for found, owner in store.jobs.unready()] == [(job.id, "me")]
    store.jobs.forget(job.id)
    with pytest.raises(StoreError):
        store.jobs.get(job.id)
    assert [found.id for found in store.jobs.all()] == [kept.id]
    assert list(store.rows.pending(job.id)) == []
    with pytest.raises(IllegalMove, match="complete"):
        store.jobs.forget(kept.id)
    assert len(store.batches.load()) == 2


def test_batch_numbers_are_never_used_again(store: Repository) -> None:
    job = create(store, ready=False)
    store.rows.add(job.id, [(0, 100)])
    store.rows.assign(job, [Shard(0, 0, 1, 100)], now=2.0)
    store.jobs.forget(job.id)
    _, batches = planned(store, shards=1)
    assert [batch.id for batch in batches] == [2]


def test_a_read_that_is_under_way_blocks_no_writer(store: Repository) -> None:
    job, _ = planned(store)
    rows = store.rows.merged(job.id)
    next(rows)
    with closing(sqlite3.connect(path_of(store), timeout=0)) as other:
        other.execute("UPDATE job SET paused_at = 1.0")
        other.commit()
    assert len(list(rows)) == 9
    assert store.jobs.get(job.id).paused_at == 1.0


def schema(path: Path) -> list[tuple[str, str, str]]:
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'alembic%'").fetchall()
    return sorted((kind, name, " ".join((sql or "").split())) for kind, name, sql in rows)


def test_the_migrated_schema_is_that_of_the_models(store: Repository, tmp_path: Path) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    import batchctl_store.migrations
    from batchctl_store.models import metadata

    with store.batches._db.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []
    heads = ScriptDirectory(str(Path(batchctl_store.migrations.__file__).parent)).get_heads()
    assert heads == [HEAD], "HEAD lets an up-to-date store open without Alembic"


def test_the_views_of_the_newest_migration_are_there_and_can_be_read(store: Repository) -> None:
    planned(store)
    views = [name for kind, name, _ in schema(path_of(store)) if kind == "view"]
    assert views == ["batch_status", "job_status"]
    (job,) = Views(path_of(store)).jobs()
    assert (job["name"], job["open_rows"], job["open_batches"], job["state"]) == ("reviews-1", 10, 2, "queued")
    assert [found["state"] for found in Views(path_of(store)).batches(1)] == ["planned", "planned"]


def test_what_the_models_cannot_say_is_in_the_schema(store: Repository) -> None:
    """Comparing metadata sees neither partial indexes nor tables clustered by their key."""
    found = {name: sql for _, name, sql in schema(path_of(store))}
    assert found["submission_open"].endswith("WHERE state = 'open'")
    assert found["request"].endswith("WITHOUT ROWID") and found["result"].endswith("WITHOUT ROWID")
    assert "AUTOINCREMENT" in found["batch"]


def test_a_store_of_a_newer_version_is_refused(store: Repository) -> None:
    path = path_of(store)
    store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE alembic_version SET version_num = '9999'")
        db.commit()
    with pytest.raises(StoreError, match="newer batchctl"):
        Repository(path)


OPEN = """
import os, sys
from pathlib import Path
from batchctl_store.repository import Repository
read, write = os.pipe()
children = []
for n in range(10):
    children.append(os.fork())
    if not children[-1]:
        os.close(write)
        os.read(read, 1)  # until all are there
        store = Repository(Path(sys.argv[1]))
        store.put_setting(f"process {n}", store.store_id)
        store.close()
        os._exit(0)
os.close(write)
sys.exit(sum(os.waitpid(child, 0)[1] for child in children) and 1)
"""


def test_case_89_ten_processes_open_a_store_for_the_first_time_at_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "home" / "store.db"
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", OPEN, path], capture_output=True, text=True, timeout=180, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    with closing(sqlite3.connect(path)) as db:
        told = [row[0] for row in db.execute("SELECT value FROM setting WHERE key LIKE 'process %'")]
    assert len(told) == 10
    assert len(set(told)) == 1, "one store, one id"


def test_case_89_a_store_that_another_process_is_making_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch()
    with ThreadPoolExecutor(1) as thread, closing(sqlite3.connect(path)) as other:
        with FileLock(path.with_suffix(".migrate.lock")):
            other.execute("BEGIN IMMEDIATE")  # as a maker holds the empty file
            opening = thread.submit(Repository, path)
            with pytest.raises(TimeoutError):
                opening.result(0.3)
            other.rollback()
        opening.result(60).close()


def test_the_store_is_private(tmp_path: Path) -> None:
    path = tmp_path / "home" / "store.db"
    store = Repository(path)
    planned(store)

    def mode(one: Path) -> int:
        return stat.S_IMODE(one.stat().st_mode)

    assert mode(path.parent) == 0o700
    files = {one.name: mode(one) for one in path.parent.iterdir()}
    assert files.keys() >= {"store.db", "store.db-wal", "store.db-shm"}
    assert {name: oct(found) for name, found in files.items() if found & 0o077} == {}
    store.close()


def test_rows_are_read_back_as_they_were_stored(store: Repository) -> None:
    job = create(store, replace(NEW, rows=12_000))
    store.rows.add(job.id, ((row, 100 + row % 7) for row in range(12_000)))
    assert list(store.rows.pending(job.id)) == [(row, 100 + row % 7, None) for row in range(12_000)]
    assert store.jobs.get(job.id).pending_rows == 12_000


def test_rows_are_assigned_as_planned_or_not_at_all(store: Repository) -> None:
    job = create(store)
    store.rows.add(job.id, ((row, 100) for row in range(10)))
    before = contents(path_of(store))
    with pytest.raises(IllegalMove, match="5 of 6 rows"):
        store.rows.assign(job, [Shard(0, 4, 5, 500), Shard(5, 9, 6, 600)], now=2.0)
    assert contents(path_of(store)) == before
    first, second = store.rows.assign(job, [Shard(0, 4, 5, 500), Shard(5, 9, 5, 500)], now=2.0)
    assert store.rows.of_batch(store.batches.get(first)) == [0, 1, 2, 3, 4]
    with pytest.raises(IllegalMove):
        store.rows.assign(job, [Shard(0, 4, 5, 500)], now=3.0)
    assert store.rows.of_batch(store.batches.get(second)) == [5, 6, 7, 8, 9]


def test_rows_that_cannot_be_sent_fail_alone(store: Repository) -> None:
    job = create(store)
    store.rows.add(job.id, ((row, 100) for row in range(10)))
    store.rows.fail_unsent(job, [3, 7], now=2.0, code="too_large", message="too large alone")
    assert [row for row, _, _ in store.rows.pending(job.id)] == [0, 1, 2, 4, 5, 6, 8, 9]
    assert store.rows.counted(job.id) == {"errored": 2, "pending": 8}
    assert store.rows.tally(job.id) == {"errored": 2}
    failed = [row for row in store.rows.merged(job.id) if row[1] == "failed"]
    assert [(row[0], row[-2], row[-1]) for row in failed] == [
        (3, "too_large", "too large alone"),
        (7, "too_large", "too large alone"),
    ]


def test_a_collection_gives_every_row_its_outcome_once(store: Repository) -> None:
    job, (batch, other) = planned(store)
    outcomes = collect(
        store,
        ended(store, batch),
        RowResult(0, "succeeded", "yes", input_tokens=3, output_tokens=1),
        RowResult(1, "expired"),
        RowResult(2, "errored", error_code="invalid", error="bad row"),
        RowResult(0, "errored", error="the same row, later in the file"),
    )
    assert outcomes == {"succeeded": 1, "expired": 1, "errored": 1, "missing": 2}
    assert store.rows.tally(job.id) == {"succeeded": 1, "errored": 1, "missing": 2}
    assert store.rows.counted(job.id) == {"succeeded": 1, "errored": 1, "missing": 2, "pending": 1, "assigned": 5}
    rows = list(store.rows.merged(job.id))
    assert [(row[0], row[1], row[2], row[3]) for row in rows[:5]] == [
        (0, "succeeded", "succeeded", 1),
        (1, "pending", None, 1),
        (2, "failed", "errored", 1),
        (3, "failed", "missing", 1),
        (4, "failed", "missing", 1),
    ]
    assert rows[0][5] == "yes"
    assert store.jobs.get(job.id).pending_rows == 1
    assert store.batches.get(other.id).state is BatchState.PLANNED
    with pytest.raises(IllegalMove):
        collect(store, ended_again := store.batches.get(batch.id))
    assert ended_again.state is BatchState.COLLECTED


def test_a_success_beside_a_failure_of_the_same_row_stays_whatever_their_order(store: Repository) -> None:
    job, (batch, _) = planned(store)
    collect(
        store,
        ended(store, batch),
        RowResult(0, "errored", error="first"),
        RowResult(0, "succeeded", "yes"),
        RowResult(1, "succeeded", "no"),
        RowResult(1, "errored", error="second"),
        RowResult(2, "succeeded", "first word"),
        RowResult(2, "succeeded", "second word"),
    )
    rows = list(store.rows.merged(job.id))
    assert [(row[2], row[5]) for row in rows[:3]] == [
        ("succeeded", "yes"),
        ("succeeded", "no"),
        ("succeeded", "first word"),
    ]


def test_attempts_end_at_the_cap(store: Repository) -> None:
    job, _ = planned(store, shards=1)
    for attempt in (1, 2, 3):
        batch = store.batches.load(job_id=job.id)[-1]
        collect(store, ended(store, batch), *(RowResult(row, "expired") for row in store.rows.of_batch(batch)))
        pending = list(store.rows.pending(job.id))
        assert len(pending) == (10 if attempt < 3 else 0)
        if pending:
            store.rows.assign(job, [Shard(0, 9, 10, 1_000)], now=9.0)
    assert store.rows.tally(job.id) == {"expired": 10}


def test_case_33_retry_is_exact_and_keeps_the_tallies_right(store: Repository) -> None:
    job, (batch, other) = planned(store)
    collect(store, ended(store, batch), RowResult(0, "invalid", error="x"), RowResult(1, "succeeded", "yes"))
    store.rows.cancel_unsent(other, now=8.0)
    assert store.rows.tally(job.id) == {"invalid": 1, "succeeded": 1, "missing": 3, "canceled": 5}
    assert store.rows.retry(job, ["invalid"], now=9.0) == 1
    assert store.rows.tally(job.id) == {"succeeded": 1, "missing": 3, "canceled": 5}
    assert list(store.rows.pending(job.id)) == [(0, 100, None)]
    assert store.rows.retry(job, ["invalid"], now=9.0) == 0
    assert store.jobs.get(job.id).pending_rows == 1
    assert store.rows.retry(job, ["invalid", "canceled"], now=9.0) == 5, "rows that the user canceled, when asked"
    assert store.rows.tally(job.id) == {"succeeded": 1, "missing": 3}
    assert store.jobs.get(job.id).pending_rows == 6


def test_rows_of_a_canceled_job_are_not_sent_again(store: Repository) -> None:
    job, (batch, other) = planned(store)
    batch = ended(store, batch)
    store.jobs.update(job.id, now=6.0, event="cancel wished for", cancel_requested_at=6.0)
    collect(store, batch, RowResult(0, "expired"), RowResult(1, "succeeded", "yes"), RowResult(2, "errored", error="e"))
    store.rows.cancel_unsent(other, now=8.0)
    assert store.rows.tally(job.id) == {"canceled": 6, "succeeded": 1, "errored": 1, "missing": 2}
    assert store.rows.tally(job.id) == store.rows.counted(job.id)


def test_a_rejection_that_names_rows_uses_up_no_attempt(store: Repository) -> None:
    job, (batch, _) = planned(store)
    store.outcomes.fail_batch(
        submitted(store, batch),
        to=BatchState.REJECTED,
        now=6.0,
        outcome="errored",
        code="bad",
        message="line 2",
        only=[1],
    )
    rows = list(store.rows.merged(job.id))
    assert [(row[1], row[3]) for row in rows[:3]] == [("pending", 0), ("failed", 0), ("pending", 0)]
    assert store.batches.get(batch.id).submissions[0].state is SubmissionState.REFUSED
