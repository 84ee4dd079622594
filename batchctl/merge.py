"""Results go back to their rows: one output row for each input row, in input order, and the sum is checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from batchctl.answers import AnswerColumns
from batchctl.engine.context import Engine
from batchctl.errors import UserError
from batchctl.outputs.columns import ColumnType, Vectors, infer_types
from batchctl.outputs.files import Announce, Format, format_of, open_output, state_of
from batchctl.outputs.joining import Accounting, Joiner
from batchctl.outputs.picking import Pick, picked
from batchctl.outputs.provider_lines import provider_lines
from batchctl_adapters.vectors import unpack
from batchctl_store.records import Job, StoreError
from batchctl_store.spool import SpoolError


def merge_job(engine: Engine, job: Job) -> None:
    """The merge that a finished job asked for; a failure is noted and tried again later."""
    if job.output_path is None:
        return
    now, path = engine.clock.now(), Path(job.output_path)
    try:
        _refuse_strangers(path, job)
        accounting = write_results(engine, job, path, announce=lambda state: _expect(engine, job, state))
    except (UserError, StoreError, SpoolError, OSError) as error:
        if str(error) != job.merge_error:
            engine.store.jobs.update(job.id, now=now, event=f"merge failed: {error}", merge_error=str(error))
        engine.note(f"the merge of {job.name} failed and is tried again at the next tick: {error}")
        return
    text = f"merged {accounting.rows} rows into {job.output_path}"
    engine.store.jobs.update(job.id, now=now, event=text, merged_at=now, merge_error=None, output_known=state_of(path))


def _expect(engine: Engine, job: Job, state: str) -> None:
    """Know the new file before it is in place: after a kill in between it is still ours, and so is the old one."""
    known = f"{job.output_known or ''} {state}".strip()
    engine.store.jobs.update(job.id, now=engine.clock.now(), event="putting the result in place", output_known=known)


def _refuse_strangers(path: Path, job: Job) -> None:
    """A merge replaces what stood there at submit, or its own earlier result; never what somebody put there since."""
    if state_of(path) not in (None, *(job.output_known or "").split()):
        raise UserError(
            f"{path} is there and is not what batchctl knows: it was written or changed after the submit",
            hint=f"move it away, or write elsewhere: batchctl results {job.name} -o OTHER_FILE",
        )


def write_results(
    engine: Engine,
    job: Job,
    path: Path,
    *,
    announce: Announce | None = None,
    format: Format | None = None,
    pick: Pick | None = None,
    id_column: str | None = None,
) -> Accounting:
    """Write the rows of the job, or those that `pick` means, to `path`, as they stand now, in input order.

    `id_column` is for the format `openai` (provider_lines.py). Raises UsageError for a condition that is wrong, and
    StoreError where the rows read are not the rows taken in: the file is not put in place then.
    """
    joiner, shape = Joiner(engine, job), format or format_of(path)
    added = joiner.added
    with ExitStack() as stack:
        rows = picked(engine, job, joiner, pick or Pick())
        lines: Iterator[tuple[bytes, Mapping[str, Any]]]
        if shape == "openai":
            lines = stack.enter_context(provider_lines(engine, joiner, rows, id_column))
        else:
            lines = ((row.raw, joiner.cells(row)) for row in rows)
        types = _types(engine, job, added) if shape == "parquet" else {}
        output = stack.enter_context(
            open_output(path, columns=job.columns, added=added.names, types=types, format=format)
        )
        output.announce = announce
        for raw, cells in lines:
            output.write(raw, cells)
            joiner.accounting.written += 1
    return joiner.accounting


def _types(engine: Engine, job: Job, added: AnswerColumns) -> Mapping[str, ColumnType | Vectors]:
    """What a typed output has to know beforehand."""
    with engine.spool.reader(f"{job.spool}/rows") as rows:
        found: dict[str, ColumnType | Vectors] = {**infer_types(rows.lines(), job.columns), **added.types}
    for name, type_ in added.types.items():
        if type_ in (ColumnType.VECTOR, ColumnType.VECTORS):
            found[name] = Vectors(_dimensions(engine, job), several=type_ is ColumnType.VECTORS)
    return found


def _dimensions(engine: Engine, job: Job) -> int | None:
    """Of the first vector there is; all of a job's are of one model and have as many."""
    with closing(engine.store.rows.merged(job.id)) as stored:
        answer = next((row[5] for row in stored if row[2] == "succeeded" and row[5]), None)
    return None if answer is None else len(unpack(answer.partition(" ")[0])[0])
