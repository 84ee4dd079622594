"""batchctl from Python: what the commands of these names do, by the same functions, with the same checks.

Settings, keys and the store are found as the command line finds them (`batchctl.toml`, `BATCHCTL_HOME`). Whatever goes
wrong is raised as one of `batchctl.errors`; what a command says on stderr is logged under the name `batchctl`.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from batchctl.errors import UsageError, UserError
from batchctl.exits import ERROR, USAGE

if TYPE_CHECKING:
    from batchctl.engine.context import Engine
    from batchctl.following import Standing
    from batchctl.inputs import Format as InputFormat
    from batchctl.outputs.files import Format
    from batchctl.outputs.joining import Accounting, Joined, Joiner
    from batchctl.outputs.picking import Pick
    from batchctl_store.records import Job

P = ParamSpec("P")
R = TypeVar("R")
Name = str | Path
log = logging.getLogger("batchctl")


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job as `batchctl status --json` has it (docs/json.md)."""

    job: str
    number: int
    state: str
    exit_code: int  # 0 done, 3 finished with failed rows, 4 running, 5 late, 6 needs a person
    rows: int
    succeeded: int
    failed: int
    repeated: int  # rows that ask the same as another: sent once
    reused: int  # rows with the answer of an earlier job
    batches: int
    open_batches: int
    batches_in_doubt: int
    provider: str
    model: str
    input: str
    output: str | None
    created_at: datetime
    finished_at: datetime | None
    merged_at: datetime | None
    merge_error: str | None
    account_paused: str | None
    window_ends_at: datetime | None
    next_action_at: datetime | None
    next_action: str

    @property
    def finished(self) -> bool:
        """Every row is final, and the output, where one was named, is written."""
        return self.state == "finished"


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One row of a job, with what became of it."""

    number: int  # from 1, in the table's order
    input: dict[str, Any]
    answer: Any  # a text, a label, parsed JSON or a vector (array of floats); None where the row has not succeeded
    outcome: str
    error: str | None
    finish_reason: str | None
    input_tokens: int | None
    output_tokens: int | None
    attempts: int
    batch: str | None
    added: dict[str, Any]  # the cells that an output file has beside the input's, by their columns

    def as_dict(self) -> dict[str, Any]:
        """The row as an output file has it."""
        return {**self.input, **self.added}


def _explained(function: Callable[P, R]) -> Callable[P, R]:
    """Whatever batchctl can explain becomes a UserError with that explanation; a defect stays what it is."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with _explaining():
            return function(*args, **kwargs)

    return call


@contextmanager
def _explaining() -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        from batchctl.failures import explain

        found = explain(error)
        if found is None:
            raise
        kind = UsageError if found.code == USAGE else UserError
        raise kind(found.message, hint=found.hint) from error


@_explained
def submit(
    task: Name | None,
    table: Name | Iterable[Name],
    *,
    provider: str | None = None,
    output: Name | None = None,
    force: bool = False,
    again: bool = False,
    dedupe: bool = True,
    reuse: bool = False,
    keep_remote: bool = False,
    format: InputFormat | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
    max_batch_requests: int | None = None,
    max_batch_bytes: int | None = None,
    max_attempts: int = 3,
    tick: bool = True,
    wait: bool = False,
) -> str:
    """Send every row of `table` with the prompt in `task`, and return the job's name.

    `table` is one input or several (docs/tables.md); without a task (None) they are ready-made requests. The table is
    copied: it may change later. Rows that ask the same are sent once (`dedupe`), `reuse` takes answers of earlier jobs
    (docs/reuse.md). `tick=False` stores the job only, `wait` goes on until it is finished.
    """
    from batchctl.config import load_settings
    from batchctl.engine.intake import create_job
    from batchctl.ordering import Asked, Options, doubts, order_of
    from batchctl.session import opened

    inputs = (str(table),) if isinstance(table, str | Path) else tuple(str(one) for one in table)
    asked = Asked(None if task is None else Path(task), inputs, format, encoding, sheet)
    options = Options(
        provider=provider,
        output=None if output is None else Path(output),
        force=force,
        again=again,
        dedupe=dedupe,
        reuse=reuse,
        keep_remote=keep_remote,
        max_batch_requests=max_batch_requests,
        max_batch_bytes=max_batch_bytes,
        max_attempts=max_attempts,
    )
    settings = load_settings()
    order = order_of(asked, options, settings)
    with opened(settings, profile=order.profile) as engine:
        for warning in doubts(engine, order, asked.task):
            log.warning(warning)
        job = create_job(engine, order)
        for note in engine.notes:
            log.info(note)
        if wait and tick:
            _follow(engine, job, None)
        elif tick:
            _pass(engine, job)
    return job.name


@_explained
def status(job: str | int, *, refresh: bool = False) -> JobStatus:
    """Where a job stands, by its name or number; with `refresh` the provider is asked first."""
    if refresh:
        _refresh(str(job))
    return _status(str(job))


@_explained
def jobs() -> list[JobStatus]:
    """Every job, oldest first."""
    from batchctl.reading import read
    from batchctl.verdict import codes
    from batchctl.words import job_json

    reading = read()
    rows = reading.views.jobs()
    found = codes(reading, rows)
    return [_typed(job_json(row, found[row["id"]], reading.now)) for row in rows]


@_explained
def wait(job: str | int, *, timeout: float | None = None) -> JobStatus:
    """Run passes until the job is finished and merged, or needs a person, or `timeout` seconds are over.

    `exit_code` says which. Raises UserError where the output cannot be written.
    """
    from batchctl.session import named, opened

    with opened() as engine:
        _follow(engine, named(engine, str(job)), timeout)
    return _status(str(job))


class Results:
    """A job's rows: iterate over them, or write them to a file. Each time they are read as they stand then."""

    def __init__(self, job: str, pick: Pick, *, partial: bool, follow: bool) -> None:
        self._job, self._pick, self._partial, self._follow = job, pick, partial, follow
        self.accounting: Accounting | None = None  # of all rows, once they were iterated over or written

    def __iter__(self) -> Iterator[ResultRow]:
        """In input order; with `follow` in the order in which they become final, until the job is finished.

        Raises UserError where the job is not finished (unless `partial` or `follow`).
        """
        from batchctl.outputs.delivery import require_finished
        from batchctl.outputs.joining import Joiner
        from batchctl.outputs.picking import picked
        from batchctl.session import named, opened

        with _explaining(), opened(offline=True) as engine:
            job = named(engine, self._job)
            if self._follow:
                yield from self._followed(engine, job)
                return
            if not self._partial:
                require_finished(job)
            joiner = Joiner(engine, job)
            for row in picked(engine, job, joiner, self._pick):
                joiner.accounting.written += 1
                yield _row(joiner, row)
            self.accounting = joiner.accounting

    def _followed(self, engine: Engine, job: Job) -> Iterator[ResultRow]:
        from batchctl.outputs.delivery import LOOK_S, Followed
        from batchctl.reading import read
        from batchctl.verdict import reason

        followed = Followed(engine, job, self._pick)

        def idle() -> None:
            reading = read()
            if needed := reason(reading, reading.job(str(job.id))):
                raise UserError(f"{job.name}: needs you: {needed}", hint=f"batchctl resume {job.name}")
            time.sleep(LOOK_S)

        for row in followed.rows(idle):
            yield _row(followed.joiner, row)
        self.accounting = followed.accounting

    @_explained
    def write(
        self, path: Name, *, format: Format | None = None, force: bool = False, id_column: str | None = None
    ) -> Accounting:
        """Write the rows to a file, whole or not at all. `format` is by default what the file's name ends in."""
        from batchctl.outputs.delivery import deliver, require_finished, require_free
        from batchctl.session import named, opened

        if self._follow:
            raise UserError("rows that are followed are iterated over", hint="leave `follow` out to write a file")
        require_free(Path(path), force=force)
        with opened(offline=True) as engine:
            job = named(engine, self._job)
            if not self._partial:
                require_finished(job)
            self.accounting = deliver(engine, job, Path(path), format=format, pick=self._pick, id_column=id_column)
        for note in self.accounting.notes:
            log.warning(note)
        return self.accounting


def results(
    job: str | int,
    *,
    where: str | Iterable[str] = (),
    sample: int | None = None,
    seed: int = 0,
    partial: bool = False,
    follow: bool = False,
) -> Results:
    """A job's rows, or those that all conditions of `where` hold for (docs/results.md), or a `sample` of them.

    Nothing is read before they are iterated over or written.
    """
    from batchctl.outputs.picking import Pick

    conditions = (where,) if isinstance(where, str) else tuple(where)
    return Results(str(job), Pick(conditions, sample, seed), partial=partial, follow=follow)


def _row(joiner: Joiner, row: Joined) -> ResultRow:
    from batchctl.rowjson import parse_object

    cells = joiner.cells(row)
    return ResultRow(row.number + 1, parse_object(row.raw), row.value, **row.account, added=cells)


def _status(name: str) -> JobStatus:
    from batchctl.reading import read
    from batchctl.verdict import codes
    from batchctl.words import job_json

    reading = read()
    row = reading.job(name)
    return _typed(job_json(row, codes(reading, [row])[row["id"]], reading.now))


def _typed(said: dict[str, Any]) -> JobStatus:
    times = {key: datetime.fromisoformat(value) for key, value in said.items() if key.endswith("_at") and value}
    return JobStatus(**{**said, **times})


def _pass(engine: Engine, job: Job) -> None:
    from batchctl.engine.locks import Busy
    from batchctl.engine.tick import run_pass

    try:
        report = run_pass(engine, jobs=[job.id])
    except Busy as busy:
        log.info("another tick (%s) is at work and will take %s", busy.holder, job.name)
        return
    for note in report.notes:
        log.warning(note)


def _refresh(name: str) -> None:
    from batchctl.engine.locks import Busy
    from batchctl.engine.tick import run_pass
    from batchctl.session import ask_again, opened

    with opened() as engine:
        try:
            report = ask_again(engine, name, run_pass)
        except Busy as busy:
            log.info("another tick (%s) is at work; this is what it has stored so far", busy.holder)
            return
        for note in report.notes:
            log.warning(note)


class _Log:
    """Shows where the jobs are, to the log."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, standing: Standing) -> None:
        line = "; ".join(standing.line(job) for job in standing.jobs)
        if line != self._last:
            self._last = line
            log.info(line)

    def tell(self, note: str) -> None:
        log.warning(note)


def _follow(engine: Engine, job: Job, timeout: float | None) -> None:
    from batchctl.engine.tick import run_pass
    from batchctl.following import follow
    from batchctl.reading import read

    code, standing = follow(engine, read(), [job.id], run=run_pass, shown=_Log(), check=lambda: None, timeout=timeout)
    if code == ERROR:
        hint = f"write it elsewhere: batchctl results {job.name} -o OTHER_FILE"
        raise UserError(str(standing.jobs[0]["merge_error"]), hint=hint)
