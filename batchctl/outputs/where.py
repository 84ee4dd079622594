"""Which rows are meant: `outcome!=succeeded`, `attempts>1`, `batch=b3`, `error~timeout`, `"a column"=en`.

COLUMN OPERATOR VALUE, where COLUMN is one of the output's, as it is written there. A column or value in quotes is taken
as it stands; without them, spaces at its ends are not part of it.

    =   !=        the cell as text; numbers by their value; an empty VALUE is an empty cell
    <  <=  >  >=  numbers, also those in the text of a CSV cell; any other cell is in no relation
    ~   !~        holds (holds not) the text, in capitals or not
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from batchctl.errors import UsageError
from batchctl.rowjson import parse_object, to_json
from batchctl_adapters.base import Outcome
from batchctl_store.records import RequestState

OUTCOMES = (*(outcome.value for outcome in Outcome), RequestState.PENDING.value, RequestState.ASSIGNED.value)
"""What a row's outcome may be; the last two while it has none yet."""

_EXPRESSION = re.compile(
    r"""\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^"'=!<>~][^=!<>~]*?))\s*"""
    r"(?P<operator>!=|!~|<=|>=|==|=|<|>|~)(?P<value>.*)",
    re.DOTALL,
)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_HOW = (
    "write COLUMN=VALUE, or with !=, <, <=, >, >=, ~ (holds the text) or !~; quote a COLUMN that has such signs in it"
)


@dataclass(frozen=True, slots=True)
class Columns:
    """What a condition may name: the input's columns and the added ones, as written; which of those is which."""

    of_input: Sequence[str]
    added: Sequence[str]
    outcome: str = "outcome"
    batch: str = "batch"


class Condition(NamedTuple):
    """One expression, read and checked. `holds` takes a cell."""

    text: str
    column: str
    holds: Callable[[Any], bool]


class Where:
    """All of some conditions."""

    def __init__(self, expressions: Iterable[str], columns: Columns) -> None:
        """Raises UsageError that says what is wrong with an expression and what there is."""
        self._conditions = [_condition(text, columns) for text in expressions]
        self._needs_input = any(one.column not in columns.added for one in self._conditions)

    def __bool__(self) -> bool:
        return bool(self._conditions)

    def holds(self, raw: bytes, added: Mapping[str, Any]) -> bool:
        """Is the row meant: `raw` as `Row.raw` has it, `added` the output's other cells by column?"""
        cells = {**parse_object(raw), **added} if self._needs_input else added
        return all(one.holds(cells.get(one.column)) for one in self._conditions)


def _condition(text: str, columns: Columns) -> Condition:
    match = _EXPRESSION.fullmatch(text)
    if match is None:
        raise UsageError(f"--where {text!r} cannot be read", hint=_HOW)
    column = next(found for found in match.group("double", "single", "bare") if found is not None)
    sign, value = match["operator"].replace("==", "="), _unquoted(match["value"])
    _check_column(text, column, [*columns.of_input, *columns.added])
    if column == columns.outcome and sign in ("=", "!="):
        _check_outcome(text, value)
    if column == columns.batch and sign in ("=", "!=") and value.isdecimal():
        value = f"b{value}"
    return Condition(text, column, _test(text, sign, value))


def _unquoted(value: str) -> str:
    value = value.strip()
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def _check_column(text: str, column: str, names: Sequence[str]) -> None:
    if column not in names:
        near = difflib.get_close_matches(column, names, 1)
        there = f"there are: {', '.join(map(_shown, names))}"
        hint = f"did you mean {near[0]}? {there}" if near else there
        raise UsageError(f"--where {text!r}: the table has no column {column!r}", hint=hint)


def _shown(name: str) -> str:
    return f'"{name}"' if not re.fullmatch(r"[\w.-]+", name) else name


def _check_outcome(text: str, value: str) -> None:
    if value not in OUTCOMES:
        near = difflib.get_close_matches(value, OUTCOMES, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(OUTCOMES)}"
        raise UsageError(f"--where {text!r}: there is no outcome {value!r}", hint=hint)


def _test(text: str, sign: str, value: str) -> Callable[[Any], bool]:
    number = _number(value)
    if sign in _COMPARE:
        if number is None:
            raise UsageError(f"--where {text!r}: {value!r} is no number", hint="compare text with =, != or ~")
        return _Compared(_COMPARE[sign], number)
    if sign in ("~", "!~"):
        if not value:
            raise UsageError(f"--where {text!r}: no text to look for", hint="an empty cell is COLUMN=")
        return _Holding(value.casefold(), wanted=sign == "~")
    return _Equal(value, number, wanted=sign == "=")


@dataclass(frozen=True, slots=True)
class _Compared:
    compare: Callable[[float, float], bool]
    number: float

    def __call__(self, cell: Any) -> bool:
        found = _number(cell)
        return found is not None and self.compare(found, self.number)


@dataclass(frozen=True, slots=True)
class _Holding:
    text: str
    wanted: bool

    def __call__(self, cell: Any) -> bool:
        return (self.text in _text(cell).casefold()) is self.wanted


@dataclass(frozen=True, slots=True)
class _Equal:
    text: str
    number: float | None
    wanted: bool

    def __call__(self, cell: Any) -> bool:
        same = _text(cell) == self.text
        if not same and self.number is not None and isinstance(cell, int | float) and not isinstance(cell, bool):
            same = cell == self.number  # 1.10 is 1.1; text is compared as text: 007 is not 7
        return same is self.wanted


def _number(cell: Any) -> float | None:
    if isinstance(cell, str):
        text = cell.strip()
        return float(text) if _NUMBER.fullmatch(text) else None
    return cell if isinstance(cell, int | float) and not isinstance(cell, bool) else None


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else to_json(cell).decode()
