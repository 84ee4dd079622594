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
class _Taken:
    """What reading a batch's result files came to."""

    names: list[str] = field(default_factory=list)  # of the files in the spool
    lost: bool = False  # a file that was named is not there at the provider
    torn: bool = False  # a file ends in the middle of a line
    lines: int = 0
    rows: int = 0  # of the batch, that have a line
    duplicates: int = 0
    quarantined: int = 0

    def what_lacks(self, batch: Batch, tries: Sequence[Submission]) -> str | None:
        """What is missing or doubtful, in words; None where every row has its line.

        Counts are no measure: they may be null or false, and a line may be there twice.
        """
        promised = batch.requests if self.names or self.lost or any(s.counted for s in tries) else 0
        if self.rows >= promised and not self.torn and not self.lost:
            return None
        ends = " and end mid-line" if self.torn else ""
        return f"its result files hold {self.rows} rows of {promised}{ends}{', one is not there' if self.lost else ''}"


def collect(engine: Engine, batch: Batch) -> None:
    """ended -> collected, at whatever status it ended; a file that cannot be had yet leaves the batch as it is."""
    taken = _take(engine, batch, batch.live, frozenset(engine.store.rows.of_batch(batch)))
    if taken is None:
        return
    outcomes = engine.store.outcomes.collect(
        batch,
        now=engine.clock.now(),
        resent=RESENT,
        absent=("gone", "its result file is gone at the provider") if taken.lost else _absent(batch),
        replan_at=engine.clock.now() + _pause_before_resend(batch),
        text_=f"collected {taken.lines} lines{_extras(taken)}",
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
    wanted = frozenset(engine.store.rows.unanswered(batch))
    for submission in batch.live:
        if submission.ended_at is not None and _take(engine, batch, [submission], wanted) is not None:
            engine.store.outcomes.take_late(batch, submission, now=engine.clock.now())


def _take(engine: Engine, batch: Batch, tries: Sequence[Submission], wanted: frozenset[int]) -> _Taken | None:
    """The files of these tries in the spool and the wanted rows' results in the store.

    None where that has to be done again later: nothing is lost or missing before half an hour has been spent on it.
    """
    now = engine.clock.now()
    try:
        taken = _read(engine, batch, tries, wanted)
        lacking = taken.what_lacks(batch, tries)
        if lacking is None:
            return taken
        for submission in tries:
            if submission.short_since is None:
                engine.store.batches.note_submission(submission, now=now, event=lacking, short_since=now)
        sure = look_again(engine, batch, tries)
        for name in taken.names:
            engine.spool.delete(name)
        tries = [s for s in engine.store.batches.get(batch.id).live if s.id in {one.id for one in tries}]
        if sure and all(now - (s.short_since or now) >= SHORT_PATIENCE_S for s in tries):
            return _read(engine, batch, tries, wanted)  # one more download has the last word
    except AdapterError as error:
        _later(engine, batch, f"results could not be fetched: {error.message}")
    except SpoolError as error:
        for submission in tries:
            for index in range(len(submission.files)):
                engine.spool.delete(_file_name(engine, batch, submission, index))
        _later(engine, batch, f"results have to be fetched again: {error}")
    else:
        _later(engine, batch, f"{lacking}: fetching them again")
    return None


def _file_name(engine: Engine, batch: Batch, submission: Submission, index: int) -> str:
    return f"{engine.store.jobs.get(batch.job_id).spool}/results/{submission.tag}-{index}"


def _read(engine: Engine, batch: Batch, tries: Sequence[Submission], wanted: frozenset[int]) -> _Taken:
    """Every result file whole in the spool, where it is not fetched twice, and its wanted lines in the store."""
    taken, adapter = _Taken(), engine.adapter(batch.profile)
    for submission in tries:
        for index, handle in enumerate(submission.files):
            name = _file_name(engine, batch, submission, index)
            try:
                _fetch(engine, adapter, handle, name)
            except RemoteGone as error:
                taken.lost = True
                engine.note(f"batch {batch.ordinal}: a result file is not there: {error.message}")
                continue
            taken.names.append(name)
            with engine.spool.reader(name) as reader:
                taken.torn = taken.torn or not (reader.complete or _parses(adapter, reader))
    _stage(engine, batch, adapter, taken, wanted)
    return taken


def _fetch(engine: Engine, adapter: BatchAdapter, handle: str, name: str) -> None:
    if not engine.spool.exists(name):
        with engine.spool.writer(name) as writer:
            for chunk in adapter.fetch(handle):
                writer.write(chunk)


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


def _stage(engine: Engine, batch: Batch, adapter: BatchAdapter, taken: _Taken, wanted: frozenset[int]) -> None:
    """Write the wanted rows' results down; what names no row of the batch is kept in a file of its own, for people."""
    job = engine.store.jobs.get(batch.job_id)
    name = f"{job.spool}/quarantine/{batch.id}"
    with engine.spool.writer(name) as quarantine:
        results = _results(engine, job, batch, adapter, taken, quarantine)
        engine.store.outcomes.stage(batch, (result for result in results if result.row in wanted))
    if taken.quarantined:
        engine.note(f"batch {batch.ordinal}: {taken.quarantined} result lines name no row; kept in the spool: {name}")
    else:
        engine.spool.delete(name)


def _results(
    engine: Engine, job: Job, batch: Batch, adapter: BatchAdapter, taken: _Taken, quarantine: FrameWriter
) -> Iterator[RowResult]:
    """Each line's row by its id, never by its place."""
    judge = Judge(Task.model_validate_json(job.task))
    store_id, parse = engine.store.store_id, adapter.parse
    rows = frozenset(engine.store.rows.of_batch(batch))
    seen: set[int] = set()
    for name, number, line in _lines(engine, taken.names):
        taken.lines += 1
        try:
            result = parse(line)
            row = row_of(result.custom_id, store_id, batch)
            if row is None or row not in rows:
                raise BadLine("names no row of this batch")
        except BadLine as error:
            taken.quarantined += 1
            quarantine.append(f"{name}:{number}: {error}: ".encode() + line)
            continue
        taken.duplicates += row in seen
        seen.add(row)
        taken.rows = len(seen)
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


def _extras(read: _Taken) -> str:
    parts = []
    if read.duplicates:
        parts.append(f"{read.duplicates} more than once")
    if read.quarantined:
        parts.append(f"{read.quarantined} quarantined")
    return f" ({', '.join(parts)})" if parts else ""
