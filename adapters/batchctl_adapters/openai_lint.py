"""What OpenAI would refuse in every row's request, told before a row is sent. The knowledge is data: rules/openai.toml.

Each of these came back to somebody hours later as a 400 on every line (CASES.md 62-70).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any

from pydantic import BaseModel, ConfigDict

from .base import Finding, Kind, Request
from .openai_body import qualifies_as_strict
from .profile import Profile

_OWN = "provider_params"
_SEVERAL = "leave it out; for several answers put the row into the table several times and submit with --no-dedupe"


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Models(_Data):
    """Models by the patterns of their names."""

    match: tuple[str, ...]
    besides: tuple[str, ...] = ()

    def holds(self, name: str) -> bool:
        return any(fnmatchcase(name, one) for one in self.match) and not any(
            fnmatchcase(name, one) for one in self.besides
        )


class _Ability(_Models):
    kinds: tuple[Kind, ...]
    doubtful: bool = False


class _Refusal(_Models):
    family: str
    keys: tuple[str, ...]
    fix: str
    unless: Mapping[str, Any] = {}
    doubtful: bool = False


class _Budget(_Models):
    least: int


class _Endpoint(_Data):
    path: str
    content: str
    foreign: Mapping[str, str]


class Rules(_Data):
    """rules/openai.toml, as it explains itself."""

    as_of: str
    sources: tuple[str, ...]
    sdk_only: Mapping[str, str]
    envelope: Mapping[str, str]
    kinds: Mapping[Kind, _Endpoint]
    models: tuple[_Ability, ...]
    refused: tuple[_Refusal, ...]
    budgets: tuple[_Budget, ...]


@cache
def rules() -> Rules:
    """The rules that come with this package."""
    text = (resources.files(__package__) / "rules" / "openai.toml").read_text("utf-8")
    return Rules.model_validate(tomllib.loads(text))


def lint(request: Request, profile: Profile) -> list[Finding]:
    """All that can be told from the request's kind, model and settings and the profile's endpoints."""
    return [
        *_endpoint(request, profile),
        *_keys(request),
        *_stream_and_choices(request),
        *_lengths(request, profile),
        *_model(request, profile),
        *_schemas(request),
    ]


def _endpoint(request: Request, profile: Profile) -> Iterator[Finding]:
    """The path under which the profile offers the kind is that of another one (CASES.md 62)."""
    path = profile.endpoints.get(request.kind, "")
    ends = {kind: endpoint.path for kind, endpoint in rules().kinds.items() if path.endswith(endpoint.path)}
    if ends and (meant := max(ends, key=lambda kind: len(ends[kind]))) != request.kind:
        what = f"profile {profile.name} sends {request.kind} requests to {path}, which takes {meant} requests"
        yield Finding("kind", what, f"write `kind: {meant}`, or mend the profile's endpoints.{request.kind}")


def _keys(request: Request) -> Iterator[Finding]:
    """Keys that the endpoint does not know, or that batchctl writes itself."""
    known = rules()
    endpoint = known.kinds[request.kind]
    for key in request.provider_params:
        place = f"{_OWN}.{key}"
        if key in known.sdk_only:
            yield Finding(place, "is an argument of the Python SDK, the API does not know it", known.sdk_only[key])
        elif key in known.envelope:
            yield Finding(place, "is a part of the batch line, which batchctl writes itself", known.envelope[key])
        elif key == "model":
            yield Finding(place, "replaces the task's model", "write it as the task's model, one for all rows")
        elif key == endpoint.content:
            yield Finding(place, "replaces the prompt: every row would be sent the same", "write it as the prompt")
        elif key in endpoint.foreign:
            yield Finding(place, f"{endpoint.path} does not take it", endpoint.foreign[key])
    for key in request.params:
        if key in endpoint.foreign:
            yield Finding(f"params.{key}", f"{endpoint.path} does not take it", endpoint.foreign[key])


def _stream_and_choices(request: Request) -> Iterator[Finding]:
    own = request.provider_params
    for key in ("stream", "stream_options"):
        if own.get(key):
            yield Finding(f"{_OWN}.{key}", "there is no streaming in a batch", "leave it out")
    n = own.get("n")
    if request.kind in ("chat", "completion") and n not in (None, 1):
        what = f"{n} answers to each row would be paid for and one kept"
        yield Finding(f"{_OWN}.n", what, _SEVERAL)
    if request.kind == "completion" and own.get("best_of") not in (None, 1):
        what = f"{own['best_of']} answers to each row are paid for, and one comes back"
        yield Finding(f"{_OWN}.best_of", what, "leave it out unless that is meant", doubtful=True)


def _lengths(request: Request, profile: Profile) -> Iterator[Finding]:
    """Two keys for one limit: refused, or the one that was not meant wins."""
    if request.kind != "chat":
        return
    own = [key for key in ("max_tokens", "max_completion_tokens") if request.provider_params.get(key) is not None]
    if len(own) + (request.max_output_tokens is not None) > 1:
        what = "limits the answer a second time: requests with both are refused"
        yield Finding(f"{_OWN}.{own[-1]}", what, "leave it out and write max_output_tokens at the top of the task")
    elif own and own[0] != profile.max_tokens_param:
        what = f"profile {profile.name} says that its endpoint calls this {profile.max_tokens_param}"
        yield Finding(f"{_OWN}.{own[0]}", what, "write max_output_tokens at the top of the task", doubtful=True)


def _model(request: Request, profile: Profile) -> Iterator[Finding]:
    """What the model's family is known to refuse (CASES.md 64, 65, 70)."""
    known, name = rules(), _own_name(request.model)
    ability = next((one for one in known.models if one.holds(name)), None)
    if ability is not None and request.kind not in ability.kinds:
        fix = f"write `kind: {ability.kinds[0]}`, or choose another model"
        what = f"{request.model} is for {' and '.join(ability.kinds)} requests, not for {request.kind}"
        yield Finding("model", f"{what} (as of {known.as_of})", fix, ability.doubtful)
    settings = dict(_settings(request, profile))
    for refusal in known.refused:
        if refusal.holds(name):
            for key in refusal.keys:
                place, value = settings.get(key, ("", None))
                if value is not None and value != refusal.unless.get(key):
                    what = f"{request.model} is one of the {refusal.family}, which refuse {key} (as of {known.as_of})"
                    fix = _own_limit_fix(profile) if place == "max_output_tokens" else refusal.fix
                    yield Finding(place, what, fix, refusal.doubtful)
    limit = request.max_output_tokens
    least = next((budget.least for budget in known.budgets if budget.holds(name)), 0)
    if limit is not None and limit < least:
        what = f"{request.model} reasons out of the same {limit:,} tokens: answers may be cut or empty, and are billed"
        yield Finding("max_output_tokens", what, f"give {least:,} or more, or ask for little reasoning", doubtful=True)


def _settings(request: Request, profile: Profile) -> Iterator[tuple[str, tuple[str, Any]]]:
    """Key as it is sent -> where the task says it, and the value; what counts comes last."""
    for key, value in request.params.items():
        yield key, (f"params.{key}", value)
    if request.kind == "chat" and request.max_output_tokens is not None:
        yield profile.max_tokens_param, ("max_output_tokens", request.max_output_tokens)
    for key, value in request.provider_params.items():
        yield key, (f"{_OWN}.{key}", value)


def _own_limit_fix(profile: Profile) -> str:
    return f'write max_tokens_param = "max_completion_tokens" in profile {profile.name}'


def _own_name(model: str) -> str:
    return model.rpartition("/")[2].removeprefix("ft:").lower()


def _schemas(request: Request) -> Iterator[Finding]:
    """A schema has an envelope, which differs by endpoint, and `strict` has rules of its own (CASES.md 67)."""
    form, place = None, ""
    if request.kind == "chat":
        form, place = request.provider_params.get("response_format"), f"{_OWN}.response_format"
    elif request.kind == "responses" and isinstance(text := request.provider_params.get("text"), dict):
        form, place = text.get("format"), f"{_OWN}.text.format"
    if form is not None:
        yield from _form(form, place, request)
    elif request.output.kind == "json_schema" and request.kind in ("chat", "responses"):
        schema = request.output.schema
        if schema is not None and not qualifies_as_strict(schema):
            what = "cannot be sent as strict, so that answers are asked for by it and not held to it"
            fix = "give each object additionalProperties: false and name all its properties in required"
            yield Finding("output.json_schema", what, fix, doubtful=True)


def _form(form: Any, place: str, request: Request) -> Iterator[Finding]:
    in_output = "write the schema as `output: {json_schema: ...}`: batchctl puts the envelope around it"
    if request.output.kind != "text":
        yield Finding(place, "replaces the schema that the task's output asks for", "leave it out")
        return
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "json_object":
        if not any("json" in str(message["content"]).lower() for message in request.messages):
            what = "json_object is refused where no message has the word JSON in it"
            yield Finding(place, what, "ask for JSON in the prompt, or better give a schema in output")
    elif kind == "json_schema":
        spec = form.get("json_schema") if request.kind == "chat" else form
        if not isinstance(spec, dict) or not isinstance(spec.get("schema"), dict) or not spec.get("name"):
            wanted = "json_schema: {name, schema}" if request.kind == "chat" else "name and schema beside type"
            yield Finding(place, f"is no envelope as {rules().kinds[request.kind].path} takes it: {wanted}", in_output)
        elif spec.get("strict") and not qualifies_as_strict(spec["schema"]):
            what = "strict: true is refused with this schema: an object is open or does not require a property"
            fix = "give each object additionalProperties: false and name all its properties in required"
            yield Finding(place, what, fix)
    elif kind != "text":
        yield Finding(place, "is a bare schema, or no envelope at all", in_output)
