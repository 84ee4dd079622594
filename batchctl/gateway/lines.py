"""The input file of a batch: validation with OpenAI's codes, token estimates, and what identifies a request.

Only `\\n` ends a line. Blank lines are skipped and counted (PROVIDERS.md 2.4: one error only, the first bad line's).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import orjson


@dataclass(slots=True)
class Report:
    """What validation found: `total` lines before the first bad one, `keys` their (line, ledger key)."""

    keys: list[tuple[int, str]] = field(default_factory=list)
    total: int = 0
    model: str | None = None
    tokens: int = 0
    error: dict[str, Any] | None = None


def batch_error(code: str, message: str, *, line: int | None = None, param: str | None = None) -> dict[str, Any]:
    """One entry of a batch's `errors.data`."""
    return {"code": code, "message": message, "line": line, "param": param}


def request_lines(source: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """(1-based line, offset, bytes) of every line that is not blank."""
    offset = 0
    for number, line in enumerate(source, start=1):
        if line.strip():
            yield number, offset, line
        offset += len(line)


def ledger_key(request: dict[str, Any], path: str | None) -> str:
    """What identifies a row: the value at the dotted `path`, else the body's hash (sha256 of sorted, compact JSON)."""
    if path is not None:
        value: Any = request
        for step in path.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        if value is not None:
            return value if isinstance(value, str) else orjson.dumps(value).decode()
    return hashlib.sha256(orjson.dumps(request.get("body"), option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def _text_length(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(_text_length(item) for item in value)
    if isinstance(value, dict):
        return _text_length(value.get("content") or value.get("text") or "")
    return 0


def prompt_tokens(body: dict[str, Any]) -> int:
    """A plausible number: a token is four characters of the prompt, and at least one."""
    prompt = (body.get(name) for name in ("messages", "input", "prompt", "instructions"))
    return sum(_text_length(part) for part in prompt) // 4 + 1


def input_count(body: dict[str, Any]) -> int:
    """How many texts an embedding request has."""
    given = body.get("input")
    return len(given) if isinstance(given, list) else 1


class _Validator:
    """The checks of one file, line by line."""

    def __init__(self, endpoint: str, models: Collection[str]) -> None:
        self.endpoint = endpoint
        self.models = models
        self.model: str | None = None
        self.ids: set[str] = set()

    def check(self, number: int, request: Any) -> dict[str, Any] | None:
        """The first thing wrong with a line."""
        if not isinstance(request, dict):
            return batch_error("invalid_json_line", "This line is not a JSON object.", line=number)
        return self._check_envelope(number, request) or self._check_body(number, request["body"])

    def _check_envelope(self, number: int, request: dict[str, Any]) -> dict[str, Any] | None:
        for name, kind in (("custom_id", str), ("method", str), ("url", str), ("body", dict)):
            if not isinstance(request.get(name), kind):
                message = f"Missing required parameter: '{name}'."
                return batch_error("missing_required_parameter", message, line=number, param=name)
        custom_id = request["custom_id"]
        if custom_id in self.ids:
            message = f"The custom_id '{custom_id}' for this request is a duplicate of another request."
            return batch_error("duplicate_custom_id", message, line=number, param="custom_id")
        self.ids.add(custom_id)
        if request["method"] != "POST":
            return batch_error("invalid_method", "Only POST requests can be batched.", line=number, param="method")
        if request["url"] != self.endpoint:
            message = f"The URL '{request['url']}' does not match the batch's endpoint '{self.endpoint}'."
            return batch_error("invalid_url", message, line=number, param="url")
        return None

    def _check_body(self, number: int, body: dict[str, Any]) -> dict[str, Any] | None:
        if body.get("stream"):
            message = "Streaming is not supported in the Batch API."
            return batch_error("streaming_unsupported", message, line=number, param="body.stream")
        model = body.get("model")
        if not isinstance(model, str) or not model:
            return batch_error("invalid_request", "A request of this batch names no model.")
        if self.models and model not in self.models:
            message = f"The provided model '{model}' is not supported by the Batch API."
            return batch_error("model_not_found", message, line=number, param="body.model")
        if self.model is not None and model != self.model:
            message = f"All requests of a batch must use one model: '{model}' is not '{self.model}'."
            return batch_error("mismatched_model", message, line=number, param="body.model")
        self.model = model
        return None


def validate(
    path: Path, endpoint: str, *, models: Collection[str], max_requests: int, ledger_field: str | None
) -> Report:
    """Read the file to its end or to the first bad line."""
    report = Report()
    validator = _Validator(endpoint, models)
    inputs = 0
    with path.open("rb") as source:
        for number, _, line in request_lines(source):
            try:
                request = orjson.loads(line)
            except orjson.JSONDecodeError:
                report.error = batch_error(
                    "invalid_json_line", "This line is not parseable as valid JSON.", line=number
                )
                break
            report.error = validator.check(number, request)
            if report.error is None and len(report.keys) >= max_requests:
                report.error = batch_error("invalid_request", f"A batch holds at most {max_requests:,} requests.")
            if report.error is not None:
                break
            inputs += input_count(request["body"]) if endpoint.endswith("/embeddings") else 0
            if inputs > max_requests:  # the limit is the same number, of texts instead of requests (PROVIDERS.md 1.1)
                report.error = batch_error("invalid_request", f"A batch embeds at most {max_requests:,} inputs.")
                break
            report.keys.append((number, ledger_key(request, ledger_field)))
            report.tokens += prompt_tokens(request["body"])
    report.model = validator.model
    report.total = len(report.keys)
    if report.error is None and not report.keys:
        report.error = batch_error("invalid_request", "The batch's input file holds no requests.")
    return report
