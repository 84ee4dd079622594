"""Typed values (of Parquet, Excel, datasets) as JSON has them: numbers spelled exactly, times as ISO 8601 text."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from batchctl.rowjson import JsonNumber, to_json


class Unfit(ValueError):
    """A value that JSON cannot hold: what it is, and what to do."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


NO_BINARY = "holds bytes, which are no text; leave the column out, or write base64 or a path in its place"


def plain(value: Any) -> Any:
    """`value` with nothing in it that JSON does not have. Raises Unfit."""
    kind = type(value)
    if value is None or kind is str or kind is int or kind is bool:
        return value
    if kind is float:
        return finite(value)
    if isinstance(value, Decimal):
        return decimal(value)
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {_key(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return _odd(value)


def finite(value: float) -> float:
    """The same; raises Unfit for what JSON has no number for."""
    if math.isfinite(value):
        return value
    word = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    raise Unfit(f"{word} is no number that JSON has", "write null in its place (pandas: df.replace)")


def decimal(value: Decimal) -> JsonNumber:
    """A number with all its digits: 1.10 stays 1.10."""
    if not value.is_finite():
        raise Unfit(f"{value} is no number that JSON has", "write null in its place")
    return JsonNumber(format(value, "f"))


def raw_of(values: Mapping[str, Any]) -> bytes:
    """The row as one line of JSON. Raises Unfit for half characters (lone surrogates)."""
    try:
        for key in values:
            key.encode()
        return to_json(values)
    except UnicodeEncodeError:
        raise Unfit("half a character (a lone surrogate)", "write U+FFFD in its place") from None


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise Unfit(f"a key that is no text ({key!r})", "write the keys as text")
    return key


def _odd(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        raise Unfit("bytes, which are no text", "leave the column out, or write base64 or a path in its place")
    for base in (str, int, float):  # numpy's scalars, and enums
        if isinstance(value, base):
            return plain(base(value))
    if hasattr(value, "tolist"):  # numpy's arrays
        return plain(value.tolist())
    what = f"a {type(value).__name__}, which JSON does not have"
    raise Unfit(what, "write it as text or as a number")
