"""The OpenAI wire's remote objects and errors, read defensively: pure functions over decoded JSON, no network.

Shapes and wordings: PROVIDERS.md 2.1 to 2.8 and 13. Compatible endpoints differ in case, in the type of timestamps and
in the shape of `errors`, so nothing here trusts a type it has not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import orjson

from .base import BatchError, Counts, Phase, RemoteBatch, Upload
from .errors import AdapterError, Auth, Billing, Permanent, QueueFull, RemoteGone, Transient

TAG_KEY = "batchctl"
"""The metadata key that carries a submission's tag."""

_PHASES = {
    "validating": Phase.WAITING,
    "in_progress": Phase.RUNNING,
    "progress": Phase.RUNNING,  # Novita (PROVIDERS.md 13)
    "finalizing": Phase.ENDING,
    "cancelling": Phase.ENDING,
    "canceling": Phase.ENDING,
    "completed": Phase.ENDED,
    "failed": Phase.ENDED,
    "expired": Phase.ENDED,
    "cancelled": Phase.ENDED,
    "canceled": Phase.ENDED,
}
_NOT_READY = frozenset({"pending", "running", "queued", "uploading", "processing"})

# Wordings are matched on their meaning: they differ between providers and change without notice (CASES.md 38, 45).
_QUEUE = re.compile(r"enqueued|queued (?:tokens|requests)|in_progress batches|batch queue", re.IGNORECASE)
_QUEUE_CODES = frozenset({"token_limit_exceeded", "request_limit_exceeded", "enqueued_token_limit_exceeded"})
_BILLING = re.compile(
    r"exceeded your current quota|credit balance is too low|billing hard limit|billing (?:is )?not active"
    r"|out of credits?|insufficient (?:account )?(?:credits?|balance|funds|quota)|account is not active",
    re.IGNORECASE,
)
_BILLING_CODES = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "insufficient_balance", "billing_error"}
)
_FILE = re.compile(
    r"(?:cannot|can't|could not|couldn't) find (?:the )?file|file\b.{0,120}?\bnot (?:found|exist)"
    r"|no such file|not (?:yet )?(?:been )?processed|does not have access to (?:it|the file)",
    re.IGNORECASE,
)
_STORAGE = re.compile(r"quota|storage (?:limit|space|is full)|too many files|maximum number of files", re.IGNORECASE)
_ABSENT = re.compile(r"\bno (?:batch|file) found|\bnot[ _]found|no such|does not exist", re.IGNORECASE)
_TRANSIENT_CODES = frozenset(
    {
        "engine_overloaded",
        "internal_error",
        "internal_server_error",
        "overloaded",
        "overloaded_error",
        "rate_limit_exceeded",
        "request_timeout",
        "server_error",
        "service_unavailable",
        "timeout",
    }
)


def is_queue_full(code: str | None, message: str) -> bool:
    """The account's queue of enqueued tokens or requests is full (CASES.md 36, 38)."""
    return code in _QUEUE_CODES or bool(_QUEUE.search(message))


def is_billing(code: str | None, message: str) -> bool:
    """The account is out of money, whatever the status says (CASES.md 45)."""
    return code in _BILLING_CODES or bool(_BILLING.search(message))


def is_transient_code(code: str | None) -> bool:
    """A word for a failure of the provider's own, which may pass."""
    return code in _TRANSIENT_CODES


def text_or_none(value: object) -> str | None:
    """A non-empty string as it is, a number as text (`error.code` comes as both), anything else as None."""
    if isinstance(value, str):
        return value or None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return None


def parse_time(value: object) -> float | None:
    """Epoch seconds from epoch seconds or milliseconds, as a number or text, or from an ISO date; else None."""
    if isinstance(value, str):
        value = _time_from_text(value.strip())
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not 0 < value < 1e15:  # also false for NaN
        return None
    return value / 1000 if value > 1e11 else float(value)


def _time_from_text(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def parse_batch(data: object) -> RemoteBatch:
    """A batch object; any field may be odd or missing except the id, without which it raises ValueError."""
    if not isinstance(data, dict) or not isinstance(remote_id := data.get("id"), str) or not remote_id:
        raise ValueError("not a batch object: no id")
    raw_status = text_or_none(data.get("status")) or ""
    status = raw_status.strip().lower()
    phase = _PHASES.get(status, Phase.UNKNOWN)
    errors = _errors(data.get("errors"))
    metadata = data.get("metadata")
    return RemoteBatch(
        remote_id=remote_id,
        raw_status=raw_status,
        phase=phase,
        created_at=parse_time(data.get("created_at")),
        expires_at=parse_time(data.get("expires_at")),
        ended_at=_ended_at(data, status) if phase is Phase.ENDED else None,
        counts=_counts(data.get("request_counts")),
        files=_files(data),
        errors=errors,
        resend=_resend(errors) if phase is Phase.ENDED else None,
        tag=text_or_none(metadata.get(TAG_KEY)) if isinstance(metadata, dict) else None,
        upload_id=text_or_none(data.get("input_file_id")),
    )


def _ended_at(data: Mapping[str, Any], status: str) -> float | None:
    spellings = {"canceled": "cancelled"}
    own = parse_time(data.get(f"{spellings.get(status, status)}_at"))
    if own is not None:
        return own
    others = (parse_time(data.get(key)) for key in ("completed_at", "failed_at", "expired_at", "cancelled_at"))
    return next((moment for moment in others if moment is not None), None)


def _counts(value: object) -> Counts | None:
    if not isinstance(value, dict):
        return None
    total, succeeded, failed = (_count(value.get(key)) for key in ("total", "completed", "failed"))
    if total is None and succeeded is None and failed is None:
        return None
    done, bad = succeeded or 0, failed or 0
    return Counts(total if total is not None else done + bad, done, bad)


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value


def _files(data: Mapping[str, Any]) -> tuple[str, ...]:
    found = (data.get("output_file_id"), data.get("error_file_id"))
    return tuple(dict.fromkeys(handle for handle in found if isinstance(handle, str) and handle))


def _errors(value: object) -> tuple[BatchError, ...]:
    """`{"data": [...]}` (OpenAI), a bare list (Groq), one object, or one string (Together)."""
    if isinstance(value, dict):
        data = value.get("data")
        items = data if isinstance(data, list) else [] if "data" in value else [value]
    elif isinstance(value, list):
        items = value
    else:
        items = [value] if value else []
    return tuple(_error(item) for item in items)


_OF_EVERY_ROW = frozenset(
    {
        "invalid_method",
        "invalid_url",
        "mismatched_model",
        "model_mismatch",
        "model_not_found",
        "streaming_unsupported",
        "url_mismatch",
    }
)
"""Codes about what all lines of a file share; validation stops at the first line, which is not to blame
(PROVIDERS.md 2.4)."""


def _error(item: object) -> BatchError:
    if not isinstance(item, dict):
        return BatchError(code=None, message=item if isinstance(item, str) else str(item))
    code, message, line = text_or_none(item.get("code")), text_or_none(item.get("message")) or "", item.get("line")
    named = line if isinstance(line, int) and not isinstance(line, bool) else None
    if named is not None and code in _OF_EVERY_ROW:
        named, message = None, f"{message} (line {named})"
    return BatchError(code=code, message=message, line=named, param=text_or_none(item.get("param")))


def _resend(errors: tuple[BatchError, ...]) -> Literal["queue_full", "billing", "file", "transient"] | None:
    """Why the batch may be sent again as it is: only where each error is of that kind and none names a line."""
    kinds = {_resend_kind(error) for error in errors if error.line is None}
    if any(error.line is not None for error in errors) or len(kinds) != 1:
        return None
    return kinds.pop()


def _resend_kind(error: BatchError) -> Literal["queue_full", "billing", "file", "transient"] | None:
    if is_queue_full(error.code, error.message):
        return "queue_full"
    if is_billing(error.code, error.message):
        return "billing"
    if _FILE.search(error.message) or error.code == "file_not_found":
        return "file"
    return "transient" if is_transient_code(error.code) else None


def parse_upload(data: object) -> Upload:
    """A file object. Raises ValueError where it is not an object with an id."""
    if not isinstance(data, dict) or not isinstance(upload_id := data.get("id"), str) or not upload_id:
        raise ValueError("not a file object: no id")
    return Upload(
        upload_id=upload_id,
        name=text_or_none(data.get("filename")) or "",
        size=_count(data.get("bytes")),
        created_at=parse_time(data.get("created_at")),
        ready=(text_or_none(data.get("status")) or "").lower() not in _NOT_READY,
    )


def entries(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A list page's objects that have an id."""
    items = data.get("data")
    if not isinstance(items, list):
        return []
    return [item for item in items if isinstance(item, dict) and isinstance(item.get("id"), str) and item["id"]]


def own_error(body: bytes) -> Mapping[str, Any] | None:
    """The provider's own error, `{"error": {"message": ...}}`, or None where somebody else wrote the body."""
    try:
        data = orjson.loads(body)
    except ValueError:
        return None
    error = data.get("error") if isinstance(data, dict) else None
    return error if isinstance(error, dict) and (error.get("message") or error.get("code")) else None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `Retry-After` (seconds, or a date against the answer's `Date`)."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if 0 <= seconds < 1e9:
            return seconds
    try:
        until = parsedate_to_datetime(headers["retry-after"])
        return max(0.0, (until - parsedate_to_datetime(headers["date"])).total_seconds())
    except (KeyError, ValueError, TypeError):
        return None


def classify(
    status: int, body: bytes, headers: Mapping[str, str], *, what: str, clean: Callable[[str], str], gone: bool = False
) -> AdapterError:
    """The exception for an answer that is no success. `what` names the call; `clean` takes keys out of texts.

    `gone` says that the call named a thing which this key once created: its 404 is RemoteGone if it is the API that
    speaks (JSON) and Transient if it is something in between. For create the caller decides first whether the answer
    is a refusal at all.
    """
    error = own_error(body)
    code = clean(text_or_none((error or {}).get("code")) or "") or None
    message = clean(text_or_none((error or {}).get("message")) or "")
    shown = f"{what}: HTTP {status}" + (f": {message}" if message else "") + (f" ({code})" if code else "")
    if is_billing(code, message) or status == 402:
        return Billing(f"{shown}; add credit or raise the limit, then run again", code=code, status=status)
    if status in (401, 403):
        return Auth(f"{shown}; check the key and what it is allowed to do", code=code, status=status)
    if status in (400, 429) and is_queue_full(code, message):
        return QueueFull(shown, retry_after=retry_after(headers), code=code, status=status)
    if status in (408, 409, 429) or status >= 500 or status == 0:
        return Transient(shown, retry_after=retry_after(headers), code=code, status=status)
    if status == 404 and gone:
        return (RemoteGone if _is_json_object(body) else Transient)(shown, code=code, status=status)
    return Permanent(shown, code=code, status=status)


def _is_json_object(body: bytes) -> bool:
    try:
        return isinstance(orjson.loads(body), dict)
    except ValueError:
        return False


def is_missing_file(status: int, message: str) -> bool:
    """Create was refused because the uploaded file is not visible or not processed yet (CASES.md 30)."""
    return status in (400, 404) and bool(_FILE.search(message))


def is_storage_full(status: int, code: str | None, message: str) -> bool:
    """An upload was refused because the account's file storage is full (CASES.md 32)."""
    return status in (400, 403, 409, 413, 422, 429) and bool(_STORAGE.search(f"{code or ''} {message}"))


def says_absent(error: Mapping[str, Any]) -> bool:
    """An error object in a 200 body that says the thing is not there (CASES.md 9)."""
    code = text_or_none(error.get("code")) or ""
    return bool(_ABSENT.search(f"{code} {text_or_none(error.get('message')) or ''}"))
