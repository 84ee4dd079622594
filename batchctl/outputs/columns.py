"""What kind of values a column holds, for outputs that have types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from batchctl.rowjson import parse_object

INT64 = range(-(2**63), 2**63)


class ColumnType(StrEnum):
    """JSON is for values of several kinds, lists and objects: written as text, as in a CSV cell."""

    TEXT = "text"
    INTEGER = "integer"  # 64 bits
    NUMBER = "number"  # a double
    BOOLEAN = "boolean"
    JSON = "json"
    VECTOR = "vector"
    VECTORS = "vectors"


@dataclass(frozen=True, slots=True)
class Vectors:
    """A column of float32 vectors, one a row or, where `several`, a list; `dimensions` None: there are none."""

    dimensions: int | None
    several: bool = False


_OF_SCHEMA = {
    "string": ColumnType.TEXT,
    "integer": ColumnType.INTEGER,
    "number": ColumnType.NUMBER,
    "boolean": ColumnType.BOOLEAN,
}


def type_of_schema(schema: Any) -> ColumnType:
    """The type of a property, where its JSON schema names one simple type (beside null)."""
    if not isinstance(schema, dict):
        return ColumnType.JSON
    values = schema.get("enum")
    if "type" not in schema and isinstance(values, list) and all(isinstance(value, str | None) for value in values):
        return ColumnType.TEXT
    named = schema.get("type")
    kinds = [str(kind) for kind in (named if isinstance(named, list) else [named]) if kind != "null"]
    return _OF_SCHEMA.get(kinds[0], ColumnType.JSON) if len(kinds) == 1 else ColumnType.JSON


def infer_types(lines: Iterable[bytes], columns: Sequence[str]) -> Mapping[str, ColumnType]:
    """The type of each column that holds every value of these rows. A column without values is text."""
    kinds: dict[str, set[str]] = {name: set() for name in columns}
    for line in lines:
        for name, value in parse_object(line).items():
            if value is not None:
                kinds[name].add(_kind(value))
    return {name: _common(found) for name, found in kinds.items()}


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer" if value in INT64 else "big"
    return "number" if isinstance(value, float) else "nested"


def _common(kinds: set[str]) -> ColumnType:
    if kinds == {"integer", "number"}:
        return ColumnType.NUMBER
    if len(kinds) > 1:
        return ColumnType.JSON
    return _OF_SCHEMA.get(next(iter(kinds), "string"), ColumnType.JSON)
