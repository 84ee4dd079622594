"""A table becomes a job: read once, checked whole, copied to the spool, rendered, measured, planned. Sends nothing."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from array import array
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from batchctl.engine.context import ID_WIDTH, Engine
from batchctl.engine.locks import lives, ownership
from batchctl.engine.plan import INPUTS, plan_rows
from batchctl.errors import InputError, UsageError
from batchctl.inputs import Format, Row, open_table
from batchctl.lint import lint, model_of, refuse
from batchctl.outputs import state_of
from batchctl.render import Renderer
from batchctl.task import Task
from batchctl_adapters.base import BatchAdapter
from batchctl_adapters.profile import Profile
from batchctl_store.records import DuplicateJob, Job, NewJob

SAME_WITHIN_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Order:
    """What the user asked for in one submit."""

    task: Task
    source: Path
    profile: str
    output: Path | None = None
    input_format: Format | None = None
    max_batch_requests: int | None = None
    max_batch_bytes: int | None = None
    max_attempts: int = 3
    again: bool = False
    keep_remote: bool = False  # its files at the provider are left to their expiry


@dataclass(frozen=True, slots=True)
class Taken:
    """An input that was read whole and is in the spool."""

    folder: str
    input_hash: str  # of the requests and the columns' names: the order of a row's keys makes no other job (case 34)
    columns: tuple[str, ...]
    sizes: array[int]  # bytes of each row's line as it will be sent


def create_job(engine: Engine, order: Order) -> Job:
    """Store the job, ready to be sent.

    Raises TaskError for what the provider would refuse in every row, InputError for the first row that is wrong,
    UsageError where the same job exists already; in all cases nothing is kept and nothing was sent.
    """
    with ownership(engine.locks) as owner:
        sweep(engine)
        profile, adapter = engine.profile(order.profile), engine.adapter(order.profile)
        refuse(lint(order.task, profile, adapter))
        taken = take_in(engine, order, profile, adapter)
        try:
            job = _store(engine, order, profile, taken, owner.name)
        except BaseException:
            _drop(engine, taken.folder)
            raise
        return job


def take_in(engine: Engine, order: Order, profile: Profile, adapter: BatchAdapter) -> Taken:
    """Copy the input to the spool and render every row beside it, in one pass over the file."""
    renderer = Renderer(order.task, model_of(order.task, profile), source=str(order.source))
    table = open_table(order.source, format=order.input_format)
    folder = f"jobs/{secrets.token_hex(8)}"
    envelope = len(adapter.encode_line("x" * ID_WIDTH, b"{}", kind=order.task.kind)) - 2
    sizes = array("Q")
    spool, encode, render = engine.spool, adapter.encode_body, renderer.request
    try:
        with (
            spool.writer(f"{folder}/rows") as rows,
            spool.writer(f"{folder}/bodies") as bodies,
            spool.writer(f"{folder}/lines") as lines,
            ExitStack() as more,
        ):
            inputs = more.enter_context(spool.writer(f"{folder}/{INPUTS}")) if order.task.each is not None else None
            for row in table.rows():
                request = render(row)
                try:
                    body = encode(request)
                except ValueError as error:
                    raise unsendable(order.source, row, error) from None
                if inputs is not None:
                    inputs.append(b"%d" % len(request.input))
                rows.append(row.raw)
                bodies.append(body)
                lines.append(b"%d" % row.line)
                sizes.append(len(body) + envelope)
            columns = tuple(table.columns)
            expected = order.task.expected
            if expected is not None and expected not in columns:
                raise InputError(
                    str(order.source), None, f"has no column {expected!r}, which the task names as `expected`"
                )
    except BaseException:
        _drop(engine, folder)
        raise
    with spool.reader(f"{folder}/bodies") as read:
        rendered = read.sha256
    return Taken(folder, _digest([rendered, sorted(columns)]), columns, sizes)


def unsendable(source: Path, row: Row, error: ValueError) -> InputError:
    """The row's request has no form in which the provider could be sent it."""
    return InputError(str(source), row.line, f"row {row.number}: {error}", hint="mend the row or the task")


def _store(engine: Engine, order: Order, profile: Profile, taken: Taken, owner: str) -> Job:
    now, store, model = engine.clock.now(), engine.store, model_of(order.task, profile)
    new = NewJob(
        stem=_stem(order),
        task=order.task.model_dump_json(),
        task_hash=order.task.digest,
        input_name=str(order.source),
        input_hash=taken.input_hash,
        input_format=(order.input_format or order.source.suffix.lstrip(".")).lower(),
        route_hash=_digest([profile.name, profile.base_url, model]),
        profile=profile.name,
        account=profile.account_name,
        model=model,
        columns=taken.columns,
        rows=len(taken.sizes),
        output_path=None if order.output is None else str(order.output.absolute()),
        output_known=None if order.output is None else state_of(order.output),
        max_batch_requests=order.max_batch_requests,
        max_batch_bytes=order.max_batch_bytes,
        max_attempts=order.max_attempts,
        spool=taken.folder,
        keep_remote=order.keep_remote,
    )
    try:
        job = store.jobs.create(new, now=now, owner=owner, again=order.again, same_within_s=SAME_WITHIN_S)
    except DuplicateJob as same:
        raise UsageError(
            f"the same input, task and provider are already job {same.name}",
            hint=f"look at it with `batchctl status {same.name}`, or submit it once more with --again",
        ) from same
    try:
        store.rows.add(job.id, enumerate(taken.sizes))
        plan_rows(engine, job)
        store.jobs.update(job.id, now=engine.clock.now(), event="ready to be sent", ready_at=engine.clock.now())
    except BaseException:
        store.jobs.forget(job.id)
        raise
    return store.jobs.get(job.id)


def sweep(engine: Engine) -> None:
    """Forget jobs whose intake died half-way; nothing of them was ever sent."""
    for job, owner in engine.store.jobs.unready():
        if not lives(engine.locks, owner):
            engine.store.jobs.forget(job.id)
            _drop(engine, job.spool)


def _drop(engine: Engine, folder: str) -> None:
    for name in ("rows", "bodies", "lines", INPUTS):
        engine.spool.delete(f"{folder}/{name}")


def _stem(order: Order) -> str:
    stem = re.sub(r"[^a-z0-9]+", "-", (order.task.name or order.source.stem).lower()).strip("-")[:40].strip("-")
    return stem if stem and not stem.isdecimal() else f"job-{stem}".strip("-")


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
