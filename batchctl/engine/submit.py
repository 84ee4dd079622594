"""Sending a batch: its file first, then the create, with the intent on disk before each call is made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from batchctl.engine.context import Engine, custom_id, tag_of
from batchctl_adapters.base import BatchAdapter, RemoteBatch
from batchctl_adapters.errors import (
    AdapterError,
    Auth,
    Billing,
    Permanent,
    QueueFull,
    RemoteGone,
    SubmitUnknown,
    Transient,
)
from batchctl_store.records import Batch, BatchState, IllegalMove, Submission, SubmissionState

AUTH_RETRY_S = 600.0
BILLING_RETRY_S = 3_600.0
FILE_PATIENCE = 3
"""So many refusals are waited out before a file that is not visible is believed lost (CASES.md 30)."""
BACKOFF_S = (60.0, 120.0, 300.0, 600.0, 1_800.0)


def backoff(refusals: int, asked: float | None = None) -> float:
    """Seconds until the next try after so many refusals; never sooner than the provider asked."""
    return max(BACKOFF_S[min(refusals, len(BACKOFF_S) - 1)], asked or 0.0)


@dataclass(frozen=True, slots=True)
class Lines:
    """A batch's lines as they are sent; may be iterated again, from the spool, for a second try."""

    engine: Engine
    adapter: BatchAdapter
    spool: str
    rows: list[int]
    tag: str

    def __iter__(self) -> Iterator[bytes]:
        with self.engine.spool.reader(f"{self.spool}/bodies") as bodies:
            for row, body in zip(self.rows, bodies.pick(self.rows), strict=True):
                yield self.adapter.encode_line(custom_id(self.tag, row), body)


def _lines(engine: Engine, batch: Batch, tag: str) -> Lines:
    job = engine.store.jobs.get(batch.job_id)
    return Lines(engine, engine.adapter(batch.profile), job.spool, engine.store.rows.of_batch(batch), tag)


def next_number(batch: Batch) -> int:
    """The number of the next try: one for each upload and each create, never used twice."""
    return max([batch.upload_n, *(s.n for s in batch.submissions)]) + 1


def upload(engine: Engine, batch: Batch) -> None:
    """planned -> uploading -> ready; a failed upload goes back to planned and waits."""
    if engine.held_back(batch.account):
        return  # paused by a batch before this one in the same pass
    store, adapter = engine.store, engine.adapter(batch.profile)
    n = next_number(batch)
    tag = tag_of(store.store_id, batch.id, n)
    try:
        store.batches.begin_upload(batch, tag=tag, n=n, owner=engine.owner, now=engine.clock.now())
    except IllegalMove:
        return  # another process was faster
    try:
        sent = adapter.upload(_lines(engine, batch, tag), name=tag, size=batch.bytes)
    except Permanent as error:
        batch = store.batches.get(batch.id)
        _reject(engine, batch, error)
    except AdapterError as error:
        _back_to_planned(engine, batch, error)
    else:
        store.batches.move(
            batch.id,
            BatchState.READY,
            sources={BatchState.UPLOADING},
            now=engine.clock.now(),
            text="uploaded" if sent else "nothing to upload",
            upload_id=sent.upload_id if sent else None,
            uploaded_at=engine.clock.now(),
            not_before=None,
        )


def _back_to_planned(engine: Engine, batch: Batch, error: AdapterError) -> None:
    now = engine.clock.now()
    engine.store.batches.move(
        batch.id,
        BatchState.PLANNED,
        sources={BatchState.UPLOADING},
        now=now,
        text=f"upload failed: {error.message}",
        not_before=now + backoff(batch.refusals, getattr(error, "retry_after", None)),
        refusals=batch.refusals + 1,
        note=error.message,
    )
    _pause(engine, batch, error)


def submit(engine: Engine, batch: Batch) -> None:
    """ready -> submitting -> submitted, or wherever the provider's answer leads."""
    if engine.held_back(batch.account):
        return  # paused by a batch before this one in the same pass
    store, now = engine.store, engine.clock.now()
    profile, adapter = engine.profile(batch.profile), engine.adapter(batch.profile)
    fresh = batch.upload_n not in {s.n for s in batch.submissions}  # the upload's number serves its first create
    n = batch.upload_n if fresh and batch.upload_n else next_number(batch)
    tag = tag_of(store.store_id, batch.id, n)
    deadline = now + engine.clock.real(profile.create_limit_s)
    try:
        opened = store.batches.begin_submit(batch, tag=tag, n=n, owner=engine.owner, now=now, send_deadline=deadline)
    except IllegalMove:
        return  # another process was faster, or the user wishes to cancel
    batch = store.batches.get(batch.id)
    if engine.clock.now() >= deadline:  # this process was stopped for a while: the lease is over
        _refused(engine, batch, opened, Transient("the send deadline passed before anything was sent"))
        return
    try:
        remote = adapter.create(batch.upload_id, _lines(engine, batch, batch.upload_tag or tag), tag=tag)
    except SubmitUnknown as error:
        store.batches.move(
            batch.id,
            BatchState.IN_DOUBT,
            sources={BatchState.SUBMITTING},
            now=engine.clock.now(),
            text=f"no trustworthy answer to the create: {error.message}",
            note=error.message,
        )
    except Permanent as error:
        _reject(engine, batch, error)
    except AdapterError as error:
        _refused(engine, batch, opened, error)
    else:
        accept(engine, batch, opened, remote, "created")


def accept(engine: Engine, batch: Batch, submission: Submission, remote: RemoteBatch, how: str) -> None:
    """The remote id is known: the batch is submitted."""
    now, profile = engine.clock.now(), engine.profile(batch.profile)
    engine.store.batches.resolve(
        batch,
        submission,
        to=BatchState.SUBMITTED,
        submission_to=SubmissionState.ACCEPTED,
        now=now,
        text=f"{how}: {remote.remote_id}",
        submission_values={
            "remote_id": remote.remote_id,
            "raw_status": remote.raw_status,
            "expires_at": remote.expires_at,
        },
        raw_status=remote.raw_status,
        window_ends_at=remote.expires_at or now + profile.window_s,
        next_poll_at=now + profile.poll_interval_s,
        not_before=None,
        note=None,
    )
    if engine.paused(batch.account):
        engine.store.batches.resume_account(batch.account, now=now)


def _refused(engine: Engine, batch: Batch, submission: Submission, error: AdapterError) -> None:
    """submitting -> ready: the provider certainly created nothing, and no attempt is used up."""
    now = engine.clock.now()
    engine.store.batches.resolve(
        batch,
        submission,
        to=BatchState.READY,
        submission_to=SubmissionState.REFUSED,
        now=now,
        text=f"not created: {error.message}",
        not_before=now + backoff(batch.refusals, getattr(error, "retry_after", None)),
        refusals=batch.refusals + 1,
        note=error.message,
    )
    _upload_again(engine, batch, error)
    _pause(engine, batch, error)


def _upload_again(engine: Engine, batch: Batch, error: AdapterError) -> None:
    """ready -> planned, once the file has not been visible for too long: it is not coming any more."""
    missing = isinstance(error, RemoteGone) or error.code == "file_not_visible"
    if missing and batch.refusals >= FILE_PATIENCE:
        engine.store.batches.move(
            batch.id,
            BatchState.PLANNED,
            sources={BatchState.READY},
            now=engine.clock.now(),
            text=f"its file {batch.upload_id} is not there: uploading again",
            upload_id=None,
        )


def _pause(engine: Engine, batch: Batch, error: AdapterError) -> None:
    """Keys and money concern the whole account, and so does a full queue or a rate limit, for a while."""
    now = engine.clock.now()
    if isinstance(error, Auth):
        kind, wait = "auth", AUTH_RETRY_S
    elif isinstance(error, Billing):
        kind, wait = "billing", BILLING_RETRY_S
    elif isinstance(error, QueueFull) or (isinstance(error, Transient) and error.status == 429):
        kind, wait = "queue", backoff(batch.refusals, error.retry_after)
    else:
        return
    engine.store.batches.pause_account(batch.account, now=now, kind=kind, reason=error.message, not_before=now + wait)
    engine.note(f"account {batch.account} is paused ({kind}): {error.message}")


def _reject(engine: Engine, batch: Batch, error: Permanent) -> None:
    """uploading | submitting -> rejected: the provider would refuse the same again, so its rows fail."""
    engine.store.outcomes.fail_batch(
        batch,
        to=BatchState.REJECTED,
        now=engine.clock.now(),
        outcome="errored",
        code=error.code or "rejected",
        message=error.message,
        only=None,
    )
    engine.note(f"batch {batch.ordinal} was rejected: {error.message}")
