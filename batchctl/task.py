"""The task file: what to ask of each row, with no provider and no route in it. Every problem is reported at once."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from batchctl.errors import TaskError
from batchctl.templates import PromptTemplate, TemplateProblem
from batchctl.yamltree import Place, Tree, read_tree
from batchctl_adapters.base import Kind, Output

KINDS: tuple[Kind, ...] = get_args(Kind)
ITEM = "item"
"""What the prompt calls one text of the column `each`."""

_ONLY_FOR: Mapping[str, tuple[Kind, ...]] = {
    "system": ("chat", "responses"),
    "few_shot": ("chat", "responses"),
    "samples": ("chat", "responses"),
    "images": ("chat", "responses"),
    "output": ("chat", "responses", "completion"),
    "expected": ("chat", "responses", "completion"),
    "max_output_tokens": ("chat", "responses", "completion"),
    "params": ("chat", "responses", "completion"),
    "each": ("embedding",),
    "dimensions": ("embedding",),
}
"""Keys that not every kind has."""

_SINGLE_BRACES = re.compile(r"(?<!\{)\{\s*(\w+)\s*\}(?!\})")
_EMPTY = "is empty; give a value or remove the key"
_ONE_OUTPUT = "must be one of: text, {labels: [...]}, {json_schema: {...}}; choose one"
_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True)


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _a_text(value: str) -> str:
    if not value.strip():
        raise _wrong("is empty; give a text")
    return value


def _wrong(message: str, **context: Any) -> PydanticCustomError:
    """A problem in the words that the user reads: `what; fix`."""
    return PydanticCustomError("task", "{message}", {"message": message, **context})


Samples = Literal["inspect", "evals", "auto", "requests"]
"""Rows that say themselves what is asked: samples with an `input`, or ready-made requests."""

GOLD: dict[str, tuple[str, ...]] = {"inspect": ("target",), "evals": ("ideal",), "auto": ("target", "ideal")}
"""Columns with the right answer, by the kind of samples."""

_OWN_OF_REQUESTS = (
    "model", "prompt", "system", "few_shot", "images", "expected", "max_output_tokens", "params", "provider_params",
)  # fmt: skip


class Params(BaseModel):
    """Sampling settings that every provider has; others belong under `provider_params`."""

    model_config = _STRICT

    temperature: Annotated[int | float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[int | float, Field(gt=0, le=1)] | None = None
    seed: int | None = None
    stop: str | Annotated[tuple[str, ...], BeforeValidator(_listed)] | None = None

    @property
    def given(self) -> dict[str, Any]:
        """Those that the task sets."""
        values = {key: value for key, value in self if value is not None}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


class Example(BaseModel):
    """One few-shot pair. `user` is the literal text, or `input` has column values that the prompt is filled with.

    `assistant` is the answer as text; where the output is a JSON schema it may be written as YAML.
    """

    model_config = _STRICT

    user: str | None = None
    input: dict[str, Any] | None = None
    assistant: str | dict[str, Any]

    @model_validator(mode="after")
    def _one_question(self) -> Example:
        if (self.user is None) == (self.input is None):
            raise _wrong("needs either `user: TEXT` or `input: {COLUMN: VALUE}`; give one of the two")
        return self

    @property
    def answer(self) -> str:
        """The assistant's text as it is sent."""
        if isinstance(self.assistant, str):
            return self.assistant
        return json.dumps(self.assistant, ensure_ascii=False)


class OutputSpec(BaseModel):
    """`output: text`, `output: {labels: [a, b]}` or `output: {json_schema: {...}}`."""

    model_config = _STRICT

    labels: Annotated[tuple[str, ...], BeforeValidator(_listed)] | None = None
    json_schema: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_kind(cls, value: Any) -> Any:
        if value == "text":
            return {}
        if isinstance(value, OutputSpec):
            return value
        if not isinstance(value, dict) or len([key for key, inner in value.items() if inner is not None]) > 1:
            raise _wrong(_ONE_OUTPUT)
        return value

    @field_validator("labels")
    @classmethod
    def _distinct_labels(cls, labels: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if labels is None:
            return None
        if len(labels) < 2:
            raise _wrong("has fewer than two labels; a row must have a choice")
        for number, label in enumerate(labels):
            if not label.strip():
                raise _wrong("an empty label; give it a name or remove it", below=(number,))
            if label != label.strip():
                raise _wrong(f"{label!r} begins or ends with a space; write {label.strip()!r}", below=(number,))
            if label in labels[:number]:
                raise _wrong(f"the label {label!r} is there twice; keep one of the two", below=(number,))
        return labels

    @field_validator("json_schema")
    @classmethod
    def _valid_schema(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if schema is None:
            return None
        from jsonschema_rs import ReferencingError
        from jsonschema_rs import ValidationError as SchemaError

        try:
            schema_validator(schema)
        except SchemaError as error:
            below = tuple(error.instance_path)
            raise _wrong(f"not a JSON schema: {error.message}; see https://json-schema.org", below=below) from None
        except (ReferencingError, ValueError) as error:
            raise _wrong(f"not a JSON schema: {error}; mend it") from None
        return schema

    @property
    def shape(self) -> Output:
        """The same as a request carries it."""
        if self.labels is not None:
            return Output("labels", labels=self.labels)
        if self.json_schema is not None:
            return Output("json_schema", schema=self.json_schema)
        return Output()


class Task(BaseModel):
    """What to ask of each row. Immutable; `load_task` makes one from a file."""

    model_config = _STRICT

    name: str | None = None
    kind: Kind = "chat"
    model: str | None
    prompt: str | None
    each: str | None = None
    samples: Samples | None = None
    images: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    system: str | None = None
    few_shot: Annotated[tuple[Example, ...], BeforeValidator(_listed)] = ()
    output: OutputSpec = OutputSpec()
    expected: str | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
    params: Params = Params()
    provider_params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _said_by_the_rows(cls, value: Any) -> Any:
        """With `samples` there is no prompt, with `samples: requests` no model either."""
        if not isinstance(value, dict) or value.get("samples") not in get_args(Samples):
            return value
        said = ("prompt", "model") if value["samples"] == "requests" else ("prompt",)
        return {**dict.fromkeys(said), **value}

    @model_validator(mode="after")
    def _asks_something(self) -> Task:
        if self.samples is None and (self.prompt is None or self.model is None):
            raise _wrong(f"`{'prompt' if self.prompt is None else 'model'}` {_EMPTY}")
        return self

    @field_validator("images")
    @classmethod
    def _distinct_images(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(columns)) < len(columns):
            raise _wrong("the same column twice; keep one of the two")
        return columns

    @field_validator("kind", mode="before")
    @classmethod
    def _known_kind(cls, kind: Any) -> Any:
        if isinstance(kind, str) and kind not in KINDS:
            near = difflib.get_close_matches(kind, KINDS, 1)
            fix = f"did you mean `kind: {near[0]}`?" if near else f"write one of {', '.join(KINDS)}"
            raise _wrong(f"there is no kind {kind!r}; {fix}")
        return kind

    @field_validator("name", "model", "expected", "each")
    @classmethod
    def _not_blank(cls, value: str | None) -> str | None:
        return value if value is None else _a_text(value)

    @field_validator("prompt", "system")
    @classmethod
    def _compiles(cls, source: str | None) -> str | None:
        if source is None:
            return None
        try:
            PromptTemplate(_a_text(source))
        except TemplateProblem as problem:
            raise _wrong(f"{problem.what.rstrip('.')}; mend the template", template_line=problem.line) from None
        return source

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns that the task asks with, in order; some may be optional (`{% if note is defined %}`)."""
        sources = [source for source in (self.system, self.prompt) if source is not None]
        named = [name for source in sources for name in PromptTemplate(source).columns]
        if self.each is not None:
            named = [self.each, *(name for name in named if name != ITEM)]
        sample = ["input"] if self.samples in GOLD else []
        return tuple(dict.fromkeys([*named, *sample, *self.images]))

    @property
    def has_several_texts(self) -> bool:
        """Whether a row may have several texts, each with an answer of its own."""
        return self.each is not None or (self.samples == "requests" and self.kind == "embedding")

    def gold(self, columns: Iterable[str]) -> str | None:
        """The column with the right answers, of a table with these columns; None where there is none."""
        if self.expected is not None:
            return self.expected
        there = set(columns)
        return next((name for name in GOLD.get(self.samples or "", ()) if name in there), None)

    @cached_property
    def digest(self) -> str:
        """sha256, in hex, of the task as canonical JSON. A schema counts with the order of its keys: models heed it."""
        # without defaults: tasks from before there was a key keep their digest
        content = self.model_dump(mode="json", exclude_defaults=True)
        if self.output.json_schema is not None:
            content["output"]["json_schema"] = json.dumps(self.output.json_schema)
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def schema_validator(schema: Mapping[str, Any]) -> Any:
    """A compiled validator that never goes to the network. Raises what jsonschema-rs raises for a wrong schema."""
    import jsonschema_rs

    return jsonschema_rs.validator_for(dict(schema), offline=True)


def load_task(path: str | os.PathLike[str]) -> Task:
    """The task in a YAML file. Raises TaskError with every problem as `FILE:LINE: KEY: what; fix`."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise TaskError([f"{path}: cannot be read: {error.strerror or error}; check the path"]) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise TaskError(
            [f"{path}:{line}: byte 0x{error.object[error.start]:02X} is not UTF-8; save as UTF-8"]
        ) from None
    tree = read_tree(text)
    problems = list(tree.problems)
    task = None
    if isinstance(tree.value, dict):
        try:
            task = Task.model_validate(tree.value)
        except ValidationError as error:
            problems += [_translated(detail, tree) for detail in error.errors(include_url=False)]
        problems += [(tree.spot(place).line, place, what) for place, what in _contradictions(tree.value)]
    elif not problems:
        problems.append((1, (), "a task is a mapping; begin with `prompt: ...`"))
    if problems or task is None:
        unique = dict.fromkeys(sorted(problems, key=lambda problem: problem[0]))
        raise TaskError([f"{path}:{line}: {_dotted(place)}{what}" for line, place, what in unique])
    return task


def _dotted(place: Place) -> str:
    """`few_shot[0].user: `, as people write it."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return f"{text.lstrip('.')}: " if text else ""


_KEYS: dict[str, type[BaseModel]] = {"params": Params, "few_shot": Example, "output": OutputSpec}


def _translated(detail: ErrorDetails, tree: Tree) -> tuple[int, Place, str]:
    """One of pydantic's errors as (line, place, `what; fix`)."""
    context = detail.get("ctx", {})
    place = _in_file(detail["loc"], tree) + tuple(context.get("below", ()))
    spot = tree.spot(place)
    line = spot.line
    if detail["type"] == "task":
        what = str(context["message"])
        if context.get("template_line"):
            line = spot.text_line + context["template_line"] - 1
    elif detail["type"] == "missing":
        what = f"is missing; add `{place[-1]}: ...`"
    elif detail["type"] == "extra_forbidden":
        what = _unknown(place)
    elif detail["input"] is None:
        what = _EMPTY
    elif detail["type"] == "string_type" and spot.read_as and place in tree.spots:
        what = f'YAML reads `{spot.spelled}` as {spot.read_as}; quote it: "{spot.spelled}"'
    else:
        message = detail["msg"].removeprefix("Input ").replace("dictionary", "mapping").replace("tuple", "list")
        what = f"{message}; mend the value"
    return line, place, what


def _in_file(location: tuple[int | str, ...], tree: Tree) -> Place:
    """pydantic's location without the names of union members, which stand in no file."""
    place: Place = ()
    for position, part in enumerate(location):
        last = position == len(location) - 1
        is_member = isinstance(part, str) and (part in ("str", "int", "float") or "[" in part)
        if (*place, part) in tree.spots or (last and not is_member):
            place = (*place, part)
    return place


def _unknown(place: Place) -> str:
    model = _KEYS.get(str(place[0]), Task) if len(place) > 1 else Task
    known = list(model.model_fields)
    near = difflib.get_close_matches(str(place[-1]), known, 1)
    what = f"unknown key; did you mean `{near[0]}`?" if near else f"unknown key, known are: {', '.join(known)}"
    if model is Params:
        return f"{what}; a provider's own setting goes under `provider_params`"
    return what if near else f"{what}; remove it"


def _contradictions(value: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """Parts that are right alone and wrong together, looked for in whatever is there."""
    prompt = value.get("prompt")
    template = None
    if isinstance(prompt, str):
        try:
            template = PromptTemplate(prompt)
        except TemplateProblem:
            template = None
        braces = _SINGLE_BRACES.search(prompt)
        if template and template.is_constant and braces:
            name = braces.group(1)
            yield ("prompt",), f"{{{name}}} is sent as it stands, no column is used; write {{{{ {name} }}}}"
    for key in Task.model_fields:
        if key in value and value[key] is None:
            yield (key,), _EMPTY
    yield from _wrong_for_kind(value, template)
    yield from _wrong_samples(value)
    output = value.get("output")
    if isinstance(output, dict) and all(inner is None for inner in output.values()):
        yield ("output", *output), _ONE_OUTPUT
    shots = value.get("few_shot")
    for number, shot in enumerate(shots if isinstance(shots, list) else []):
        if isinstance(shot, dict):
            for key, what in _wrong_shot(shot, output, template):
                yield ("few_shot", number, key), what


def _wrong_for_kind(value: Mapping[str, Any], template: PromptTemplate | None) -> Iterator[tuple[Place, str]]:
    kind, each = value.get("kind", "chat"), value.get("each")
    for key, kinds in _ONLY_FOR.items():
        if value.get(key) is not None and kind in KINDS and kind not in kinds:
            yield (key,), f"means nothing for kind {kind}; remove it, it belongs to {', '.join(kinds)}"
    if template is not None and isinstance(each, str) and ITEM not in template.columns:
        yield ("prompt",), f"does not use the texts of the column {each!r}; write {{{{ {ITEM} }}}} for each of them"


def _wrong_samples(value: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    samples = value.get("samples")
    if samples == "requests":
        for key in _OWN_OF_REQUESTS:
            if key in value:
                yield (key,), "ready-made requests are sent as they are; remove it"
    elif samples in GOLD:
        if "prompt" in value:
            yield (
                ("prompt",),
                "each sample's own input is sent; remove `prompt`, or `samples` to write {{ input }} in it",
            )
        shots = value.get("few_shot")
        for number, shot in enumerate(shots if isinstance(shots, list) else []):
            if isinstance(shot, dict) and "input" in shot:
                yield ("few_shot", number, "input"), "fills in a prompt, and samples have none; write `user: TEXT`"


def _wrong_shot(shot: Mapping[str, Any], output: Any, template: PromptTemplate | None) -> Iterator[tuple[str, str]]:
    columns, answer = shot.get("input"), shot.get("assistant")
    labels = output.get("labels") if isinstance(output, dict) else None
    has_schema = isinstance(output, dict) and "json_schema" in output
    if isinstance(columns, dict) and template is not None:
        try:
            template.render(columns)
        except TemplateProblem as problem:
            yield "input", f"{problem.what}; give every column that the prompt uses"
    names = [label for label in labels if isinstance(label, str)] if isinstance(labels, list) else []
    if names and names == labels and isinstance(answer, str) and answer not in names:
        near = difflib.get_close_matches(answer, names, 1)
        yield "assistant", f"{answer!r} is none of the labels; " + (f"write {near[0]!r}" if near else "use one of them")
    if isinstance(answer, dict) and not has_schema:
        yield "assistant", "a mapping answers only a json_schema; write the answer as text"
