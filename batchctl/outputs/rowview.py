"""One row, whole: what was sent for it, what came of it, and each of its attempts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

from batchctl.engine.context import Engine, custom_id
from batchctl.errors import UsageError
from batchctl.outputs.joining import Joiner
from batchctl.outputs.picking import Pick, picked
from batchctl.rowjson import parse_exactly, parse_object
from batchctl_store.records import Batch, Job, RowResult, SubmissionState
from batchctl_store.spool import SpoolError

_MOST_MATCHES = 5  # told of, where a condition holds for several rows


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a row, in one batch. Times are UTC epoch seconds."""

    batch: str | None  # None: the row was never sent
    submission: str | None  # its tag
    remote_id: str | None
    custom_id: str | None  # under which the row was sent
    sent_at: float | None
    ended_at: float | None
    outcome: str | None  # None: not known yet
    error: str | None
    finish_reason: str | None
    input_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True, slots=True)
class RowView:
    """A row as `show` has it. `request` is the body as it was or will be sent; None where it is not kept any more."""

    job: str
    number: int  # from 1, in the table's order
    row: dict[str, Any]
    request: dict[str, Any] | None
    outcome: str
    answer: Any  # as the output has it: a text, a label, parsed JSON, a vector
    text: str | None  # as the store has it, also where it is no success
    error: str | None
    finish_reason: str | None
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    cost: float | None
    attempts: tuple[Attempt, ...]
    source_job: str | None = None  # the row was not sent: it has the answer of this job's `source_row`
    source_row: int | None = None  # from 1


def view_row(engine: Engine, job: Job, number: int) -> RowView:
    """Row `number` (from 1). Raises UsageError where there is none."""
    stored = engine.store.rows.one(job.id, number - 1) if 0 < number <= job.rows else None
    if stored is None:
        raise UsageError(f"job {job.name} has no row {number:,}", hint=f"its rows are 1 to {job.rows:,}")
    with engine.spool.reader(f"{job.spool}/rows") as rows:
        raw = next(rows.lines(number - 1))
    row = Joiner(engine, job).join(raw, stored)
    source = engine.store.sources.of(job.id, row.number)
    attempts = _attempts(engine, job, row.number) if source is None else ()
    _, _, _, _, _, text, finish, tokens_in, tokens_out, cached, model, *_ = stored
    return RowView(
        job=job.name,
        number=number,
        row=parse_object(raw),
        request=_request(engine, job, number - 1),
        outcome=row.outcome,
        answer=row.value,
        text=text,
        error=row.account["error"],
        finish_reason=finish,
        model=model,
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        cached_tokens=cached,
        cost=cost_of(job, attempts),
        attempts=attempts,
        source_job=None if source is None else _name(engine, source.job),
        source_row=None if source is None else source.source_row + 1,
    )


def _name(engine: Engine, job_id: int) -> str:
    found = engine.store.jobs.find(str(job_id))
    return f"number {job_id}, which was forgotten" if found is None else found.name


def find_row(engine: Engine, job: Job, expressions: tuple[str, ...]) -> int:
    """The number (from 1) of the one row that all conditions hold for. Raises UsageError where it is not one."""
    found = [row.number + 1 for row in islice(picked(engine, job, Joiner(engine, job), Pick(expressions)), 6)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(
            f"no row of {job.name} is like that", hint="`batchctl results JOB --where EXPR` tries conditions"
        )
    shown = ", ".join(map(str, found[:_MOST_MATCHES]))
    more = " and more" if len(found) > _MOST_MATCHES else ""
    raise UsageError(f"several rows of {job.name} are like that: {shown}{more}", hint="name one of these numbers")


def cost_of(job: Job, attempts: tuple[Attempt, ...]) -> float | None:
    """What the row's attempts cost, in US dollars; None: no price is known, and none is guessed at."""
    return None


def _request(engine: Engine, job: Job, number: int) -> dict[str, Any] | None:
    try:
        with engine.spool.reader(f"{job.spool}/bodies") as bodies:
            body = next(bodies.lines(number))
    except SpoolError:
        return None
    found = parse_exactly(body)
    return found if isinstance(found, dict) else None


def _attempts(engine: Engine, job: Job, number: int) -> tuple[Attempt, ...]:
    """Each try, oldest first; the last may be under way."""
    tries: list[tuple[int | None, RowResult | None]] = [*engine.store.rows.tries(job.id, number)]
    held = engine.store.rows.batch_of(job.id, number)
    if held is not None:
        tries.append((held, None))
    batches = [None if batch_id is None else engine.store.batches.get(batch_id) for batch_id, _ in tries]
    return tuple(_attempt(number, batch, result) for batch, (_, result) in zip(batches, tries, strict=True))


def _attempt(number: int, batch: Batch | None, result: RowResult | None) -> Attempt:
    sent = [] if batch is None else [s for s in batch.submissions if s.state is not SubmissionState.ABANDONED]
    last = max(sent, key=lambda submission: (submission.remote_id is not None, submission.n), default=None)
    tag = None if batch is None or last is None else batch.upload_tag or last.tag
    return Attempt(
        batch=None if batch is None else f"b{batch.ordinal}",
        submission=None if last is None else last.tag,
        remote_id=None if last is None else last.remote_id,
        custom_id=None if tag is None else custom_id(tag, number),
        sent_at=None if last is None else last.created_at,
        ended_at=None if last is None else last.ended_at,
        outcome=None if result is None else result.outcome,
        error=None if result is None else result.error,
        finish_reason=None if result is None else result.finish_reason,
        input_tokens=None if result is None else result.input_tokens,
        output_tokens=None if result is None else result.output_tokens,
    )
