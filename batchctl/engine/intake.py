"""A table becomes a job: read once, checked whole, copied to the spool, rendered, measured, planned. Sends nothing."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from batchctl.engine.context import ID_WIDTH, Engine
from batchctl.engine.keys import KEYS, Keys, context_of
from batchctl.engine.locks import lives, ownership
from batchctl.engine.numbers import Numbers
from batchctl.engine.plan import INPUTS, plan_rows
from batchctl.engine.prepare import preparer
from batchctl.engine.reuse import share
from batchctl.errors import InputError, UsageError
from batchctl.inputs import Format, Named, Table, open_table
from batchctl.lint import lint, refuse
from batchctl.outputs.files import state_of
from batchctl.render import model_of
from batchctl.task import Task
from batchctl_adapters.base import BatchAdapter, Kind
from batchctl_adapters.profile import Profile
from batchctl_store.records import DuplicateJob, IllegalMove, Job, NewJob

SAME_WITHIN_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Order:
    """What the user asked for in one submit."""

    task: Task
    source: Named | Table
    profile: str
    output: Path | None = None
    input_format: Format | None = None
    max_batch_requests: int | None = None
    max_batch_bytes: int | None = None
    max_attempts: int = 3
    again: bool = False
    dedupe: bool = True  # rows with the same request are sent once
    reuse: bool = False  # answers of earlier jobs are taken
    keep_remote: bool = False  # its files at the provider are left to their expiry


class Groups:
    """The group of each row, where rows have any: few names for many rows."""

    def __init__(self, folder: Path) -> None:
        self.names: dict[str, int] = {}
        self._rows = Numbers(folder)

    def add(self, group: str) -> None:
        """That of the next row."""
        self._rows.append(self.names.setdefault(group, len(self.names)))

    def __iter__(self) -> Iterator[str]:
        names = list(self.names)
        return (names[number] for number in self._rows)


@dataclass(frozen=True, slots=True)
class Taken:
    """An input that was read whole and is in the spool."""

    folder: str
    table: Table
    kind: Kind
    input_hash: str  # of the requests and the columns' names: the order of a row's keys makes no other job (case 34)
    columns: tuple[str, ...]
    sizes: Numbers  # bytes of each row's body
    envelope: int  # bytes of each line besides its body
    groups: Groups
    repeats: bool  # two rows ask the same


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
    table = order.source
    if not isinstance(table, Table):
        table = open_table(table, format=order.input_format)
    prepare = preparer(order.task, profile, adapter)
    folder = f"jobs/{secrets.token_hex(8)}"
    sizes, groups = Numbers(engine.home), Groups(engine.home)
    several, keys = len(table.sources) > 1, Keys(engine.home)
    spool = engine.spool
    try:
        with (
            spool.writer(f"{folder}/rows") as rows,
            spool.writer(f"{folder}/bodies") as bodies,
            spool.writer(f"{folder}/lines") as lines,
            ExitStack() as more,
        ):
            inputs = more.enter_context(spool.writer(f"{folder}/{INPUTS}")) if prepare.several else None
            for row in table.rows():
                raw, body, group, _, texts, same = prepare(row)
                if inputs is not None:
                    inputs.append(b"%d" % (len(texts) or 1))
                rows.append(raw)
                bodies.append(body)
                lines.append(f"{row.line} of {row.file}".encode() if several else b"%d" % row.line)
                keys.add(len(sizes), body if same is None else same)
                sizes.append(len(body))
                if group is not None:
                    groups.add(group)
            for problem in prepare.problems():
                raise problem
            columns = prepare.columns(table.columns)
            check_expected(order.task, table)
        repeats = keys.write(spool, f"{folder}/{KEYS}", context_of(order.task, profile, prepare.kind))
    except BaseException:
        _drop(engine, folder)
        raise
    with spool.reader(f"{folder}/bodies") as read:
        rendered = read.sha256
    envelope = len(adapter.encode_line("x" * ID_WIDTH, b"{}", kind=prepare.kind)) - 2
    hashed = _digest([rendered, sorted(columns)])
    return Taken(folder, table, prepare.kind, hashed, columns, sizes, envelope, groups, repeats)


def check_expected(task: Task, table: Table) -> None:
    """Raises InputError where the task names a column with the right answers that no row has."""
    if task.expected is not None and task.expected not in table.columns:
        raise InputError(table.name, None, f"has no column {task.expected!r}, which the task names as `expected`")


def _store(engine: Engine, order: Order, profile: Profile, taken: Taken, owner: str) -> Job:
    now, store, table = engine.clock.now(), engine.store, taken.table
    model = model_of(order.task, profile) or ", ".join(sorted(taken.groups.names))
    new = NewJob(
        stem=_stem(order, table),
        task=order.task.model_copy(update={"kind": taken.kind}).model_dump_json(),
        task_hash=order.task.digest,
        input_name=table.name,
        input_hash=taken.input_hash,
        input_format=table.format,
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
    within = 0.0 if order.reuse else SAME_WITHIN_S  # a job that is over is a source of answers
    try:
        job = store.jobs.create(new, now=now, owner=owner, again=order.again, same_within_s=within)
    except DuplicateJob as same:
        raise _is_there(same.name, reuse=order.reuse) from same
    try:
        store.rows.add(job.id, enumerate(size + taken.envelope for size in taken.sizes), iter(taken.groups))
        share(engine, job, dedupe=order.dedupe and taken.repeats, reuse=order.reuse)
        plan_rows(engine, job)
        store.jobs.update(job.id, now=engine.clock.now(), event="ready to be sent", ready_at=engine.clock.now())
    except BaseException:
        store.jobs.forget(job.id)
        raise
    return store.jobs.get(job.id)


def _is_there(name: str, *, reuse: bool) -> UsageError:
    what = f"the same input, task and provider are already job {name}"
    if reuse:
        return UsageError(f"{what}, which is not over", hint=f"wait for it with `batchctl wait {name}`")
    how = "submit it once more with --again, or with --reuse to send only what has no answer"
    return UsageError(what, hint=f"look at it with `batchctl status {name}`; {how}")


def sweep(engine: Engine) -> None:
    """Forget jobs whose intake died half-way; nothing of them was ever sent."""
    for job, owner in engine.store.jobs.unready():
        if lives(engine.locks, owner):
            continue
        try:
            engine.store.jobs.forget(job.id)
        except IllegalMove:  # its owner came to the end between the two looks, and is gone for that reason
            continue
        _drop(engine, job.spool)


def _drop(engine: Engine, folder: str) -> None:
    for name in ("rows", "bodies", "lines", INPUTS, KEYS):
        engine.spool.delete(f"{folder}/{name}")


def _stem(order: Order, table: Table) -> str:
    stem = re.sub(r"[^a-z0-9]+", "-", (order.task.name or table.stem).lower()).strip("-")[:40].strip("-")
    return stem if stem and not stem.isdecimal() else f"job-{stem}".strip("-")


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
