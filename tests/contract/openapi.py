"""Checks live traffic against OpenAI's OpenAPI document: what the SDK sends, and what a server answers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
from openai import OpenAI

_DOCUMENT: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "specs" / "openai-batch-slim.json").read_text(encoding="utf-8")
)
_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type"],
            "properties": {
                "message": {"type": "string", "minLength": 1},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def _validator(schema: Mapping[str, Any]) -> jsonschema_rs.Validator:
    whole = {**schema, "components": _DOCUMENT["components"]}
    validator: jsonschema_rs.Validator = jsonschema_rs.Draft202012Validator(whole)
    return validator


def _without_nulls(value: Any) -> Any:
    """The document has no nulls, and thinks that a page always has a first item."""
    if isinstance(value, dict) and value.get("data") == []:
        value = {**value, "first_id": "", "last_id": ""}
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def problems(schema: Mapping[str, Any], value: Any) -> list[str]:
    """What a JSON value violates."""
    return [f"{list(error.instance_path)}: {error.message}" for error in _validator(schema).iter_errors(value)]


def operation(method: str, path: str) -> dict[str, Any]:
    """The document's operation for a request. Raises KeyError for one that it does not have."""
    for template, verbs in _DOCUMENT["paths"].items():
        if re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", template), path) and method.lower() in verbs:
            found: dict[str, Any] = verbs[method.lower()]
            return found
    raise KeyError(f"{method} {path}")


def _form_names(body: bytes) -> set[str]:
    return {name.decode() for name in re.findall(rb'form-data; name="([^"]+)"', body)}


class Traffic:
    """Hooks for the SDK's HTTP client; `violations` fills while requests are made."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.checked: set[str] = set()

    def on_request(self, request: httpx2.Request) -> None:
        spec = operation(request.method, request.url.path)
        known = {parameter["name"]: parameter for parameter in spec.get("parameters", [])}
        for name, value in request.url.params.items():
            schema = known.get(name, {}).get("schema")
            shown: Any = int(value) if schema and schema.get("type") == "integer" else value
            found = [f"unknown query parameter {name}"] if schema is None else problems(schema, shown)
            self._note(spec, "query", found)
        content = spec.get("requestBody", {}).get("content", {})
        if "application/json" in content:
            self._note(spec, "request", problems(content["application/json"]["schema"], json.loads(request.read())))
        if "multipart/form-data" in content:
            names = {re.sub(r"\[.*", "", name) for name in _form_names(request.read())}
            stub = {
                name: {"anchor": "created_at", "seconds": 3_600} if "expires" in name else "batch" for name in names
            }
            self._note(spec, "form", problems(content["multipart/form-data"]["schema"], stub))

    def on_response(self, response: httpx2.Response) -> None:
        request = response.request
        spec = operation(request.method, request.url.path)
        is_download = request.url.path.endswith("/content") and response.status_code == 200
        if is_download or "json" not in response.headers.get("content-type", ""):
            return
        body = json.loads(response.read())
        if response.status_code >= 400:
            self._note(spec, f"error {response.status_code}", problems(_ERROR, body))
        else:
            schema = spec["responses"]["200"]["content"]["application/json"]["schema"]
            self._note(spec, "response", problems(schema, _without_nulls(body)))

    def _note(self, spec: Mapping[str, Any], what: str, found: list[str]) -> None:
        name = f"{spec['operationId']} {what}"
        self.checked.add(name)
        self.violations.extend(f"{name}: {problem}" for problem in found)

    def client(self, base_url: str, api_key: str = "sk-rehearsal") -> OpenAI:
        """The official SDK, watched."""
        hooks: Any = {"request": [self.on_request], "response": [self.on_response]}
        http = httpx2.Client(event_hooks=hooks, timeout=30, verify=False)
        return OpenAI(api_key=api_key, base_url=base_url, max_retries=0, http_client=http)
