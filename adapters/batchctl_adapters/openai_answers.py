"""The bodies of answers, endpoint by endpoint: what a 2xx really says of its row.

Shapes: https://platform.openai.com/docs/api-reference, the SDK's types, PROVIDERS.md 2.5; CASES.md 15, 24, 69, 70.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from .base import Kind, Outcome, Result, Usage
from .openai_wire import text_or_none
from .vectors import pack

NAMES: Mapping[Kind, str] = {
    "chat": "chat completion",
    "responses": "response",
    "embedding": "list of embeddings",
    "completion": "completion",
    "moderation": "moderation",
}
_CUT = {
    "length": Outcome.TRUNCATED,
    "repetition": Outcome.TRUNCATED,  # vLLM stops a loop
    "content_filter": Outcome.FILTERED,
    "abort": Outcome.ERRORED_TRANSIENT,  # vLLM
    "error": Outcome.ERRORED_TRANSIENT,
}
FILTERED = "the provider's content filter cut the answer"
_INCOMPLETE = {"max_output_tokens": Outcome.TRUNCATED, "content_filter": Outcome.FILTERED}
_CHAT_USAGE = ("prompt_tokens", "completion_tokens", "prompt_tokens_details", "completion_tokens_details")
_RESPONSES_USAGE = ("input_tokens", "output_tokens", "input_tokens_details", "output_tokens_details")

_Body = Mapping[str, Any]


def read_answer(custom_id: str, body: _Body, kind: Kind) -> Result | None:
    """What the body of a 2xx says; None where it is not of its kind's shape."""
    return _READERS[kind](custom_id, body)


def _chat(custom_id: str, body: _Body) -> Result | None:
    choice = _first_choice(body)
    message = None if choice is None else choice.get("message")
    if choice is None or not isinstance(message, dict):
        return None
    text, refused = _text(message.get("content"))
    refusal = text_or_none(message.get("refusal")) or refused
    return _chosen(custom_id, body, choice, text, refusal)


def _completion(custom_id: str, body: _Body) -> Result | None:
    choice = _first_choice(body)
    if choice is None or not isinstance(text := choice.get("text"), str):
        return None
    return _chosen(custom_id, body, choice, text, None)


def _first_choice(body: _Body) -> Mapping[str, Any] | None:
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, dict) else None


def _chosen(custom_id: str, body: _Body, choice: _Body, text: str | None, refusal: str | None) -> Result:
    usage = _usage(body.get("usage"))
    finish = text_or_none(choice.get("finish_reason"))
    outcome, code, error = _judge(finish, text, refusal, usage)
    return Result(custom_id, outcome, text, finish, usage, _model(body), code, error)


def _response(custom_id: str, body: _Body) -> Result | None:
    """All texts of all messages: a message may be the second item, and there may be two (CASES.md 24)."""
    if "output" not in body and "choices" in body:
        return _chat(custom_id, body)  # xAI answers like this (PROVIDERS.md 9)
    output, status = body.get("output"), text_or_none(body.get("status"))
    if not isinstance(output, list) or status == "failed":
        return None
    contents = [
        item.get("content") for item in output if isinstance(item, dict) and item.get("type", "message") == "message"
    ]
    parts = [
        part
        for content in contents
        for part in (content if isinstance(content, list) else [{"text": content}])
        if isinstance(part, dict)
    ]
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    refusal = "".join(part["refusal"] for part in parts if isinstance(part.get("refusal"), str)) or None
    text, usage = "".join(texts) if texts else None, _usage(body.get("usage"))
    finish, outcome, code, error = _judge_response(body, status, text, refusal, usage)
    several = tuple(texts) if len(texts) > 1 else ()
    return Result(custom_id, outcome, text, finish, usage, _model(body), code, error, several)


def _judge_response(
    body: _Body, status: str | None, text: str | None, refusal: str | None, usage: Usage | None
) -> tuple[str | None, Outcome, str | None, str | None]:
    """Finish reason, outcome, code and message."""
    if status != "incomplete":
        outcome, code, error = _judge("stop" if status == "completed" else status, text, refusal, usage)
        return status, outcome, code, error
    details = body.get("incomplete_details")
    reason = (text_or_none(details.get("reason")) if isinstance(details, dict) else None) or status
    outcome = _INCOMPLETE.get(reason, Outcome.TRUNCATED)
    if outcome is Outcome.FILTERED:
        return reason, outcome, reason, FILTERED
    return reason, outcome, reason, _truncation(text, usage) if reason in _INCOMPLETE else f"incomplete: {reason}"


def _embedding(custom_id: str, body: _Body) -> Result | None:
    """Vectors in the order of their inputs; whether there is one for each of them is the caller's to check."""
    data = body.get("data")
    if not isinstance(data, list) or not data or not all(isinstance(item, dict) for item in data):
        return None
    places = [item.get("index", place) for place, item in enumerate(data)]
    vectors: list[Any] = [None] * len(data)
    for place, item in zip(places, data, strict=True):
        if type(place) is int and 0 <= place < len(data):
            vectors[place] = item.get("embedding")
    try:
        text = pack(vectors)  # a place that nothing was said for is None, which is no vector
    except ValueError:
        return None
    return Result(custom_id, Outcome.SUCCEEDED, text, usage=_usage(body.get("usage")), model=_model(body))


def _moderation(custom_id: str, body: _Body) -> Result | None:
    results = body.get("results")
    found = results[0] if isinstance(results, list) and len(results) == 1 else None
    if not isinstance(found, dict) or not isinstance(found.get("flagged"), bool):
        return None
    said = {key: found.get(key) for key in ("flagged", "categories", "category_scores")}
    return Result(custom_id, Outcome.SUCCEEDED, orjson.dumps(said).decode(), model=_model(body))


_READERS: Mapping[Kind, Callable[[str, _Body], Result | None]] = {
    "chat": _chat,
    "responses": _response,
    "embedding": _embedding,
    "completion": _completion,
    "moderation": _moderation,
}


def _model(body: _Body) -> str | None:
    """As echoed, with the fingerprint where there is one."""
    model, fingerprint = text_or_none(body.get("model")), body.get("system_fingerprint")
    return f"{model} {fingerprint}" if model is not None and isinstance(fingerprint, str) and fingerprint else model


def _text(content: object) -> tuple[str | None, str | None]:
    """The answer and a refusal, from a string or from a list of parts."""
    if isinstance(content, str):
        return content, None
    if not isinstance(content, list):
        return None, None
    parts = [part for part in content if isinstance(part, dict)]
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    refusals = [part["refusal"] for part in parts if isinstance(part.get("refusal"), str)]
    return "".join(texts) if texts else None, "".join(refusals) or None


def _judge(
    finish: str | None, text: str | None, refusal: str | None, usage: Usage | None
) -> tuple[Outcome, str | None, str | None]:
    """Outcome, code and message. The finish reason is looked at before the content (CASES.md 70)."""
    if finish == "stop" or finish in ("tool_calls", "function_call"):
        if refusal:
            return Outcome.REFUSED, "refusal", refusal
        if not text or text.isspace():
            return Outcome.EMPTY, "empty", "the answer is empty"
        return Outcome.SUCCEEDED, None, None
    outcome = _CUT.get(finish or "")
    if outcome is Outcome.TRUNCATED:
        return outcome, finish, _truncation(text, usage)
    if outcome is Outcome.FILTERED:
        return outcome, finish, FILTERED
    if outcome is not None:
        return outcome, finish, "the engine gave the request up"
    # Not a success: nobody knows whether this answer is whole. Not sent again either: it is billed.
    return Outcome.ERRORED, "finish_reason", f"unknown finish_reason: {finish!r}"


def _truncation(text: str | None, usage: Usage | None) -> str:
    if not text and usage is not None and usage.reasoning_tokens:
        return (
            f"reasoning used the whole budget ({usage.reasoning_tokens} of {usage.output_tokens} tokens):"
            " raise max_output_tokens"
        )
    return "cut off at the token limit: raise max_output_tokens"


def _usage(value: object) -> Usage | None:
    if not isinstance(value, dict):
        return None
    used, made, of_used, of_made = _RESPONSES_USAGE if "input_tokens" in value else _CHAT_USAGE
    cached, reasoning = value.get(of_used), value.get(of_made)
    return Usage(
        _tokens(value.get(used)),
        _tokens(value.get(made)),
        _tokens(cached.get("cached_tokens")) if isinstance(cached, dict) else 0,
        _tokens(reasoning.get("reasoning_tokens")) if isinstance(reasoning, dict) else 0,
    )


def _tokens(value: object) -> int:
    return value if type(value) is int and value >= 0 else 0
