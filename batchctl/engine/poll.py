"""What the provider says of the batches that are out, and what follows for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from batchctl.engine.context import Engine
from batchctl.engine.doubt import UNSURE_GONE
from batchctl.engine.recover import found_late
from batchctl.engine.submit import backoff
from batchctl_adapters.base import Doubt, Found, Phase, RemoteBatch, Unsure
from batchctl_adapters.errors import AdapterError, Auth, Transient
from batchctl_store.records import CLOSED, Batch, BatchState, IllegalMove, Noted, Submission, SubmissionState

SHORT_PATIENCE_S = 1_800.0
"""How long results may lag behind the counts that promise them (DESIGN 3)."""
GONE_LOOKS = 3
WATCHED_ONLY = CLOSED | {BatchState.PLANNED, BatchState.READY}
"""States in which a batch is asked about only because a try of it that was proved absent may turn up."""
MAX_POLL_S = 900.0


def poll(engine: Engine, profile: str, batches: Iterable[Batch]) -> None:
    """One observation of a profile's batches; what cannot be asked changes no state."""
    batches = list(batches)
    account = engine.profile(profile).account_name
    adapter, now = engine.adapter(profile), engine.clock.now()
    watched = engine.store.batches.watched(account, now)
    ids = {s.remote_id: (batch, s) for batch in batches for s in batch.live if s.remote_id}
    try:
        seen = adapter.poll(list(ids), watch=list(watched))
    except AdapterError as error:
        _unreachable(engine, profile, batches, error)
        return
    paused = engine.paused(account)
    if paused is not None and paused.pause_kind == "auth":
        engine.store.batches.resume_account(account, now=now)  # the key works again
    _observe(engine, [(*ours, seen.batches[remote_id]) for remote_id, ours in ids.items() if remote_id in seen.batches])
    for remote_id in sorted(seen.gone):
        if remote_id in ids:
            _not_found(engine, *ids[remote_id])
    for tag, remote in seen.late.items():
        if tag in watched:
            found_late(engine, remote, watched[tag])
    only_watched = []
    for fresh in engine.store.batches.current(batches):
        if fresh.state in WATCHED_ONLY and not fresh.live:
            only_watched.append(fresh)
        _settle(engine, fresh)
    engine.store.batches.touch_all(only_watched, next_poll_at=now + MAX_POLL_S)


def _unreachable(engine: Engine, profile: str, batches: Sequence[Batch], error: AdapterError) -> None:
    now = engine.clock.now()
    interval = engine.profile(profile).poll_interval_s
    asked = error.retry_after if isinstance(error, Transient) else None
    engine.store.batches.touch_all(batches, next_poll_at=now + max(interval, asked or 0.0))
    if isinstance(error, Auth):
        account = engine.profile(profile).account_name
        engine.store.batches.pause_account(
            account, now=now, kind="auth", reason=error.message, not_before=now + backoff(3)
        )
    engine.note(f"{profile} could not be asked: {error.message}")


def _observe(engine: Engine, seen: Sequence[tuple[Batch, Submission, RemoteBatch]]) -> None:
    """Write down what the provider said of these tries, all at once: thousands may be out."""
    store = engine.store.batches
    store.note_all([_noted(engine, *one) for one in seen], now=engine.clock.now())
    for batch, submission, remote in seen:
        if remote.phase is Phase.ENDED and batch.state is BatchState.SUBMITTED and remote.ran_nothing:
            _ran_nothing(engine, store.get(batch.id), submission, remote)


def _noted(engine: Engine, batch: Batch, submission: Submission, remote: RemoteBatch) -> Noted:
    now = engine.clock.now()
    done = 0 if remote.counts is None else remote.counts.succeeded + remote.counts.failed
    counted = max(done, submission.counted or 0)  # a cancel may set counts back (PROVIDERS.md 2.7)
    changed = remote.raw_status != submission.raw_status
    unknown = remote.phase is Phase.UNKNOWN
    if unknown:
        engine.note(f"{remote.remote_id} has the status {remote.raw_status!r}, which is unknown here: polling on")
    quiet = not changed and counted == submission.counted
    return Noted(
        submission,
        batch.job_id,
        seen={
            "raw_status": remote.raw_status,
            "counted": counted,
            "expires_at": remote.expires_at or submission.expires_at,
            "files": remote.files,
            "short_since": None if remote.files and not submission.files else submission.short_since,
            "gone_looks": 0,
            "ended_at": (remote.ended_at or now) if remote.phase is Phase.ENDED else None,
        },
        batch={
            "raw_status": remote.raw_status,
            "window_ends_at": remote.expires_at or batch.window_ends_at,
            "next_poll_at": now + _cadence(engine, batch, quiet=quiet),
            "note": None if (batch.note or "").startswith(UNSURE_GONE) else batch.note,
        },
        event=f"{remote.remote_id} is {remote.raw_status}{' (unknown status)' if unknown else ''}" if changed else None,
    )


def _cadence(engine: Engine, batch: Batch, *, quiet: bool) -> float:
    """The profile's interval; up to four times as long while nothing changes and the batch is young in its window."""
    interval = engine.profile(batch.profile).poll_interval_s
    return min(interval * 4, max(interval, MAX_POLL_S)) if quiet else interval


def _ran_nothing(engine: Engine, batch: Batch, submission: Submission, remote: RemoteBatch) -> None:
    """A batch that ended before anything ran: back-pressure is waited out, a faulty file fails the rows it names."""
    now, store = engine.clock.now(), engine.store
    message = "; ".join(error.message for error in remote.errors) or f"ended as {remote.raw_status}"
    if remote.raw_status.lower() in ("cancelled", "canceled", "expired"):
        return  # canceled or expired before its first row: collected, all its rows are told so
    others = [s for s in batch.live if s.id != submission.id]
    if others:
        store.batches.note_submission(submission, state=SubmissionState.REFUSED)
        return
    if remote.resend is not None:
        wait = backoff(batch.refusals)
        again = remote.resend in ("file", "transient")
        store.batches.resolve(
            batch,
            submission,
            to=BatchState.PLANNED if again else BatchState.READY,
            submission_to=SubmissionState.REFUSED,
            now=now,
            text=f"sent again later, nothing ran: {message}",
            not_before=now + wait,
            next_poll_at=None,
            refusals=batch.refusals + 1,
            note=message,
        )
        if remote.resend in ("queue_full", "billing"):
            kind = "queue" if remote.resend == "queue_full" else "billing"
            store.batches.pause_account(batch.account, now=now, kind=kind, reason=message, not_before=now + wait)
        return
    if remote.errors:
        _validation_failed(engine, batch, remote, message)


def _validation_failed(engine: Engine, batch: Batch, remote: RemoteBatch, message: str) -> None:
    """submitted -> rejected: rows named by line fail, the others are sent again without them."""
    rows = engine.store.rows.of_batch(batch)
    named = sorted({rows[e.line - 1] for e in remote.errors if e.line is not None and 1 <= e.line <= len(rows)})
    if named:
        job = engine.store.jobs.get(batch.job_id)
        with engine.spool.reader(f"{job.spool}/lines") as reader:
            lines = [line.decode() for line in reader.pick(named[:3])]
        message = f"{message} ({job.input_name}, line {', '.join(lines)})"
    code = remote.errors[0].code or "rejected"
    engine.store.outcomes.fail_batch(
        batch,
        to=BatchState.REJECTED,
        now=engine.clock.now(),
        outcome="errored",
        code=code,
        message=f"the provider refused the batch: {message}",
        only=named or None,
    )
    engine.note(f"batch {batch.ordinal} was refused by the provider: {code}: {message}")


def _not_found(engine: Engine, batch: Batch, submission: Submission) -> None:
    """404 for a batch we know: believed only after several looks by a key that sees what it must see."""
    now, store = engine.clock.now(), engine.store
    interval = engine.profile(batch.profile).poll_interval_s
    store.batches.touch(batch.id, next_poll_at=now + interval)
    control = submission.upload_id
    if control is None or submission.fenced_at is not None:
        control = store.batches.latest_remote_id(batch.account, besides=submission.remote_id)
    others = store.batches.known_remote_ids(batch.account) - {submission.remote_id}  # an older batch of the same file
    doubt = Doubt(submission.tag, submission.upload_id, submission.created_at, others, control)
    try:
        seen = engine.adapter(batch.profile).find(doubt) if control else Unsure("nothing is known to check the key by")
    except AdapterError as error:
        engine.note(f"{submission.remote_id} was not found, and could not be looked for: {error.message}")
        return
    if isinstance(seen, Found):
        return  # it is in the list: the 404 was a slip
    if isinstance(seen, Unsure):
        reason = f"{UNSURE_GONE}: {seen.reason}"
        store.batches.touch(batch.id, now=now, event=None if batch.note == reason else reason, note=reason)
        engine.note(f"batch {batch.ordinal}: {reason}")
        return
    looks = submission.gone_looks + 1
    store.batches.note_submission(
        submission, now=now, event=f"{submission.remote_id} was not found (look {looks})", gone_looks=looks
    )


def look_again(engine: Engine, batch: Batch, submissions: Iterable[Submission]) -> bool:
    """Ask once more which result files there are. False where the key does not see one of the batches at all.

    Patience begins anew with a file that was not named before; one that was is not forgotten. Raises what the adapter
    raises.
    """
    ids = {s.remote_id: s for s in submissions if s.remote_id}
    seen = engine.adapter(batch.profile).poll(list(ids))
    for remote_id, submission in ids.items():
        remote = seen.batches.get(remote_id)
        if remote is None and remote_id in seen.gone:
            _not_found(engine, batch, submission)
        elif remote is not None and remote.files and remote.files != submission.files:
            now, event = engine.clock.now(), f"{remote_id} names {len(remote.files)} result files now"
            engine.store.batches.note_submission(
                submission, now=now, event=event, files=remote.files, gone_looks=0, short_since=now
            )
    looked = engine.store.batches.get(batch.id).submissions
    return all(s.remote_id in seen.batches or s.gone_looks >= GONE_LOOKS for s in looked if s.remote_id in ids)


def _settle(engine: Engine, batch: Batch) -> None:
    """submitted -> ended once every live submission is terminal; -> gone where none of them is there any more."""
    now = engine.clock.now()
    there = [s for s in batch.live if s.gone_looks < GONE_LOOKS]
    if batch.state in CLOSED:
        for lost in set(batch.live) - set(there):
            event = f"{lost.remote_id}, found late, is gone: nothing of it is taken in"
            engine.store.batches.note_submission(lost, now=now, event=event, state=SubmissionState.DONE)
        return
    if batch.state is not BatchState.SUBMITTED or not batch.live:
        return
    if not there:
        message = f"{batch.live[0].remote_id} is gone at the provider; its rows may have been billed"
        engine.store.outcomes.fail_batch(
            batch, to=BatchState.GONE, now=now, outcome="gone", code="gone", message=message, only=None
        )
        engine.note(f"batch {batch.ordinal}: {message}")
        return
    if any(s.ended_at is None for s in there):
        return
    if any(_files_lag(engine, s, now) for s in there):
        return
    try:
        engine.store.batches.move(
            batch.id,
            BatchState.ENDED,
            sources={BatchState.SUBMITTED},
            now=now,
            text=f"ended as {batch.raw_status}",
            not_before=None,
            next_poll_at=None,
        )
    except IllegalMove:
        return


def _files_lag(engine: Engine, submission: Submission, now: float) -> bool:
    """True while no file is named yet, for a while: it may be late, and counts may be null or set back."""
    if submission.files:
        return False
    since = submission.short_since or now
    if submission.short_since is None:
        engine.store.batches.note_submission(
            submission, now=now, event="ended, but its result files are not there yet", short_since=now
        )
    return now - since < SHORT_PATIENCE_S
