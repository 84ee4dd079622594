"""Canned answers: what runs requests in a rehearsal. The same body always gets the same answer.

Bodies are checked as OpenAI checks them, so that a wrong parameter fails its row here too. To say which label is
right, a prompt can carry `[answer: LABEL]`; a prompt that names exactly one of the labels gets that one.
"""

from __future__ import annotations

import base64
import hashlib
import random
import re
import struct
from collections.abc import Mapping
from typing import Any, Final

import orjson

from batchctl.executors.base import Reply
from batchctl.executors.instances import TooDeep, instance

SHARES: Final = ("truncated", "refused", "filtered", "empty", "restarted")
_MARKER: Final = re.compile(r"\[answer:\s*([^\]]+?)\s*\]")
_REASONING_MODELS: Final = ("o1", "o3", "o4", "gpt-5", "gpt-6")
_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_CATEGORIES: Final = ("harassment", "hate", "illicit", "self-harm", "sexual", "violence")
_CREATED: Final = 1_764_500_000


class BadRequest(Exception):
    """The body is refused; `reply` is the 4xx answer."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
        self.reply = Reply(status, {"error": error})


class RehearsalExecutor:
    """An Executor (base.py). `shares` (0..1) of the answers are truncated, refused, filtered or empty.

    A `restarted` response breaks off and begins anew, so that its second message has the whole text; others never do.
    """

    concurrency = 1

    def __init__(self, seed: int = 0, shares: Mapping[str, float] | None = None) -> None:
        self._seed = seed
        self._shares = dict(shares or {})
        unknown = sorted(set(self._shares) - set(SHARES))
        if unknown or sum(self._shares.values()) > 1 or any(share < 0 for share in self._shares.values()):
            from batchctl.errors import UsageError

            problem = f"no such share: {unknown[0]}" if unknown else "shares must be 0 or more and sum to at most 1"
            raise UsageError(problem, hint=f"shares are of {', '.join(SHARES)}")
        self._endpoints = {
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._completion,
            "/v1/responses": self._response,
            "/v1/embeddings": self._embedding,
            "/v1/moderations": self._moderation,
        }

    def describe(self) -> str:
        return "Rehearsal: every answer is canned, no model runs and nothing is billed."

    def close(self) -> None:
        """Nothing is held."""

    def run(self, endpoint: str, body: Mapping[str, Any]) -> Reply:
        """Answer one body. A body that OpenAI would refuse gets a 4xx."""
        answer = self._endpoints.get(endpoint)
        try:
            if answer is None:
                raise BadRequest(f"The rehearsal has no canned answers for {endpoint}.", param="url", status=404)
            if not isinstance(body.get("model"), str) or not body["model"]:
                raise BadRequest("you must provide a model parameter")
            return Reply(200, answer(body, self._digest(body)))
        except BadRequest as refused:
            return refused.reply

    def _digest(self, body: Mapping[str, Any]) -> bytes:
        raw = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
        return hashlib.blake2b(raw, digest_size=16, key=str(self._seed).encode()).digest()

    def _fate(self, digest: bytes) -> str | None:
        """Which share the answer belongs to, if any."""
        draw = int.from_bytes(digest[:6]) / 2**48
        for kind, share in self._shares.items():
            if draw < share:
                return kind
            draw -= share
        return None

    def _chat(self, body: Mapping[str, Any], digest: bytes) -> dict[str, Any]:
        text = check_chat(body)
        answer = canned_answer(text, _chat_schema(body.get("response_format")), random.Random(self._seed_of(text)))
        if (body.get("response_format") or {}).get("type") == "json_object":
            answer = orjson.dumps({"answer": answer}).decode()
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        content, refusal, reason = self._shaped(answer, digest, limit)
        usage = _usage(_length(body["messages"]), len(content or refusal or ""))
        return {
            "id": f"chatcmpl-{digest.hex()}",
            "object": "chat.completion",
            "created": _CREATED,
            "model": body["model"],
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": content, "refusal": refusal, "annotations": []},
                    "logprobs": None,
                    "finish_reason": reason,
                }
            ],
            "usage": usage,
            "service_tier": "default",
            "system_fingerprint": "fp_rehearsal",
        }

    def _shaped(self, answer: str, digest: bytes, limit: int | None) -> tuple[str | None, str | None, str]:
        """(content, refusal, finish reason) of an answer, cut where it passes `limit` tokens."""
        fate = self._fate(digest)
        if fate == "refused":
            return None, "I'm sorry, but I can't help with that. (canned)", "stop"
        if fate == "filtered":
            return "", None, "content_filter"
        if fate == "empty":
            return "", None, "stop"
        if fate == "truncated":
            return answer[: len(answer) // 2], None, "length"
        if limit is not None and _tokens(len(answer)) > limit:
            return answer[: limit * 4], None, "length"
        return answer, None, "stop"

    def _seed_of(self, text: str) -> str:
        return f"{self._seed}/{text}"

    def _completion(self, body: Mapping[str, Any], digest: bytes) -> dict[str, Any]:
        prompt = body.get("prompt")
        if not isinstance(prompt, str):
            raise BadRequest("Missing required parameter: 'prompt'.", param="prompt", code="missing_required_parameter")
        content, refusal, reason = self._shaped(
            canned_answer(prompt, None, random.Random()), digest, body.get("max_tokens")
        )
        text = content or refusal or ""
        return {
            "id": f"cmpl-{digest.hex()}",
            "object": "text_completion",
            "created": _CREATED,
            "model": body["model"],
            "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": reason}],
            "usage": _usage(len(prompt), len(text)),
        }

    def _response(self, body: Mapping[str, Any], digest: bytes) -> dict[str, Any]:
        given = body.get("input")
        if not given or not isinstance(given, str | list):
            raise BadRequest("Missing required parameter: 'input'.", param="input", code="missing_required_parameter")
        prompt = given if isinstance(given, str) else user_text(given)
        form = (body.get("text") or {}).get("format") or {}
        schema = form.get("schema") if form.get("type") == "json_schema" else None
        answer = canned_answer(prompt, schema, random.Random(self._seed_of(prompt)))
        content, refusal, reason = self._shaped(answer, digest, body.get("max_output_tokens"))
        part = (
            {"type": "refusal", "refusal": refusal}
            if content is None
            else {"type": "output_text", "text": content, "annotations": [], "logprobs": []}
        )
        usage = _usage(len(prompt), len(content or refusal or ""))
        cut = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(reason)
        status = "incomplete" if cut else "completed"
        message = {
            "id": f"msg_{digest.hex()}",
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": [part],
        }
        return {
            "id": f"resp_{digest.hex()}",
            "object": "response",
            "created_at": _CREATED,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": cut} if cut else None,
            "model": body["model"],
            "output": [*self._broken_off(message, digest), message],
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": usage["prompt_tokens_details"],
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
        }

    def _broken_off(self, message: dict[str, Any], digest: bytes) -> list[dict[str, Any]]:
        if self._fate(digest) != "restarted":
            return []
        [part] = message["content"]
        torn = {**part, "text": part["text"][: len(part["text"]) // 2]}
        reasoning = {"id": f"rs_{digest.hex()}", "type": "reasoning", "summary": []}
        return [reasoning, {**message, "id": f"msg_{digest.hex()}_0", "content": [torn]}]

    def _embedding(self, body: Mapping[str, Any], _: bytes) -> dict[str, Any]:
        given = body.get("input")
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
            raise BadRequest("'$.input' is invalid. Please check the API reference.", param="input")
        size = body.get("dimensions", 8)
        if not isinstance(size, int) or not 1 <= size <= 3_072:
            raise BadRequest("Invalid value for 'dimensions' = must be 1 to 3072.", param="dimensions")
        form = body.get("encoding_format", "float")
        if form not in ("float", "base64"):
            raise BadRequest(
                f"Invalid value: '{form}'. Supported values are: 'float' and 'base64'.", param="encoding_format"
            )
        vectors = [_vector(self._seed_of(text), size) for text in texts]
        data = [
            {"object": "embedding", "index": place, "embedding": vector if form == "float" else _packed(vector)}
            for place, vector in enumerate(vectors)
        ]
        used = sum(_tokens(len(text)) for text in texts)
        usage = {"prompt_tokens": used, "total_tokens": used}
        return {"object": "list", "model": body["model"], "data": data, "usage": usage}

    def _moderation(self, body: Mapping[str, Any], digest: bytes) -> dict[str, Any]:
        """Flags a text that names one of the categories, and no other."""
        given = body.get("input")
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise BadRequest("'$.input' is invalid. Please check the API reference.", param="input")
        return {"id": f"modr-{digest.hex()}", "model": body["model"], "results": [_moderated(text) for text in texts]}


def _moderated(text: str) -> dict[str, Any]:
    lower = text.lower()
    categories = {name: name in lower for name in _CATEGORIES}
    scores = {name: 0.9 if named else 0.01 for name, named in categories.items()}
    applied = {name: ["text"] for name in _CATEGORIES}
    return {
        "flagged": any(categories.values()),
        "categories": categories,
        "category_scores": scores,
        "category_applied_input_types": applied,
    }


def _vector(seed: str, size: int) -> list[float]:
    """A unit vector that follows from the seed."""
    source = random.Random(seed)
    raw = [source.gauss(0, 1) for _ in range(size)]
    length = sum(value * value for value in raw) ** 0.5 or 1.0
    return [value / length for value in raw]


def _packed(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _tokens(characters: int) -> int:
    return characters // 4 + 1


def _usage(prompt: int, answer: int) -> dict[str, Any]:
    used, made = _tokens(prompt) + 7, _tokens(answer) if answer else 0
    return {
        "prompt_tokens": used,
        "completion_tokens": made,
        "total_tokens": used + made,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def _length(messages: list[Any]) -> int:
    return sum(len(_content(message)) for message in messages)


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content or ""


def user_text(messages: list[Any]) -> str:
    """The text of the last user message."""
    users = [message for message in messages if isinstance(message, dict) and message.get("role") == "user"]
    return _content(users[-1]) if users else ""


def check_chat(body: Mapping[str, Any]) -> str:
    """Check a chat body as OpenAI would; returns the user's text. Raises BadRequest."""
    messages = body.get("messages")
    if messages is None:
        raise BadRequest("Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter")
    if not isinstance(messages, list) or not messages:
        message = "Invalid 'messages': empty array. Expected an array with minimum length 1."
        raise BadRequest(message, param="messages", code="empty_array")
    for place, message in enumerate(messages):
        _check_message(message, f"messages[{place}]")
    _check_numbers(body)
    _check_response_format(body.get("response_format"))
    return user_text(messages)


def _check_message(message: Any, where: str) -> None:
    if not isinstance(message, dict):
        raise BadRequest(f"Invalid type for '{where}': expected an object.", param=where, code="invalid_type")
    if message.get("role") not in _ROLES:
        roles = ", ".join(f"'{role}'" for role in sorted(_ROLES))
        text = f"Invalid value: '{message.get('role')}'. Supported values are: {roles}."
        raise BadRequest(text, param=f"{where}.role", code="invalid_value")
    needs_content = message["role"] not in ("assistant", "function")
    if not isinstance(message.get("content"), str | list) and (needs_content or message.get("content") is not None):
        text = f"Invalid type for '{where}.content': expected one of a string or array of objects."
        raise BadRequest(text, param=f"{where}.content", code="invalid_type")


def _check_numbers(body: Mapping[str, Any]) -> None:
    if body["model"].startswith(_REASONING_MODELS) and body.get("max_tokens") is not None:
        message = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
        raise BadRequest(message, param="max_tokens", code="unsupported_parameter")
    for name in ("max_tokens", "max_completion_tokens"):
        value = body.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            message = f"Invalid '{name}': expected a whole number of at least 1."
            raise BadRequest(message, param=name, code="integer_below_min_value")
    for name, low, high in (("temperature", 0, 2), ("top_p", 0, 1)):
        value = body.get(name)
        if value is not None and (not isinstance(value, int | float) or not low <= value <= high):
            message = f"Invalid '{name}': expected a number from {low} to {high}."
            raise BadRequest(message, param=name, code="decimal_out_of_range")


def _check_response_format(form: Any) -> None:
    if form is None:
        return
    kind = form.get("type") if isinstance(form, dict) else None
    if kind not in ("text", "json_object", "json_schema"):
        message = f"Invalid value: '{kind}'. Supported values are: 'json_object', 'json_schema', and 'text'."
        raise BadRequest(message, param="response_format.type", code="invalid_value")
    if kind != "json_schema":
        return
    spec = form.get("json_schema")
    for name in ("name", "schema"):
        if not isinstance(spec, dict) or not spec.get(name):
            where = f"response_format.json_schema.{name}"
            raise BadRequest(f"Missing required parameter: '{where}'.", param=where, code="missing_required_parameter")
    if spec.get("strict"):
        problem = _strict_problem(spec["schema"], ())
        if problem:
            message = f"Invalid schema for response_format '{spec['name']}': {problem}"
            raise BadRequest(message, param="response_format")


def _strict_problem(schema: Any, context: tuple[str, ...]) -> str | None:
    """What strict structured output does not take: an open object, or a property that is not required."""
    if isinstance(schema, list):
        return next((found for item in schema if (found := _strict_problem(item, context))), None)
    if not isinstance(schema, dict):
        return None
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            return f"In context={context}, 'additionalProperties' is required to be supplied and to be false."
        missing = sorted(set(schema.get("properties", {})) - set(schema.get("required", [])))
        if missing:
            return (
                f"In context={context}, 'required' is required to be supplied and to be an array including every key"
                f" in properties. Missing '{missing[0]}'."
            )
    for name, value in schema.items():
        if name not in ("enum", "const", "default", "examples", "required"):
            found = _strict_problem(value, (*context, name))
            if found:
                return found
    return None


def _chat_schema(form: Any) -> Any:
    return form["json_schema"]["schema"] if form and form["type"] == "json_schema" else None


class _Labels(random.Random):
    """Chooses as its base does, and the right label where the text says which."""

    text = ""

    def choice(self, seq: Any) -> Any:
        told = _told(self.text, seq)
        return super().choice(seq) if told is None else told


def _told(text: str, labels: Any) -> Any:
    """The label that the text marks, or the only one that it names."""
    marked = _MARKER.search(text)
    if marked is not None:
        return next((label for label in labels if str(label) == marked.group(1)), None)
    lower = text.lower()
    named: list[str] = []
    for label in labels:
        if isinstance(label, str) and label.lower() in lower and _is_word(label.lower(), lower):
            named.append(label)
            if len(named) > 1:
                return None
    return named[0] if named else None


def _is_word(label: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(label)}(?!\w)", text) is not None


def canned_answer(text: str, schema: Any, source: random.Random) -> str:
    """The answer's text: an instance of the schema, else a sentence that says that it is canned."""
    if schema is None:
        return f"This is a canned answer of the rehearsal to: {' '.join(text.split())[:60]}"
    chooser = _Labels(source.random())
    chooser.text = text
    try:
        return orjson.dumps(instance(schema, chooser)).decode()
    except (TooDeep, KeyError, IndexError, TypeError) as error:
        message = f"Invalid schema for response_format: {error}"
        raise BadRequest(message, param="response_format") from error
