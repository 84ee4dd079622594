"""Taking results in: files into the spool, lines to rows by id alone, one transaction that gives rows their outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from batchctl.answers import Judge
from batchctl.engine.context import Engine, row_of
from batchctl.engine.poll import SHORT_PATIENCE_S, look_again
from batchctl.engine.submit import backoff
from batchctl.task import Task
from batchctl_adapters.base import BadLine, BatchAdapter, Outcome, Result
from batchctl_adapters.errors import AdapterError, RemoteGone
from batchctl_store.records import Batch, Job, RowResult, Submission
from batchctl_store.spool import FrameReader, FrameWriter, SpoolError

RESENT = tuple(outcome.value for outcome in Outcome if outcome.is_resent)
ABSENT_MESSAGE = "in no result file of its batch: unknown, may have been billed"


@dataclass(slots=True)
class _Read:
    """What reading a batch's result files came to."""

    lines: int = 0
    duplicates: int = 0
    quarantined: int = 0


def collect(engine: Engine, batch: Batch) -> None:
    """ended -> collected, at whatever status it ended; a file that cannot be had yet leaves the batch as it is."""
    job, adapter = engine.store.jobs.get(batch.job_id), engine.adapter(batch.profile)
    fetched = _fetch(engine, job, batch, adapter, batch.live)
    if fetched is None:
        return
    rows = frozenset(engine.store.rows.of_batch(batch))
    read = _stage(engine, job, batch, adapter, fetched.names, rows, rows)
    outcomes = engine.store.outcomes.collect(
        batch,
        now=engine.clock.now(),
        resent=RESENT,
        absent=("gone", "its result file is gone at the provider") if fetched.lost else _absent(batch),
        replan_at=engine.clock.now() + _pause_before_resend(batch),
        text_=f"collected {read.lines} lines{_extras(read)}",
    )
    for outcome in ("missing", "gone"):
        if outcomes.get(outcome):
            engine.note(f"batch {batch.ordinal}: {outcomes[outcome]} rows are {outcome}")


def _absent(batch: Batch) -> tuple[str, str]:
    """What rows in no file are. Where nothing was ever counted and there is no file, the whole batch never ran."""
    if not any(s.files or s.counted for s in batch.live):
        match (batch.raw_status or "").lower():
            case "expired":
                return "expired", "the batch expired before it ran"
            case "cancelled" | "canceled":
                return "canceled", "the batch was canceled before it ran"
    return "missing", ABSENT_MESSAGE


def take_late(engine: Engine, batch: Batch) -> None:
    """A closed batch has a submission that was found late and has ended: rows without an answer get theirs."""
    job, adapter = engine.store.jobs.get(batch.job_id), engine.adapter(batch.profile)
    rows, wanted = frozenset(engine.store.rows.of_batch(batch)), frozenset(engine.store.rows.unanswered(batch))
    for submission in batch.live:
        if submission.ended_at is None:
            continue
        fetched = _fetch(engine, job, batch, adapter, [submission])
        if fetched is None:
            return
        _stage(engine, job, batch, adapter, fetched.names, rows, wanted)
        engine.store.outcomes.take_late(batch, submission, now=engine.clock.now())


@dataclass(slots=True)
class _Fetched:
    """Result files in the spool; `lost` where one that was named is not there at the provider."""

    names: list[str] = field(default_factory=list)
    lost: bool = False


def _fetch(
    engine: Engine, job: Job, batch: Batch, adapter: BatchAdapter, submissions: Sequence[Submission]
) -> _Fetched | None:
    """Every result file of these submissions, whole, in the spool; None where they have to be asked for again later.

    Files already there are not fetched again.
    """
    fetched = _Fetched()
    try:
        for submission in submissions:
            for index, handle in enumerate(submission.files):
                name = f"{job.spool}/results/{submission.tag}-{index}"
                try:
                    _fetch_one(engine, adapter, handle, name)
                except RemoteGone as error:
                    fetched.lost = True
                    engine.note(f"batch {batch.ordinal}: a result file is not there: {error.message}")
                else:
                    fetched.names.append(name)
        return None if _incomplete(engine, batch, adapter, submissions, fetched) else fetched
    except (AdapterError, SpoolError) as error:
        _later(engine, batch, f"results could not be fetched: {error}")
        return None


def _fetch_one(engine: Engine, adapter: BatchAdapter, handle: str, name: str) -> None:
    if not engine.spool.exists(name):
        with engine.spool.writer(name) as writer:
            for chunk in adapter.fetch(handle):
                writer.write(chunk)


def _incomplete(
    engine: Engine, batch: Batch, adapter: BatchAdapter, submissions: Sequence[Submission], fetched: _Fetched
) -> bool:
    """True where a file is lost or torn, or the files are too short, and there is patience left to ask anew.

    Too short is fewer lines than the counts promise, or than there are rows: of two files, one may be named late.
    """
    promised = max([batch.requests if fetched.names else 0, *(s.counted or 0 for s in submissions)])
    lines, torn = 0, False
    for name in fetched.names:
        with engine.spool.reader(name) as reader:
            lines += reader.line_count
            torn = torn or not (reader.complete or _parses(adapter, reader))
    if lines >= promised and not torn and not fetched.lost:
        return False
    what = f"its result files hold {lines} lines of {promised}{' and end mid-line' if torn else ''}"
    now = engine.clock.now()
    since = min((s.short_since for s in submissions if s.short_since is not None), default=now)
    for submission in submissions:
        if submission.short_since is None:
            engine.store.batches.note_submission(submission, now=now, event=what, short_since=since)
    over = now - since >= SHORT_PATIENCE_S
    if over and not fetched.lost:
        return False
    sure = look_again(engine, batch, submissions)
    if over and sure:
        return False
    for name in fetched.names:
        engine.spool.delete(name)
    _later(engine, batch, f"{what}: fetching them again")
    return True


def _parses(adapter: BatchAdapter, reader: FrameReader) -> bool:
    """True where a file without a line end at its end is whole all the same."""
    last = next(iter(reader.lines(reader.line_count - 1)), b"")
    try:
        adapter.parse(last)
    except BadLine:
        return False
    return True


def _later(engine: Engine, batch: Batch, note: str) -> None:
    wait = max(engine.profile(batch.profile).poll_interval_s, 1.0)
    engine.store.batches.touch(
        batch.id,
        now=engine.clock.now(),
        event=None if note == batch.note else note,
        note=note,
        not_before=engine.clock.now() + wait,
    )


def _stage(
    engine: Engine,
    job: Job,
    batch: Batch,
    adapter: BatchAdapter,
    names: list[str],
    rows: frozenset[int],
    wanted: frozenset[int],
) -> _Read:
    """Write the wanted rows' results down; what names no row of the batch is kept in a file of its own, for people."""
    read, name = _Read(), f"{job.spool}/quarantine/{batch.id}"
    with engine.spool.writer(name) as quarantine:
        results = _results(engine, job, batch, adapter, names, rows, read, quarantine)
        engine.store.outcomes.stage(batch, (result for result in results if result.row in wanted))
    if read.quarantined:
        engine.note(f"batch {batch.ordinal}: {read.quarantined} result lines name no row; kept in the spool: {name}")
    else:
        engine.spool.delete(name)
    return read


def _results(
    engine: Engine,
    job: Job,
    batch: Batch,
    adapter: BatchAdapter,
    names: list[str],
    rows: frozenset[int],
    read: _Read,
    quarantine: FrameWriter,
) -> Iterator[RowResult]:
    """Each line's row by its id, never by its place."""
    judge = Judge(Task.model_validate_json(job.task))
    store_id, parse = engine.store.store_id, adapter.parse
    seen: set[int] = set()
    for name, number, line in _lines(engine, names):
        read.lines += 1
        try:
            result = parse(line)
            row = row_of(result.custom_id, store_id, batch)
            if row is None or row not in rows:
                raise BadLine("names no row of this batch")
        except BadLine as error:
            read.quarantined += 1
            quarantine.append(f"{name}:{number}: {error}: ".encode() + line)
            continue
        read.duplicates += row in seen
        seen.add(row)
        yield row_result(row, result, judge)


def _lines(engine: Engine, names: list[str]) -> Iterator[tuple[str, int, bytes]]:
    """(file, line number, line) of every line that is not blank."""
    for name in names:
        with engine.spool.reader(name) as reader:
            for number, line in enumerate(reader.lines(), start=1):
                if line.strip():
                    yield name, number, line


def row_result(row: int, result: Result, judge: Judge) -> RowResult:
    """What the store keeps of a result; an answer that is not what the task asked for is `invalid`."""
    outcome, answer = result.outcome, result.text
    code, error = result.error_code, result.error
    if outcome is Outcome.SUCCEEDED:
        judged = judge.judge(result.text or "")
        if judged.ok and isinstance(judged.value, str):
            answer = judged.value  # the label itself, whatever shape it came in
        elif judged.ok:
            answer = (result.text or "").strip()  # JSON as it was spelled
        else:
            outcome, code, error = Outcome.INVALID, "invalid_answer", judged.problem
    usage = result.usage
    return RowResult(
        row=row,
        outcome=outcome.value,
        answer=answer,
        finish_reason=result.finish_reason,
        input_tokens=usage.input_tokens if usage else None,
        output_tokens=usage.output_tokens if usage else None,
        cached_tokens=usage.cached_tokens if usage else None,
        model=result.model,
        error_code=code,
        error=error,
    )


def _pause_before_resend(batch: Batch) -> float:
    """Seconds before rows go out again: at once after an expiry, later the more often this batch was refused."""
    return 0.0 if batch.raw_status == "expired" else backoff(batch.refusals)


def _extras(read: _Read) -> str:
    parts = []
    if read.duplicates:
        parts.append(f"{read.duplicates} more than once")
    if read.quarantined:
        parts.append(f"{read.quarantined} quarantined")
    return f" ({', '.join(parts)})" if parts else ""
