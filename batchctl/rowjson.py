"""JSON of rows, read without changing a value: numbers keep their spelling, doubtful JSON is refused.

A row is one line of JSON holding an object. orjson reads it fast; what orjson would alter or let pass (floats, integers
beyond 64 bits, `-0`, repeated keys) is read once more, exactly, by the standard library.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from typing import Any, NoReturn, Self

import orjson

_KEY = re.compile(rb'"[ \t\r]*:')
_STRING_OR_CONSTANT = re.compile(r'"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity)')
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_LONGEST_INT = 4_000  # digits; Python itself refuses to convert integers of more than 4,300
BOM = "\ufeff"
_SEPARATORS = {b"\xe2\x80\xa8": b"\\u2028", b"\xe2\x80\xa9": b"\\u2029", b"\xc2\x85": b"\\u0085"}


class JsonProblem(ValueError):
    """What is wrong with a line, `column` (1-based, in characters) and what to do about it, where known."""

    def __init__(self, what: str, column: int | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what, self.column, self.hint = what, column, hint


class JsonNumber(float):
    """A number that prints, and is written back, exactly as it was spelled: `1.10`, `1e5`, `-0`."""

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return super().__format__(spec) if spec else self.text


def parse_object(raw: bytes) -> dict[str, Any]:
    """The object in `raw`; raises JsonProblem where it is none, or not unmistakable JSON."""
    try:
        row = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return _as_object(parse_exactly(raw))
    if type(row) is not dict:
        return _as_object(row)
    for value in row.values():
        kind = type(value)
        if kind is str or value is None or kind is bool or (kind is int and (value or b"-0" not in raw)):
            continue
        return _as_object(parse_exactly(raw))
    # Every key has a colon, so as many colons as keys means that no key is there twice.
    if raw.count(b":") == len(row) or len(_KEY.findall(raw)) == len(row):
        return row
    return _as_object(parse_exactly(raw))


def parse_exactly(raw: bytes) -> Any:
    """Any JSON value, with `JsonNumber` for numbers that Python would spell otherwise. Raises JsonProblem."""
    text = _decoded(raw)
    try:
        value = json.loads(
            text,
            object_pairs_hook=lambda pairs: _unique(pairs, text),
            parse_float=JsonNumber,
            parse_int=_integer,
            parse_constant=lambda word: _refuse_constant(word, text),
        )
    except json.JSONDecodeError as error:
        raise JsonProblem(f"not JSON: {error.msg}", error.pos + 1) from None
    except RecursionError:
        raise JsonProblem("nested too deeply to be read") from None
    if _SURROGATE_ESCAPE.search(raw):
        _refuse_lone_surrogates(value, raw)
    return value


def to_json(value: Any) -> bytes:
    """Compact UTF-8 JSON of rows, cells and answers; JsonNumbers as they were spelled. Raises TypeError."""
    try:
        return orjson.dumps(value, default=_spelled)
    except orjson.JSONEncodeError:
        # Integers beyond 64 bits and lone surrogates, both of which models do write.
        return _dump(value).encode("ascii")


def to_canonical_json(value: Any) -> bytes:
    """The same bytes for values that differ in the order of keys alone; numbers as they were spelled."""
    try:
        return orjson.dumps(value, default=_spelled, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return _dump(value, ordered=True).encode("ascii")


def escape_separators(line: bytes) -> bytes:
    """The same JSON with escapes for the characters that some readers take for line ends (U+2028, U+2029, U+0085)."""
    if not line.isascii():
        for character, escape in _SEPARATORS.items():
            line = line.replace(character, escape)
    return line


def spell(value: Any) -> Any:
    """A cell as it is printed in a prompt: JSON's own spelling, except that a string has no quotes."""
    if isinstance(value, str):
        return value
    if isinstance(value, JsonNumber):
        return value.text
    if value is None or isinstance(value, bool | int | dict | list):
        return to_json(value).decode()
    return value


def _as_object(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    kinds = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    hint = 'write one object a line, such as {"text": "..."}'
    if isinstance(value, list):
        hint = "write one object a line: jq -c '.[]' FILE > rows.jsonl"
    raise JsonProblem(f"a row must be an object, this is {kinds.get(type(value), 'a number')}", 1, hint)


def _decoded(raw: bytes) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        column = len(raw[: error.start].decode("utf-8")) + 1
        raise JsonProblem(f"byte 0x{raw[error.start]:02X} is not UTF-8", column, "save the file as UTF-8") from None
    if text.startswith(BOM):
        raise JsonProblem("a byte order mark in the middle of the file", 1, "remove it: were two files put together?")
    return text


def _unique(pairs: list[tuple[str, Any]], text: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    key = Counter(key for key, _ in pairs).most_common(1)[0][0]
    places = [match.start() for match in re.finditer(re.escape(json.dumps(key, ensure_ascii=False)) + r"\s*:", text)]
    column = places[1] + 1 if len(places) > 1 else None
    raise JsonProblem(f"the key {json.dumps(key)} is there twice", column, "keep one of the two")


def _integer(text: str) -> int | JsonNumber:
    return JsonNumber(text) if text == "-0" or len(text) > _LONGEST_INT else int(text)


def _refuse_constant(word: str, text: str) -> NoReturn:
    places = [match.start() for match in _STRING_OR_CONSTANT.finditer(text) if match.group() == word]
    column = places[0] + 1 if places else None
    raise JsonProblem(f"{word} is not JSON", column, "write null, or leave the key out")


def _refuse_lone_surrogates(value: Any, raw: bytes) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        half = json.dumps(error.object[error.start]).strip('"')
        column = raw.decode("utf-8").lower().find(half)
        raise JsonProblem(
            f"{half} is half a character (a lone surrogate)",
            column + 1 if column >= 0 else None,
            "write the whole pair, or U+FFFD in its place",
        ) from None
    except RecursionError:
        raise JsonProblem("nested too deeply to be read") from None


def _spelled(value: Any) -> Any:
    if isinstance(value, JsonNumber):
        return orjson.Fragment(value.text)
    if isinstance(value, array):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")


def _dump(value: Any, *, ordered: bool = False) -> str:
    if isinstance(value, JsonNumber):
        return value.text
    if isinstance(value, dict):
        items = sorted(value.items()) if ordered else value.items()
        return "{" + ",".join(f"{json.dumps(key)}:{_dump(item, ordered=ordered)}" for key, item in items) + "}"
    if isinstance(value, list | tuple | array):
        return "[" + ",".join(_dump(item, ordered=ordered) for item in value) + "]"
    return json.dumps(value, allow_nan=False)
