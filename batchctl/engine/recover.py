"""In doubt: what became of an upload or a create that nobody can answer for (DESIGN 4).

A look that finds the batch adopts it. Absence is believed only after several complete looks, spread over time, that
all saw something this key must see, and after the uploaded file was deleted, so that a late create would fail.
"""

from __future__ import annotations

from batchctl.engine.context import Engine
from batchctl.engine.doubt import UNSURE
from batchctl.engine.locks import lives
from batchctl.engine.submit import accept
from batchctl_adapters.base import Absent, BatchAdapter, Doubt, Found, RemoteBatch, Unsure
from batchctl_adapters.errors import AdapterError
from batchctl_store.records import CLOSED, Batch, BatchState, IllegalMove, Submission, SubmissionState

WATCH_AFTER_WINDOW_S = 48 * 3_600.0


def recover(engine: Engine, batch: Batch) -> None:
    """Take over what a dead owner left, or look for a lost create once more."""
    if batch.state is not BatchState.IN_DOUBT and lives(engine.locks, batch.owner):
        engine.note(f"batch {batch.ordinal} is still being sent by {batch.owner}; left alone")
        return
    if batch.state is BatchState.UPLOADING:
        _restart_upload(engine, batch)
        return
    if batch.state is BatchState.SUBMITTING:
        try:
            engine.store.batches.move(
                batch.id,
                BatchState.IN_DOUBT,
                sources={BatchState.SUBMITTING},
                now=engine.clock.now(),
                text=f"its sender {batch.owner} is gone: the create may have happened",
            )
        except IllegalMove:
            return
        batch = engine.store.batches.get(batch.id)
    submission = batch.open_submission
    if submission is not None:
        _look(engine, batch, submission)


def _restart_upload(engine: Engine, batch: Batch) -> None:
    """uploading -> planned; a file that made it to the provider without our knowing is ours to delete."""
    adapter = engine.adapter(batch.profile)
    try:
        if batch.upload_tag:
            for orphan in adapter.list_uploads(batch.upload_tag):
                adapter.delete_upload(orphan.upload_id)
    except AdapterError as error:
        engine.note(f"an orphaned upload of batch {batch.ordinal} could not be cleaned up: {error.message}")
    engine.store.batches.move(
        batch.id,
        BatchState.PLANNED,
        sources={BatchState.UPLOADING},
        now=engine.clock.now(),
        text=f"its uploader {batch.owner} is gone: uploading again",
    )


def _look(engine: Engine, batch: Batch, submission: Submission) -> None:
    adapter, store = engine.adapter(batch.profile), engine.store
    doubt = Doubt(
        tag=submission.tag,
        upload_id=batch.upload_id,
        since=batch.uploaded_at or submission.created_at,
        known_ids=store.batches.known_remote_ids(batch.account),
        control=_control(engine, batch, submission),
    )
    try:
        seen = adapter.find(doubt)
    except AdapterError as error:
        _look_later(engine, batch, f"could not look for the batch: {error.message}")
        return
    match seen:
        case Found(remote):
            accept(engine, batch, submission, remote, "found again, created after all")
        case Unsure(reason):
            _look_later(engine, batch, f"{UNSURE}: {reason}")
            engine.note(f"batch {batch.ordinal} is in doubt and stays so: {reason}")
        case Absent():
            _absent(engine, batch, submission, adapter, doubt)


def _control(engine: Engine, batch: Batch, submission: Submission) -> str | None:
    if batch.upload_id and submission.fenced_at is None:
        return batch.upload_id
    return engine.store.batches.latest_remote_id(batch.account)


def _look_later(engine: Engine, batch: Batch, reason: str) -> None:
    profile = engine.profile(batch.profile)
    spacing = max(profile.poll_interval_s, profile.proof_span_s / max(1, profile.proof_looks - 1))
    engine.store.batches.touch(
        batch.id,
        now=engine.clock.now(),
        event=None if reason == batch.note else reason,
        note=reason,
        not_before=engine.clock.now() + spacing,
    )


def _absent(engine: Engine, batch: Batch, submission: Submission, adapter: BatchAdapter, doubt: Doubt) -> None:
    """One look saw the control and not the batch: count it, and once that is proof, fence and look a last time."""
    profile, now, store = engine.profile(batch.profile), engine.clock.now(), engine.store
    if doubt.control is None and submission.fenced_at is None:
        reason = f"{UNSURE}: no object of this account is known to check the key by"
        _look_later(engine, batch, reason)
        engine.note(f"batch {batch.ordinal} is in doubt: {reason}; see `batchctl logs`")
        return
    first, looks = submission.first_look_at or now, submission.looks + 1
    store.batches.note_submission(submission, looks=looks, first_look_at=first)
    if looks < profile.proof_looks or now - first < profile.proof_span_s:
        _look_later(engine, batch, f"not seen at the provider in {looks} looks; looking again before it is believed")
        return
    if batch.upload_id is None:
        _believe(engine, batch, submission, BatchState.READY)
        return
    if submission.fenced_at is None:
        store.batches.note_submission(
            submission, now=now, event=f"deleting {batch.upload_id}, so that a late create fails", fenced_at=now
        )
    try:
        adapter.delete_upload(batch.upload_id)
        # with the file gone, another object shows that the key is right; none, where this store knows no other
        control = store.batches.latest_remote_id(batch.account)
        last = adapter.find(Doubt(doubt.tag, doubt.upload_id, doubt.since, doubt.known_ids, control))
    except AdapterError as error:
        _look_later(engine, batch, f"the last look failed: {error.message}")
        return
    if isinstance(last, Found):
        accept(engine, batch, submission, last.batch, "found again at the last look")
    elif isinstance(last, Absent):
        _believe(engine, batch, submission, BatchState.PLANNED)
    else:
        _look_later(engine, batch, f"{UNSURE}: {last.reason}")


def _believe(engine: Engine, batch: Batch, submission: Submission, to: BatchState) -> None:
    """Proved absent: sent again from here on, and watched for long enough to notice a mistake.

    Where an earlier try has turned up late meanwhile, that one is followed and nothing is sent.
    """
    now, profile = engine.clock.now(), engine.profile(batch.profile)
    values = {"upload_id": None, "uploaded_at": None} if to is BatchState.PLANNED else {}
    if engine.store.batches.get(batch.id).live:
        to = BatchState.SUBMITTED
    engine.store.batches.resolve(
        batch,
        submission,
        to=to,
        submission_to=SubmissionState.ABSENT,
        now=now,
        text=f"{submission.tag} was never created: proved by {submission.looks + 1} looks",
        submission_values={"watch_until": now + profile.window_s + WATCH_AFTER_WINDOW_S},
        not_before=None,
        next_poll_at=None,
        note=None,
        **values,
    )


def found_late(engine: Engine, remote: RemoteBatch, submission: Submission) -> None:
    """A batch thought absent is there after all: adopted where nothing else was sent, else both are collected.

    Of two, the less advanced one is canceled; the first answer of each row stays, the rest is waste and said so.
    """
    now, store = engine.clock.now(), engine.store
    batch = store.batches.get(submission.batch_id)
    if batch.state in (BatchState.PLANNED, BatchState.READY):
        accept(engine, batch, submission, remote, "found late, before anything else was sent")
        return
    store.batches.note_submission(
        submission,
        now=now,
        event=f"{submission.tag} exists after all as {remote.remote_id}, after it was proved absent: collecting both",
        state=SubmissionState.LATE,
        remote_id=remote.remote_id,
        raw_status=remote.raw_status,
        expires_at=remote.expires_at,
        watch_until=None,
    )
    store.batches.touch(batch.id, next_poll_at=now)
    engine.note(f"batch {batch.ordinal}: {submission.tag} was found late; some rows may be paid twice")
    loser = _loser(engine, batch, submission, remote)
    if loser is None:
        return
    target = loser.remote_id or remote.remote_id
    try:
        engine.adapter(batch.profile).cancel(target)
        store.batches.note_submission(loser, cancel_sent_at=now)
    except AdapterError as error:
        engine.note(f"{target} could not be canceled: {error.message}")


def _loser(engine: Engine, batch: Batch, submission: Submission, remote: RemoteBatch) -> Submission | None:
    """Which try is of no use any more: the less advanced of two, or a late one that nobody waits for."""
    canceling = engine.store.jobs.get(batch.job_id).cancel_requested_at is not None
    if canceling or (batch.state in CLOSED and not engine.store.rows.unanswered(batch)):
        return submission
    other = next((s for s in batch.live if s.id != submission.id and s.remote_id), None)
    if other is None:
        return None
    seen = 0 if remote.counts is None else remote.counts.succeeded + remote.counts.failed
    return other if (other.counted or 0) < seen else submission
