"""What the user wishes of a job: cancel, pause, resume, retry. A wish is a flag; the next pass carries it out."""

from __future__ import annotations

from collections.abc import Collection

from batchctl.engine.context import Engine
from batchctl.engine.poll import poll
from batchctl.errors import UserError
from batchctl_adapters.base import Outcome
from batchctl_adapters.errors import AdapterError
from batchctl_store.records import Batch, BatchState, IllegalMove, Job

RETRIED_BY_DEFAULT = frozenset(
    {Outcome.ERRORED_TRANSIENT, Outcome.EXPIRED, Outcome.CANCELED, Outcome.EMPTY, Outcome.INVALID}
)
"""Failures that another try may mend. The others have to be named: they would fail again, or may have been billed."""


def cancel(engine: Engine, job: Job) -> bool:
    """Wish that the job stops; False where it is over already."""
    if job.finished_at is not None:
        return False
    if job.cancel_requested_at is None:
        now = engine.clock.now()
        engine.store.jobs.update(job.id, now=now, event="cancel wished for", cancel_requested_at=now)
    return True


def pause(engine: Engine, job: Job) -> None:
    """Wish that nothing more is sent; what is out is still collected."""
    now = engine.clock.now()
    engine.store.jobs.update(job.id, now=now, event="paused", paused_at=now)


def resume(engine: Engine, job: Job) -> None:
    """Send again; also lifts a pause of the job's account, whose cause the user has mended."""
    now = engine.clock.now()
    engine.store.jobs.update(job.id, now=now, event="resumed", paused_at=None)
    engine.store.batches.resume_account(job.account, now=now)


def retry(engine: Engine, job: Job, outcomes: Collection[Outcome]) -> int:
    """Send failed rows with these outcomes again; rows still held by a batch are never touched. Returns how many.

    Raises UserError while a cancel is being carried out: what the provider still answers must come in first.
    """
    if job.cancel_requested_at is not None and job.finished_at is None:
        raise UserError(
            f"job {job.name} is still being canceled: its batches may still answer",
            hint=f"wait for it with `batchctl wait {job.name}`, then retry",
        )
    return engine.store.rows.retry(job, [outcome.value for outcome in outcomes], now=engine.clock.now())


def look_now(engine: Engine, jobs: Collection[int]) -> None:
    """Wish that the next pass asks the provider about these jobs' batches, whatever the cadence says."""
    now = engine.clock.now()
    for batch in engine.store.batches.load(open_at=now):
        if batch.job_id in jobs and batch.state is BatchState.SUBMITTED:
            engine.store.batches.touch(batch.id, next_poll_at=now)


def carry_out_cancel(engine: Engine, job: Job, batch: Batch | None) -> None:
    """Drop what was not sent; ask the provider to stop what was, once."""
    now, store = engine.clock.now(), engine.store
    if batch is None:
        store.rows.cancel_pending(job, now=now)
        return
    if batch.state in (BatchState.PLANNED, BatchState.READY):
        try:
            store.rows.cancel_unsent(batch, now=now)
        except IllegalMove:
            return
        if batch.upload_id is not None:
            _drop_upload(engine, batch, batch.upload_id)
        return
    for submission in batch.live:
        if submission.cancel_sent_at is None and submission.remote_id is not None:
            try:
                engine.adapter(batch.profile).cancel(submission.remote_id)
            except AdapterError as error:
                engine.note(f"{submission.remote_id} could not be canceled yet: {error.message}")
                poll(engine, batch.profile, [batch])  # it may have ended, or be gone
                wait = engine.profile(batch.profile).poll_interval_s
                store.batches.touch(batch.id, not_before=now + wait)
                return
            store.batches.note_submission(
                submission, now=now, event=f"asked the provider to cancel {submission.remote_id}", cancel_sent_at=now
            )
    store.batches.touch(batch.id, next_poll_at=now)


def _drop_upload(engine: Engine, batch: Batch, upload_id: str) -> None:
    try:
        engine.adapter(batch.profile).delete_upload(upload_id)
    except AdapterError as error:
        engine.note(f"the uploaded file {upload_id} of a canceled batch could not be deleted: {error.message}")
