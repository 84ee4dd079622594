"""A job's rows with what became of each: the input's own line, the answer and its account, counted as they are read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from batchctl.answers import answer_columns, reader_of
from batchctl.engine.context import Engine
from batchctl.task import Task
from batchctl_store.records import Job, StoreError

Stored = tuple[Any, ...]
"""As `Rows.merged` has a row: number, state, outcome, attempts, batch, then the other fields of its result."""


@dataclass(slots=True)
class Accounting:
    """What became of every row; `outcomes` sums up to `rows`, or the merge fails. `written` are those written out."""

    rows: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    input_tokens: int = 0
    output_tokens: int = 0
    judged: int = 0  # rows with a gold value and an answer
    correct: int = 0
    written: int = 0
    notes: list[str] = field(default_factory=list)  # what the user should know of the rows written

    @property
    def succeeded(self) -> int:
        """Rows with an answer."""
        return self.outcomes.get("succeeded", 0)

    @property
    def accuracy(self) -> float | None:
        """Share of the judged rows whose answer is the gold value; None where no gold column is named."""
        return self.correct / self.judged if self.judged else None

    def check(self, job: Job) -> None:
        """Raises StoreError where the rows read are not the rows taken in."""
        if self.rows != job.rows or sum(self.outcomes.values()) != job.rows:
            raise StoreError(
                f"job {job.name} took {job.rows} rows in and {self.rows} would come out: nothing was written"
            )


class Joined(NamedTuple):
    """One row: its number (0-based), its line as `Row.raw` has it, the answer's value (None: none), its account."""

    number: int
    raw: bytes
    value: Any
    account: Mapping[str, Any]  # by the names in `answers.ACCOUNT`
    stored: Stored

    @property
    def outcome(self) -> str:
        return str(self.account["outcome"])

    @property
    def is_final(self) -> bool:
        """False while the row may still be sent, or is out."""
        return self.stored[1] not in ("pending", "assigned")


class Joiner:
    """Puts rows together, and sums them up in `accounting`."""

    def __init__(self, engine: Engine, job: Job) -> None:
        self._engine, self.job = engine, job
        self.task = Task.model_validate_json(job.task)
        self.added = answer_columns(self.task, job.columns)
        self.accounting = Accounting()
        self._read = reader_of(self.task)
        self._gold = self.task.gold(job.columns)

    def all(self) -> Iterator[Joined]:
        """Every row in input order. Raises StoreError at the end where they are not as many as were taken in."""
        with self._engine.spool.reader(f"{self.job.spool}/rows") as rows:
            for raw, stored in zip(rows.lines(), self._engine.store.rows.merged(self.job.id), strict=True):
                yield self.join(raw, stored)
        self.accounting.check(self.job)

    def join(self, raw: bytes, stored: Stored) -> Joined:
        """One row, counted."""
        number, state, outcome, attempts, batch, answer, finish, tokens_in, tokens_out, *_, code, error = stored
        word = outcome or state
        succeeded = word == "succeeded"
        counted = self.accounting
        counted.rows += 1
        counted.outcomes[word] = counted.outcomes.get(word, 0) + 1
        counted.input_tokens += tokens_in or 0
        counted.output_tokens += tokens_out or 0
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
        if self._gold is not None and succeeded and (right := _right_answers(raw, self._gold)):
            counted.judged += 1
            counted.correct += answer in right
        if self._read is not None and value is not None:
            value = self._read(value)
        return Joined(number, raw, value, account, stored)

    def cells(self, row: Joined) -> dict[str, Any]:
        """The row's added cells, by the names written."""
        return self.added.cells(row.value, row.account)


def _reason(code: str | None, error: str | None) -> str | None:
    if code and error:
        return f"{code}: {error}" if not error.startswith(code) else error
    return error or code


def _right_answers(raw: bytes, column: str) -> list[str]:
    """Every answer that would be right: a cell may list several; none where it is empty."""
    value = json.loads(raw).get(column)
    values = value if isinstance(value, list) else [value]
    return [one if isinstance(one, str) else str(one) for one in values if one is not None]
