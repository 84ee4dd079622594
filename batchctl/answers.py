"""Is an answer what the task asked for, and under which column names is it written?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from batchctl.outputs.columns import ColumnType, type_of_schema
from batchctl.rowjson import JsonProblem, parse_exactly
from batchctl.task import Task, schema_validator
from batchctl_adapters.vectors import unpack

ACCOUNT = ("outcome", "error", "finish_reason", "input_tokens", "output_tokens", "attempts", "batch")
"""Columns that the merge adds after the answer, in this order."""

COUNTS = ("input_tokens", "output_tokens", "attempts")
"""Those of them that are whole numbers."""

_PREFIX = "batchctl_"
_SHOWN = 80  # characters of a wrong answer in its problem


class Judged(NamedTuple):
    """`value` is the text, the label or the parsed JSON; None, with a `problem`, where the answer is not acceptable."""

    ok: bool
    value: Any
    problem: str | None


class Judge:
    """Checks answers against the task's output; made once for a job."""

    def __init__(self, task: Task) -> None:
        self._labels = frozenset(task.output.labels or ())
        self._one_vector = task.kind == "embedding" and not task.has_several_texts
        self._validator = None if task.output.json_schema is None else schema_validator(task.output.json_schema)

    def judge(self, text: str) -> Judged:
        """One answer as the provider gave it. Never raises."""
        if self._labels:
            return self._label(text)
        if self._validator is not None:
            return self._json(text)
        if self._one_vector and " " in text:
            return Judged(False, None, f"{text.count(' ') + 1} vectors for one text")
        return Judged(True, text, None)

    def _label(self, text: str) -> Judged:
        label = text.strip()
        if label in self._labels:
            return Judged(True, label, None)
        if label.startswith("{"):
            try:
                value = _parsed(label)
            except JsonProblem:
                value = None
            inner = value.get("label") if isinstance(value, dict) and len(value) == 1 else None
            if isinstance(inner, str) and inner in self._labels:
                return Judged(True, inner, None)
        return Judged(False, None, f"none of the task's labels: {_shown(text)}")

    def _json(self, text: str) -> Judged:
        assert self._validator is not None
        try:
            value = _parsed(text.strip())
            error = next(self._validator.iter_errors(_numbers(value)), None)
        except JsonProblem as problem:
            return Judged(False, None, f"{problem.what}: {_shown(text)}")
        except (RecursionError, ValueError) as unreadable:
            return Judged(False, None, f"cannot be checked ({unreadable}): {_shown(text)}")
        if error is None:
            return Judged(True, value, None)
        place = ".".join(map(str, error.instance_path))
        return Judged(False, None, f"not what the schema asks{f', at {place}' if place else ''}: {error.message}")


@dataclass(frozen=True, slots=True)
class AnswerColumns:
    """The columns that the merge adds: the answer's, then the account's. Keys are our names, values those written."""

    answer: Mapping[str, str]  # "answer", "label" or the schema's properties
    account: Mapping[str, str]  # the names in `ACCOUNT`
    spread: bool  # each of the schema's properties has a column
    types: Mapping[str, ColumnType]  # by the name written; text, where it is not in here

    @property
    def names(self) -> list[str]:
        """All added columns, in order."""
        return [*self.answer.values(), *self.account.values()]

    def cells(self, value: Any, account: Mapping[str, Any]) -> dict[str, Any]:
        """One row's added cells: a judged value (None where there is none) and what `ACCOUNT` names."""
        if not self.spread:
            cells = dict.fromkeys(self.answer.values(), value)
        else:
            found = value if isinstance(value, dict) else {}
            cells = {name: found.get(key) for key, name in self.answer.items()}
        cells.update(zip(self.account.values(), map(account.get, self.account), strict=True))
        return cells


def answer_columns(task: Task, input_columns: Iterable[str]) -> AnswerColumns:
    """Names for the added columns; one that the input (or the answer) has already gets the prefix `batchctl_`."""
    taken = set(input_columns)

    def named(key: str) -> str:
        name = key
        while name in taken:
            name = _PREFIX + name
        taken.add(name)
        return name

    types, spread = _answer_types(task)
    answer = {key: named(key) for key in types}
    account = {key: named(key) for key in ACCOUNT}
    written = {answer[key]: kind for key, kind in types.items()}
    written |= {account[key]: ColumnType.INTEGER for key in COUNTS}
    return AnswerColumns(answer, account, spread, written)


def _answer_types(task: Task) -> tuple[dict[str, ColumnType], bool]:
    """The answer's own columns with their types, and whether the answer is an object spread over them."""
    if task.kind == "embedding":
        return {"embeddings": ColumnType.VECTORS} if task.has_several_texts else {"embedding": ColumnType.VECTOR}, False
    if task.kind == "moderation":
        return {"flagged": ColumnType.BOOLEAN, "categories": ColumnType.JSON, "category_scores": ColumnType.JSON}, True
    properties = (task.output.json_schema or {}).get("properties")
    if isinstance(properties, dict) and properties:
        return {key: type_of_schema(schema) for key, schema in properties.items()}, True
    return {"label" if task.output.labels is not None else "answer": ColumnType.TEXT}, False


def reader_of(task: Task) -> Callable[[str], Any] | None:
    """What makes a value of a stored answer: parsed JSON, a vector or a list of them; None where it is the text."""
    if task.kind == "embedding":
        return unpack if task.has_several_texts else lambda text: unpack(text)[0]
    if task.kind == "moderation" or task.output.json_schema is not None:
        return lambda text: parse_exactly(text.encode())
    return None


def _parsed(text: str) -> Any:
    try:
        raw = text.encode("utf-8")
    except UnicodeEncodeError:
        raise JsonProblem("half a character (a lone surrogate)") from None
    return parse_exactly(raw)


def _numbers(value: Any) -> Any:
    """The same with plain floats, which is what jsonschema-rs takes."""
    if isinstance(value, float):
        return float(value)
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return value


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
