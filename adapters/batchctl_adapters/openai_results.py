"""Result lines of OpenAI-like batches: one line in, the provider's final word on one request out.

Shapes: PROVIDERS.md 2.5 (an answer that is not 2xx stands in `response.body`, a request that was not executed has
`response: null`), VLLM.md (`run-batch` fills `error` and leaves the body out). A line is judged by its content alone.
"""

from __future__ import annotations

from typing import Any

import orjson

from .base import BadLine, Kind, Outcome, Result
from .openai_answers import NAMES, read_answer
from .openai_wire import is_billing, is_transient_code, text_or_none

_RETRIED = frozenset({0, 408, 409, 429})
_NOT_RUN = {
    "batch_expired": Outcome.EXPIRED,
    "batch_cancelled": Outcome.CANCELED,
    "batch_canceled": Outcome.CANCELED,
}


def parse_result(line: bytes, kind: Kind = "chat") -> Result:
    """One result line of a batch of this kind, without its line end.

    Raises BadLine where it is not JSON, no object, or has no id.
    """
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
        return _answered(custom_id, body, kind)
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


def _answered(custom_id: str, body: object, kind: Kind) -> Result:
    """A 2xx: success only where the body has the shape of its endpoint's answers (CASES.md 15)."""
    if not isinstance(body, dict):
        body = {}
    if (answer := read_answer(custom_id, body, kind)) is not None:
        return answer
    error = _error_of(body.get("error"))
    if error is not None:
        return _failure(custom_id, None, error)
    return Result(custom_id, Outcome.ERRORED, error_code="bad_shape", error=f"a 2xx whose body is no {NAMES[kind]}")
