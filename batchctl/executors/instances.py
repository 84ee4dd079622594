"""A small valid instance of a JSON schema: what a canned answer to a structured request looks like.

Knows the common keywords (types, enum, const, $ref, combinators, objects, arrays, lengths, bounds, formats); choices
follow the random source given, so the same source gives the same instance.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from typing import Any, Final

_DEPTH: Final = 24
_FORMATS: Final = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
}
_PATTERN_GUESSES: Final = (
    "a", "A", "1", "ab", "AB", "12", "abc", "ABC", "123", "0000", "2026", "2026-01-31", "A1", "a1", "AB12", "AB-12",
    "ABC-123", "+15550100", "555-0100", "12:00", "1.0", "1.0.0", "#aabbcc", "en", "en-US", "USD", "a@example.com",
    "https://example.com/",
)  # fmt: skip


class TooDeep(ValueError):
    """The schema recurses without an end that can be found."""


def instance(schema: Any, choose: random.Random) -> Any:
    """An instance of `schema`. Raises TooDeep for a schema that only has infinite instances."""
    return _Maker(schema, choose).make(schema, 0)


class _Maker:
    def __init__(self, root: Any, choose: random.Random) -> None:
        self._root, self._choose = root, choose

    def make(self, schema: Any, depth: int) -> Any:
        if depth > _DEPTH:
            raise TooDeep("the schema recurses too deeply")
        if not isinstance(schema, Mapping):
            return "canned"
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._choose.choice(schema["enum"])
        if "$ref" in schema:
            rest = {name: value for name, value in schema.items() if name != "$ref"}
            return self.make({**self._resolve(schema["$ref"]), **rest}, depth + 1)
        if schema.get("allOf"):
            return self.make(self._merged(schema), depth + 1)
        for combinator in ("anyOf", "oneOf"):
            if schema.get(combinator):
                return self._one_of(schema, combinator, depth)
        return self._typed(schema, depth)

    def _resolve(self, reference: str) -> Mapping[str, Any]:
        """A reference inside the schema (`#/$defs/...`)."""
        target = self._root
        for step in reference.lstrip("#").strip("/").split("/"):
            if step:
                key = step.replace("~1", "/").replace("~0", "~")
                target = target[key] if isinstance(target, Mapping) else target[int(key)]
        return target if isinstance(target, Mapping) else {}

    def _merged(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        merged: dict[str, Any] = {name: value for name, value in schema.items() if name != "allOf"}
        for part in schema["allOf"]:
            resolved = self._resolve(part["$ref"]) if "$ref" in part else part
            flat = self._merged(resolved) if resolved.get("allOf") else resolved
            for name, value in flat.items():
                if name == "properties":
                    merged[name] = {**merged.get(name, {}), **value}
                elif name == "required":
                    merged[name] = [*merged.get(name, []), *value]
                else:
                    merged[name] = value
        return merged

    def _one_of(self, schema: Mapping[str, Any], combinator: str, depth: int) -> Any:
        """One branch, another where that recurses for ever."""
        branches = list(schema[combinator])
        base = {name: value for name, value in schema.items() if name != combinator}
        first = self._choose.randrange(len(branches)) if depth < 4 else 0
        ordered = [*branches[first:], *branches[:first]]
        if depth >= 4:  # deep down, what does not recurse comes first
            ordered.sort(key=lambda branch: "$ref" in branch or branch.get("type") in ("object", "array"))
        for branch in ordered:
            try:
                return self.make({"allOf": [base, branch]} if base else branch, depth + 1)
            except TooDeep:
                continue
        raise TooDeep("every branch recurses")

    def _typed(self, schema: Mapping[str, Any], depth: int) -> Any:
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = "null" if "null" in kind and depth > _DEPTH // 2 else next((k for k in kind if k != "null"), "null")
        if kind is None:
            kind = _implied_type(schema)
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind in ("integer", "number"):
            return self._number(schema, whole=kind == "integer")
        if kind == "boolean":
            return self._choose.random() < 0.5
        return None if kind == "null" else _string(schema)

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        made = {name: self.make(properties.get(name, {}), depth + 1) for name in schema.get("required", [])}
        least = schema.get("minProperties", 0)
        for name in properties:
            if len(made) < least and name not in made:
                made[name] = self.make(properties[name], depth + 1)
        while len(made) < least:
            made[f"key{len(made) + 1}"] = self.make(schema.get("additionalProperties", {}), depth + 1)
        return made

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        prefix = schema.get("prefixItems", [])
        least = max(schema.get("minItems", 0), len(prefix))
        items = schema.get("items", {})
        made: list[Any] = []
        for place in range(least):
            one = prefix[place] if place < len(prefix) else items
            value = self.make(one, depth + 1)
            for tries in range(50):
                if not schema.get("uniqueItems") or value not in made:
                    break
                value = _varied(self.make(one, depth + 1), one, tries)
            made.append(value)
        return made

    def _number(self, schema: Mapping[str, Any], *, whole: bool) -> int | float:
        """The smallest number in bounds, rounded up to a multiple."""
        low: float = schema.get("minimum", -math.inf)
        above: float = schema.get("exclusiveMinimum", -math.inf)
        high: float = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf))
        step: float = schema.get("multipleOf", 1 if whole else 0)
        begin = max(low, above)
        if begin == -math.inf:
            begin = 0 if high > 0 else high - (step or 1)
        if not step:
            if begin != above:
                return float(begin)
            return (begin + high) / 2 if high < math.inf else begin + 0.5
        value = math.ceil(begin / step) * step
        if value <= above:
            value += step
        return int(value) if whole else float(value)


def _implied_type(schema: Mapping[str, Any]) -> str:
    """The type that a schema without `type` is about, by its keywords."""
    for kind, words in (
        ("object", ("properties", "required", "minProperties", "additionalProperties")),
        ("array", ("items", "prefixItems", "minItems")),
        ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
    ):
        if any(word in schema for word in words):
            return kind
    return "string"


def _varied(value: Any, schema: Any, number: int) -> Any:
    """Another value of the same kind, where an array's items must differ."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | str)
        or (isinstance(schema, Mapping) and "enum" in schema)
    ):
        return value
    return f"{value}{number + 2}" if isinstance(value, str) else value + number + 1


def _string(schema: Mapping[str, Any]) -> str:
    least: int = schema.get("minLength", 0)
    most: int = schema.get("maxLength", 10_000)
    if schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]]
    if "pattern" in schema:
        try:
            pattern = re.compile(schema["pattern"])
        except re.error:
            return "canned"
        for guess in _PATTERN_GUESSES:
            for repeated in (guess, guess * max(1, math.ceil(least / len(guess)))):
                if least <= len(repeated) <= most and pattern.search(repeated):
                    return repeated
    text = "canned"
    return (text * math.ceil(max(least, 1) / len(text)))[: max(least, min(len(text), most))]
