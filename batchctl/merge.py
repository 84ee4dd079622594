"""Results go back to their rows: one output row for each input row, in input order, and the sum is checked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchctl.answers import AnswerColumns, answer_columns
from batchctl.engine.context import Engine
from batchctl.errors import UserError
from batchctl.outputs import open_output
from batchctl.rowjson import parse_exactly
from batchctl.task import Task
from batchctl_store.records import Job, StoreError
from batchctl_store.spool import SpoolError

MERGE_RETRY_S = 300.0


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
    now = engine.clock.now()
    try:
        accounting = write_results(engine, job, Path(job.output_path))
    except (UserError, StoreError, SpoolError, OSError) as error:
        engine.store.jobs.update(
            job.id,
            now=now,
            event=f"merge failed: {error}",
            merge_error=str(error),
            merge_not_before=now + engine.clock.real(MERGE_RETRY_S),
        )
        engine.note(f"the merge of {job.name} failed and is tried again: {error}")
        return
    text = f"merged {accounting.rows} rows into {job.output_path}"
    engine.store.jobs.update(job.id, now=now, event=text, merged_at=now, merge_error=None, merge_not_before=None)


def write_results(engine: Engine, job: Job, path: Path) -> Accounting:
    """Write every row of the job to `path` (.jsonl or .csv), as it stands now.

    Raises StoreError where the rows written are not the rows taken in: the file is not put in place then.
    """
    task = Task.model_validate_json(job.task)
    added = answer_columns(task, job.columns)
    accounting = Accounting()
    with (
        engine.spool.reader(f"{job.spool}/rows") as rows,
        open_output(path, columns=job.columns, added=added.names) as output,
    ):
        for raw, extra in _rows(engine, job, task, added, accounting, rows.lines()):
            output.write(raw, extra)
        if accounting.rows != job.rows or sum(accounting.outcomes.values()) != job.rows:
            raise StoreError(
                f"job {job.name} took {job.rows} rows in and {accounting.rows} would come out: nothing was written"
            )
    return accounting


def _rows(
    engine: Engine, job: Job, task: Task, added: AnswerColumns, accounting: Accounting, lines: Iterator[bytes]
) -> Iterator[tuple[bytes, Mapping[str, Any]]]:
    outcomes, parsed = accounting.outcomes, task.output.json_schema is not None
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
        yield raw, added.cells(parse_exactly(value.encode()) if parsed and value is not None else value, account)


def _reason(code: str | None, error: str | None) -> str | None:
    if code and error:
        return f"{code}: {error}" if not error.startswith(code) else error
    return error or code


def _right_answers(raw: bytes, column: str) -> list[str]:
    """Every answer that would be right: a cell may list several; none where it is empty."""
    value = json.loads(raw).get(column)
    values = value if isinstance(value, list) else [value]
    return [one if isinstance(one, str) else str(one) for one in values if one is not None]
