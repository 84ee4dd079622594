"""Result lines of OpenAI-like batches: one line in, the provider's final word on one request out.

Shapes: PROVIDERS.md 2.5 (an answer that is not 2xx stands in `response.body`, a request that was not executed has
`response: null`), VLLM.md (`run-batch` fills `error` and leaves the body out). A line is judged by its content alone.
"""

from __future__ import annotations

from typing import Any

import orjson

from .base import BadLine, Outcome, Result, Usage
from .openai_wire import is_billing, is_transient_code, text_or_none

_RETRIED = frozenset({0, 408, 409, 429})
_NOT_RUN = {
    "batch_expired": Outcome.EXPIRED,
    "batch_cancelled": Outcome.CANCELED,
    "batch_canceled": Outcome.CANCELED,
}
_CUT = {
    "length": Outcome.TRUNCATED,
    "repetition": Outcome.TRUNCATED,  # vLLM stops a loop
    "content_filter": Outcome.FILTERED,
    "abort": Outcome.ERRORED_TRANSIENT,  # vLLM
    "error": Outcome.ERRORED_TRANSIENT,
}


def parse_result(line: bytes) -> Result:
    """One result line without its line end. Raises BadLine where it is not JSON, no object, or has no id."""
    try:
        data = orjson.loads(line)
    except ValueError as err:  # bad UTF-8 as well
        raise BadLine(f"not JSON: {err}") from None
    if not isinstance(data, dict):
        raise BadLine("not a JSON object")
    custom_id = data.get("custom_id")
    if not isinstance(custom_id, str) or not custom_id:
        raise BadLine("no custom_id")
    response = data.get("response")
    if not isinstance(response, dict):
        response = {}
    body = response.get("body")
    status = _status(response.get("status_code"))
    error = _error_of(data.get("error"))
    if error is None and status is not None and 200 <= status < 300:
        return _answer(custom_id, body)
    if error is None and isinstance(body, dict):
        error = _error_of(body.get("error"))
    return _failure(custom_id, status, error or {})


def _status(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 4:
        return int(value)
    return None


def _error_of(value: object) -> dict[str, Any] | None:
    """The error as an object; None where there is none (null, or an object of nulls)."""
    if isinstance(value, str):
        return {"message": value} if value else None
    if not isinstance(value, dict):
        return None if not value else {"message": text_or_none(value) or "an error without words"}
    inner = value.get("error")
    if isinstance(inner, dict):  # vLLM nests its error once more
        value = inner
    return value if any(item is not None for item in value.values()) else None


def _failure(custom_id: str, status: int | None, error: dict[str, Any]) -> Result:
    code = text_or_none(error.get("code")) or text_or_none(error.get("type"))
    message = text_or_none(error.get("message"))
    if status is None or 200 <= status < 300:
        status = _status(error.get("code"))  # vLLM: the status stands in the error's code
    if (outcome := _NOT_RUN.get(code or "")) is None:
        if is_billing(code, message or ""):
            outcome, code = Outcome.ERRORED_TRANSIENT, "billing"
        elif is_transient_code(code) if status is None else status in _RETRIED or status >= 500:
            outcome = Outcome.ERRORED_TRANSIENT
        else:
            outcome = Outcome.ERRORED
    shown = message or ("no answer and no error in the line" if status is None else f"HTTP {status} without a message")
    return Result(custom_id, outcome, error_code=code or (str(status) if status is not None else None), error=shown)


def _answer(custom_id: str, body: object) -> Result:
    """A 2xx: success only where the body has the shape of a chat completion and finished by itself."""
    choices = body.get("choices") if isinstance(body, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(body, dict) or not isinstance(choice, dict) or not isinstance(message, dict):
        error = _error_of(body.get("error")) if isinstance(body, dict) else None
        if error is not None:
            return _failure(custom_id, None, error)
        return Result(
            custom_id, Outcome.ERRORED, error_code="bad_shape", error="a 2xx whose body is not a chat completion"
        )
    usage = _usage(body.get("usage"))
    finish = text_or_none(choice.get("finish_reason"))
    text, refused = _text(message.get("content"))
    refusal = text_or_none(message.get("refusal")) or refused
    outcome, code, error_text = _judge(finish, text, refusal, usage)
    model = text_or_none(body.get("model"))
    fingerprint = body.get("system_fingerprint")
    if model is not None and isinstance(fingerprint, str) and fingerprint:
        model = f"{model} {fingerprint}"
    return Result(custom_id, outcome, text, finish, usage, model, code, error_text)


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
        return outcome, finish, "the provider's content filter cut the answer"
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
    cached = value.get("prompt_tokens_details")
    reasoning = value.get("completion_tokens_details")
    return Usage(
        _tokens(value.get("prompt_tokens")),
        _tokens(value.get("completion_tokens")),
        _tokens(cached.get("cached_tokens")) if isinstance(cached, dict) else 0,
        _tokens(reasoning.get("reasoning_tokens")) if isinstance(reasoning, dict) else 0,
    )


def _tokens(value: object) -> int:
    return value if type(value) is int and value >= 0 else 0
