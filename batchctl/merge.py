"""Results go back to their rows: one output row for each input row, in input order, and the sum is checked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchctl.answers import AnswerColumns, answer_columns, reader_of
from batchctl.columns import ColumnType, Vectors, infer_types
from batchctl.engine.context import Engine
from batchctl.errors import UserError
from batchctl.outputs import PARQUET, Announce, open_output, state_of
from batchctl.task import Task
from batchctl_adapters.vectors import unpack
from batchctl_store.records import Job, StoreError
from batchctl_store.spool import SpoolError


@dataclass(slots=True)
class Accounting:
    """What became of every row; `outcomes` sums up to `rows`, or the merge fails."""

    rows: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    input_tokens: int = 0
    output_tokens: int = 0
    judged: int = 0  # rows with a gold value and an answer
    correct: int = 0

    @property
    def succeeded(self) -> int:
        """Rows with an answer."""
        return self.outcomes.get("succeeded", 0)

    @property
    def accuracy(self) -> float | None:
        """Share of the judged rows whose answer is the gold value; None where no gold column is named."""
        return self.correct / self.judged if self.judged else None


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


def write_results(engine: Engine, job: Job, path: Path, *, announce: Announce | None = None) -> Accounting:
    """Write every row of the job to `path` (.jsonl, .csv or .parquet), as it stands now.

    Raises StoreError where the rows written are not the rows taken in: the file is not put in place then.
    """
    task = Task.model_validate_json(job.task)
    added = answer_columns(task, job.columns)
    accounting = Accounting()
    with (
        engine.spool.reader(f"{job.spool}/rows") as rows,
        open_output(path, columns=job.columns, added=added.names, types=_types(engine, job, added, path)) as output,
    ):
        output.announce = announce
        for raw, extra in _rows(engine, job, task, added, accounting, rows.lines()):
            output.write(raw, extra)
        if accounting.rows != job.rows or sum(accounting.outcomes.values()) != job.rows:
            raise StoreError(
                f"job {job.name} took {job.rows} rows in and {accounting.rows} would come out: nothing was written"
            )
    return accounting


def _types(engine: Engine, job: Job, added: AnswerColumns, path: Path) -> Mapping[str, ColumnType | Vectors]:
    """What a typed output has to know beforehand: looked for only where the file has types."""
    if path.suffix.lower() != PARQUET:
        return {}
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


def _rows(
    engine: Engine, job: Job, task: Task, added: AnswerColumns, accounting: Accounting, lines: Iterator[bytes]
) -> Iterator[tuple[bytes, Mapping[str, Any]]]:
    outcomes, read = accounting.outcomes, reader_of(task)
    gold = task.gold(job.columns)
    for raw, stored in zip(lines, engine.store.rows.merged(job.id), strict=True):
        _, state, outcome, attempts, batch, answer, finish, tokens_in, tokens_out, _cached, _model, code, error = stored
        word = outcome or state
        succeeded = word == "succeeded"
        accounting.rows += 1
        outcomes[word] = outcomes.get(word, 0) + 1
        accounting.input_tokens += tokens_in or 0
        accounting.output_tokens += tokens_out or 0
        account = {
            "outcome": word,
            "error": None if succeeded else _reason(code, error),
            "finish_reason": finish,
            "input_tokens": tokens_in,
            "output_tokens": tokens_out,
            "attempts": attempts,
            "batch": None if batch is None else f"b{batch}",
        }
        value = answer if succeeded else None  # half an answer is no answer: it stays in the store
        if gold is not None and succeeded and (right := _right_answers(raw, gold)):
            accounting.judged += 1
            accounting.correct += answer in right
        yield raw, added.cells(read(value) if read is not None and value is not None else value, account)


def _reason(code: str | None, error: str | None) -> str | None:
    if code and error:
        return f"{code}: {error}" if not error.startswith(code) else error
    return error or code


def _right_answers(raw: bytes, column: str) -> list[str]:
    """Every answer that would be right: a cell may list several; none where it is empty."""
    value = json.loads(raw).get(column)
    values = value if isinstance(value, list) else [value]
    return [one if isinstance(one, str) else str(one) for one in values if one is not None]
