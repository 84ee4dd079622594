"""Checks live traffic against Anthropic's OpenAPI document and, strictly, against the official SDK's own types."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import pydantic
from anthropic import Anthropic
from anthropic.types.messages import DeletedMessageBatch, MessageBatch, MessageBatchIndividualResponse
from anthropic.types.shared import ErrorType

_DOCUMENT: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "specs" / "anthropic-batches-slim.json").read_text(encoding="utf-8")
)
_NEWER_ERRORS = {"billing_error", "timeout_error", "request_too_large"}
"""What the document of 2024 has not; `request_too_large` is documented for 413 and stands in no type of the SDK."""
_NEWER_STOPS = {"refusal", "pause_turn"}


def _problems(schema: Mapping[str, Any], value: Any) -> list[str]:
    validator = jsonschema_rs.Draft202012Validator({**schema, "components": _DOCUMENT["components"]})
    return [f"{list(error.instance_path)}: {error.message}" for error in validator.iter_errors(value)]


def _extras(model: Any, where: str = "") -> list[str]:
    """Fields that the SDK's type does not have, at any depth."""
    if isinstance(model, list):
        return [one for place, item in enumerate(model) for one in _extras(item, f"{where}[{place}]")]
    if not isinstance(model, pydantic.BaseModel):
        return []
    own = [f"{where}.{name}: no such field" for name in model.model_extra or {}]
    return own + [one for name in type(model).model_fields for one in _extras(getattr(model, name), f"{where}.{name}")]


def strictly(kind: type[pydantic.BaseModel], raw: bytes | str) -> list[str]:
    """What a JSON text violates of an SDK type: nothing is converted, and nothing unknown let through."""
    try:
        return _extras(kind.model_validate_json(raw, strict=True))
    except pydantic.ValidationError as error:
        return [f"{problem['loc']}: {problem['msg']}" for problem in error.errors()]


def row_problems(raw: bytes) -> list[str]:
    """What a line of results violates, of the SDK's type and of the document's."""
    found = strictly(MessageBatchIndividualResponse, raw)
    row = json.loads(raw)
    message = row["result"].get("message") or {}
    if message.get("stop_reason") in _NEWER_STOPS:
        message["stop_reason"] = "end_turn"
    if (row["result"].get("error") or {}).get("error", {}).get("type") in _NEWER_ERRORS:
        row["result"]["error"]["error"]["type"] = "api_error"
    results = _operation("GET", "/v1/messages/batches/x/results")["responses"]["200"]["content"]
    return found + _problems(results["application/x-jsonl"]["schema"]["x-line-schema"], row)


def _operation(method: str, path: str) -> dict[str, Any]:
    """Raises KeyError for one that the document does not have."""
    for template, verbs in _DOCUMENT["paths"].items():
        if re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", template), path) and method.lower() in verbs:
            found: dict[str, Any] = verbs[method.lower()]
            return found
    raise KeyError(f"{method} {path}")


class Traffic:
    """Hooks for the SDK's HTTP client; `violations` fills while requests are made."""

    def __init__(self) -> None:
        self.violations: list[str] = []

    def on_request(self, request: httpx2.Request) -> None:
        if request.method == "DELETE":
            return
        spec = _operation(request.method, request.url.path)
        known = {parameter["name"] for parameter in spec.get("parameters", [])}
        self._note(request, [f"unknown query parameter {name}" for name in request.url.params if name not in known])

    def on_response(self, response: httpx2.Response) -> None:
        request = response.request
        is_json = response.headers.get("content-type", "").startswith("application/json")
        if not is_json:
            return
        raw = response.read()
        body = json.loads(raw)
        if response.status_code >= 400:
            self._note(request, self._error(body, response.headers.get("request-id")))
        elif request.method == "DELETE":
            self._note(request, strictly(DeletedMessageBatch, raw))
        else:
            schema = _operation(request.method, request.url.path)["responses"]["200"]["content"]
            self._note(request, _problems(schema["application/json"]["schema"], body))
            for batch in body.get("data", [body]):
                self._note(request, strictly(MessageBatch, json.dumps(batch)))

    def _error(self, body: Any, request_id: str | None) -> list[str]:
        kind = body["error"]["type"]
        if kind not in _NEWER_ERRORS:
            pydantic.TypeAdapter(ErrorType).validate_python(kind)
            found = _problems({"$ref": "#/components/schemas/BetaErrorResponse"}, body)
        else:
            found = []
        return found + ([] if body["request_id"] == request_id else ["request_id is not that of the header"])

    def _note(self, request: httpx2.Request, found: list[str]) -> None:
        self.violations.extend(f"{request.method} {request.url.path}: {problem}" for problem in found)

    def client(self, root_url: str, api_key: str = "sk-ant-rehearsal") -> Anthropic:
        """The official SDK, watched."""
        hooks: Any = {"request": [self.on_request], "response": [self.on_response]}
        http = httpx2.Client(event_hooks=hooks, timeout=30, verify=False)
        return Anthropic(api_key=api_key, base_url=root_url, max_retries=0, http_client=http)
