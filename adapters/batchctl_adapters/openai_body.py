"""Requests in OpenAI's words: the body for each endpoint and the batch line around it, as bytes.

Encoding runs once a row for millions of rows, so what all rows of a task share is encoded once and spliced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from .base import CUSTOM_ID_PATTERN, Kind, Output, Request
from .openai_parts import Form, with_parts
from .profile import Profile

_valid_id = re.compile(CUSTOM_ID_PATTERN).fullmatch
_SEPARATORS = ((b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"), (b"\xc2\x85", rb"\u0085"))

# https://platform.openai.com/docs/guides/structured-outputs#supported-schemas, as of February 2026.
_NOT_STRICT = frozenset(
    {"allOf", "oneOf", "not", "dependentRequired", "dependentSchemas", "if", "then", "else", "patternProperties"}
)
_MAX_ENUM_VALUES = 1000
_MAX_PROPERTIES = 5000
_MAX_DEPTH = 10
_MAX_TEXT = 120_000


@dataclass(frozen=True, slots=True)
class _Form:
    """How the body of one kind of request is written."""

    content: str  # the key of what a row asks
    limit: str | None = None  # the key of the answer's longest length; None: as the profile says
    messages: Form | None = None  # the content is the request's messages, in these words; None: its texts
    schema: Literal["response_format", "text"] | None = None  # where a schema for the answer stands


_FORMS: Mapping[Kind, _Form] = {
    "chat": _Form("messages", messages="messages", schema="response_format"),
    "responses": _Form("input", "max_output_tokens", messages="input", schema="text"),
    "embedding": _Form("input"),
    "completion": _Form("prompt", "max_tokens"),
    "moderation": _Form("input"),
}


class BodyEncoder:
    """Encodes requests for one profile; safe to use from several threads.

    `output`, `params` and `provider_params` of a Request are taken as constant: the same objects give the same bytes.
    """

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._structured = profile.structured_output
        self._middles = {
            kind: b'","method":"POST","url":' + orjson.dumps(path) + b',"body":'
            for kind, path in profile.endpoints.items()
        }
        self._last: tuple[Request, bytes, bytes] | None = None
        self._opening: tuple[object, bytes] = (None, b"")

    def body(self, request: Request) -> bytes:
        """The body as one line of JSON without a line end. Raises ValueError for what JSON cannot hold."""
        last = self._last
        if last is None or not _same_frame(last[0], request):
            last = self._last = (request, *self._frame(request))
        head, tail = last[1], last[2]
        if not tail:  # provider_params brought a content of their own
            return head
        return head + (self._messages(request) if request.messages else _texts(request.input)) + tail

    def _messages(self, request: Request) -> bytes:
        """All messages; those before the last are mostly the same in every row and encoded once."""
        *opening, last = request.messages
        form = _FORMS[request.kind].messages or "messages"
        key = (opening, request.output, request.kind)
        known, encoded = self._opening
        if known != key:
            shaped = [self._shaped(message, request.output, form) for message in opening]
            encoded = _without_separators(_dumps(shaped))[:-1] + (b"," if shaped else b"")
            self._opening = (key, encoded)
        return encoded + _without_separators(_dumps(with_parts(last, form))) + b"]"

    def _shaped(self, message: dict[str, Any], output: Output, form: Form) -> dict[str, Any]:
        """A few-shot answer that is a bare label, in the shape that the answer is asked for."""
        if not self._structured or message["role"] != "assistant" or message["content"] not in output.labels:
            return with_parts(message, form)
        return {**message, "content": _dumps({"label": message["content"]}).decode()}

    def line(self, custom_id: str, body: bytes, kind: Kind = "chat") -> bytes:
        """The batch line around `body`, `\\n` included.

        Raises ValueError for an id no provider takes and for a kind that the profile has no endpoint for.
        """
        if not _valid_id(custom_id):
            raise ValueError(f"custom_id {custom_id!r} does not match {CUSTOM_ID_PATTERN}")
        try:
            return b'{"custom_id":"' + custom_id.encode() + self._middles[kind] + body + b"}\n"
        except KeyError:
            raise ValueError(f"profile {self._profile.name} has no endpoint for {kind}") from None

    def _frame(self, request: Request) -> tuple[bytes, bytes]:
        """What stands before and after the content."""
        form = _FORMS[request.kind]
        body: dict[str, Any] = {"model": request.model, form.content: None}
        body.update(request.params)
        if request.max_output_tokens is not None:
            body[form.limit or self._profile.max_tokens_param] = request.max_output_tokens
        if self._structured and form.schema is not None:
            body.update(_schema_asked(request.output, form.schema))
        body.update(_merged(request.provider_params, body))
        if body.get("stream"):
            raise ValueError("stream is not possible in a batch: remove it from provider_params")
        if form.content in request.provider_params:
            return _without_separators(_dumps(body)), b""
        model = {"model": body.pop("model")}
        del body[form.content]
        tail = _dumps(body)[1:]
        head = _without_separators(_dumps(model))[:-1] + b',"' + form.content.encode() + b'":'
        return head, (b"," if body else b"") + _without_separators(tail)


def _same_frame(one: Request, other: Request) -> bool:
    return (
        one.output is other.output
        and one.params is other.params
        and one.provider_params is other.provider_params
        and one.max_output_tokens == other.max_output_tokens
        and one.model == other.model
        and one.kind == other.kind
    )


def _texts(texts: Sequence[str]) -> bytes:
    """One text stands alone, several as a list."""
    return _without_separators(_dumps(texts[0] if len(texts) == 1 else list(texts)))


def _merged(own: Mapping[str, Any], body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The provider's own settings, where `text: {verbosity: low}` leaves the schema beside it as it is."""
    asked, given = body.get("text"), own.get("text")
    return {**own, "text": {**asked, **given}} if isinstance(asked, dict) and isinstance(given, dict) else own


def _dumps(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as err:  # a TypeError by its type
        raise ValueError(f"cannot be written as JSON: {err}") from None


def _without_separators(line: bytes) -> bytes:
    """Escape the three characters outside ASCII at which careless readers cut a line (CASES.md 46).

    They are valid unescaped and stand only inside strings; a few scans cost far less than ASCII for everything, which
    would also double the size of most texts that are not Latin.
    """
    if not line.isascii():
        for character, escape in _SEPARATORS:
            line = line.replace(character, escape)
    return line


def _schema_asked(output: Output, place: Literal["response_format", "text"]) -> dict[str, Any]:
    """The schema of the answer in its envelope, which differs between the endpoints; empty where none is asked for."""
    if output.kind == "labels":
        schema: Mapping[str, Any] = {
            "type": "object",
            "properties": {"label": {"type": "string", "enum": list(output.labels)}},
            "required": ["label"],
            "additionalProperties": False,
        }
    elif output.kind == "json_schema" and output.schema is not None:
        schema = output.schema
    else:
        return {}
    named = {"name": output.name, "schema": schema, "strict": qualifies_as_strict(schema)}
    if place == "text":
        return {"text": {"format": {"type": "json_schema", **named}}}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def qualifies_as_strict(schema: Mapping[str, Any]) -> bool:
    """True where the schema keeps OpenAI's rules for `strict: true`: else each row would be refused with a 400."""
    if schema.get("type") != "object" or "anyOf" in schema:
        return False
    enums = properties = text = 0
    for node, depth in _nodes(schema, 1):
        if not _NOT_STRICT.isdisjoint(node) or depth > _MAX_DEPTH or not _is_closed(node):
            return False
        values = [str(value) for value in node["enum"]] if isinstance(node.get("enum"), list) else []
        names = list(node["properties"]) if isinstance(node.get("properties"), dict) else []
        if len(values) > 250 and sum(map(len, values)) > 15_000:
            return False
        enums, properties = enums + len(values), properties + len(names)
        text += sum(map(len, values)) + sum(map(len, names))
    return enums <= _MAX_ENUM_VALUES and properties <= _MAX_PROPERTIES and text <= _MAX_TEXT


def _is_closed(node: Mapping[str, Any]) -> bool:
    """Objects name all their properties as required and allow no others."""
    kind = node.get("type")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind) and "properties" not in node:
        return True
    properties, required = node.get("properties", {}), node.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        return False
    return node.get("additionalProperties") is False and set(properties) == {str(name) for name in required}


def _nodes(schema: Mapping[str, Any], depth: int) -> Iterator[tuple[Mapping[str, Any], int]]:
    """The schema and all schemas inside it, with the depth in objects."""
    yield schema, depth
    if depth > _MAX_DEPTH:
        return
    for key, deeper in (("properties", 1), ("$defs", 0), ("definitions", 0)):
        children = schema.get(key)
        for child in children.values() if isinstance(children, dict) else ():
            if isinstance(child, dict):
                yield from _nodes(child, depth + deeper)
    for key in ("items", "anyOf"):
        children = schema.get(key)
        for child in children if isinstance(children, list) else (children,):
            if isinstance(child, dict):
                yield from _nodes(child, depth + (key == "items"))
