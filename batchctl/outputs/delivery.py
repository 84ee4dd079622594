"""What `results` does, for the command line and for Python: a job's rows to a file, to a stream, or as they end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from batchctl.engine.cleaning import wrote_whole
from batchctl.engine.context import Engine
from batchctl.errors import UsageError, UserError
from batchctl.merge import write_results
from batchctl.outputs.files import FORMATS, Format
from batchctl.outputs.joining import Accounting, Joined, Joiner
from batchctl.outputs.picking import Pick, condition
from batchctl_store.records import CLOSED, Batch, Job, StoreError

LOOK_S = 1.0  # of the machine's clock, between two looks at a job that is followed
_CHUNK = 1_000  # rows looked up at a time


def require_free(target: Path, *, force: bool) -> None:
    """Raises UsageError where there is a file already that the user did not say to replace."""
    if target.exists() and not force:
        raise UsageError(f"{target} exists", hint="name another file, or replace it with --force")


def require_finished(job: Job) -> None:
    """Raises UserError where rows of the job are still out."""
    if job.finished_at is None:
        raise UserError(
            f"job {job.name} is not finished: {job.final_rows:,} of {job.rows:,} rows are final",
            hint=f"wait for it with `batchctl wait {job.name}`, or write it as it stands with --partial",
        )


def deliver(
    engine: Engine, job: Job, target: Path | BinaryIO, *, format: Format | None, pick: Pick, id_column: str | None
) -> Accounting:
    """Write the rows meant to a file, or to a stream once they are whole on disk. Raises as `write_results`."""
    if isinstance(target, Path):
        accounting = write_results(engine, job, target, format=format, pick=pick, id_column=id_column)
        if accounting.written == accounting.rows:
            wrote_whole(engine, job, str(target))
        return accounting
    shape: Format = format or "jsonl"
    with tempfile.TemporaryDirectory(dir=engine.home) as folder:
        whole = Path(folder) / f"rows{FORMATS[shape]}"
        accounting = write_results(engine, job, whole, format=shape, pick=pick, id_column=id_column)
        with whole.open("rb") as rows:
            shutil.copyfileobj(rows, target)
        target.flush()
    return accounting


class Followed:
    """A job's rows as they become final, each once; ends when all are.

    A row is final when its batch is collected and it is not sent again. Reads the store only: another process does the
    work. Holds a byte for each row.
    """

    def __init__(self, engine: Engine, job: Job, pick: Pick) -> None:
        """Raises UsageError for a condition that is wrong."""
        if pick.sample is not None:
            raise UsageError("a sample is taken of a finished job's rows", hint="leave --follow or --sample out")
        self._engine, self._job = engine, job
        self._joiner = Joiner(engine, job)
        self._holds = condition(self._joiner, pick.where)
        self._told = bytearray(job.rows)  # 0: not yet; else the place of the row's outcome among `_words`, plus 1
        self._words: list[str] = []
        self._read: set[int] = set()  # batches
        self._seen = 0  # rows that were final when their batches were last looked at
        self.written = 0

    @property
    def joiner(self) -> Joiner:
        """For the cells of the rows."""
        return self._joiner

    def rows(self, idle: Callable[[], None]) -> Iterator[Joined]:
        """The rows meant. `idle` is called where there is nothing new: it sleeps, or raises to end it."""
        while True:
            job = self._engine.store.jobs.get(self._job.id)
            if job.final_rows != self._seen:
                yield from self._news(job)
                self._seen = job.final_rows
            if job.finished_at is not None:
                yield from self._rest(self._joiner_of_all())
                return
            idle()

    @property
    def accounting(self) -> Accounting:
        """Of the whole job, once `rows` has ended."""
        return self._joiner.accounting

    def so_far(self) -> Accounting:
        """The same where `rows` was ended early."""
        joiner = Joiner(self._engine, self._job)
        for _ in joiner.all():
            pass
        joiner.accounting.written = self.written
        return joiner.accounting

    def _joiner_of_all(self) -> Joiner:
        self._joiner = Joiner(self._engine, self._job)
        return self._joiner

    def _news(self, job: Job) -> Iterator[Joined]:
        told = self._count()
        batches = self._engine.store.batches.load(job_id=job.id)
        closed = [batch for batch in batches if batch.state in CLOSED and batch.id not in self._read]
        for batch in sorted(closed, key=lambda batch: batch.updated_at):
            yield from self._of_batch(batch)
            self._read.add(batch.id)
        if self._count() - told < job.final_rows - self._seen:  # rows that were in no batch, or a late answer
            yield from self._meant(row for row in Joiner(self._engine, job).all() if row.is_final)

    def _count(self) -> int:
        return len(self._told) - self._told.count(0)

    def _of_batch(self, batch: Batch) -> Iterator[Joined]:
        stored = list[tuple[object, ...]]()
        for one in self._engine.store.rows.final_of(batch):
            stored.append(one)
            if len(stored) == _CHUNK:
                yield from self._meant(self._joined(stored))
                stored.clear()
        yield from self._meant(self._joined(stored))

    def _joined(self, stored: list[tuple[object, ...]]) -> Iterator[Joined]:
        stored.sort(key=lambda one: int(str(one[0])))  # rows that follow others come behind them
        numbers = [int(str(one[0])) for one in stored]
        with self._engine.spool.reader(f"{self._job.spool}/rows") as lines:
            for raw, one in zip(lines.pick(numbers), stored, strict=True):
                yield self._joiner.join(raw, one)

    def _rest(self, joiner: Joiner) -> Iterator[Joined]:
        """What was not told yet; reads every row, so that the accounting is that of the whole job."""
        changed = 0
        for row in joiner.all():
            place = self._told[row.number]
            if not place:
                yield from self._meant([row])
            elif self._words[place - 1] != row.outcome:
                changed += 1
        if not all(self._told):
            raise StoreError(f"job {self._job.name}: rows are left that were not written")
        joiner.accounting.written = self.written
        if changed:
            joiner.accounting.notes.append(
                f"{changed:,} rows were written with an outcome that has changed since (retry, or a late answer):"
                f" batchctl results {self._job.name} has them as they are"
            )

    def _meant(self, rows: Iterator[Joined] | list[Joined]) -> Iterator[Joined]:
        for row in rows:
            if self._told[row.number]:
                continue
            if row.outcome not in self._words:
                self._words.append(row.outcome)
            self._told[row.number] = self._words.index(row.outcome) + 1
            if self._holds is None or self._holds(row):
                self.written += 1
                yield row
