"""Anthropic's objects and error bodies (PROVIDERS.md 3.3 to 3.5; the types of the SDK 2.14)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from batchctl.gateway.faults import Kind
from batchctl.gateway.options import MESSAGES_ENDPOINT
from batchctl.gateway.state import DAY, TERMINAL, Batch
from batchctl.gateway.wire import WireError, shown_status

RETENTION: Final = 29 * DAY  # from creation on; then the results are archived
VERSIONS: Final = frozenset({"2023-01-01", "2023-06-01", "2026-10-21"})
STRICT_VERSION: Final = "2026-10-21"
"""From here on sampling parameters, documents of the assistant and citations of the user are refused."""

_KINDS: Final = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_ROW_KINDS: Final = frozenset(_KINDS.values()) - {"request_too_large"} | {"invalid_request_error", "api_error"}
_PATH: Final = f"{MESSAGES_ENDPOINT}/batches"


def is_messages(path: str) -> bool:
    """Whether a request's path is of this wire."""
    return path == MESSAGES_ENDPOINT or path.startswith(f"{MESSAGES_ENDPOINT}/")


def error_kind(status: int, code: str | None) -> str:
    """The error's type: `code` where it is one of this wire's, else the status's."""
    plain = _KINDS.get(status, "api_error" if status >= 500 or status < 400 else "invalid_request_error")
    return code if code in _ROW_KINDS and code is not None else plain


def error_json(kind: str, message: str, request_id: str | None) -> dict[str, Any]:
    """The envelope of every error."""
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}


def no_batch(batch_id: str) -> WireError:
    return WireError(404, f"Message Batch {batch_id} not found.")


def check_version(version: str | None) -> None:
    """Raises WireError 400 for a request without a version, or with one that does not exist."""
    if version is None:
        raise WireError(400, "anthropic-version: header is required")
    if version not in VERSIONS:
        raise WireError(400, f'anthropic-version: "{version}" is not a valid version')


def _moment(seconds: float | None) -> str | None:
    """RFC 3339 with microseconds."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def archived_at(batch: Batch, now: float) -> float | None:
    """When the results went away; None as long as they have not."""
    moment = batch.created_at + RETENTION
    gone = batch.fault(Kind.FILES_GONE)
    if gone is not None and batch.ended_at is not None:
        moment = min(moment, batch.ended_at + gone.seconds)
    return moment if now >= moment else None


def has_results(batch: Batch, now: float) -> bool:
    """Whether the results can be read at `now`."""
    late = batch.fault(Kind.FILES_LATE)
    if batch.status not in TERMINAL or archived_at(batch, now) is not None:
        return False
    return late is None or now >= (batch.ended_at or now) + late.seconds


def _status(batch: Batch, now: float) -> str:
    status = shown_status(batch, now)
    if status in TERMINAL:
        return "ended"
    return {"cancelling": "canceling", "finalizing": "in_progress"}.get(status, status)


def _counts(batch: Batch) -> dict[str, int] | None:
    """All rows are `processing` until the batch ends; from then on their sum is the number of rows."""
    if batch.fault(Kind.NULL_COUNTS):
        return None
    counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    if batch.status not in TERMINAL:
        return {**counts, "processing": batch.total}
    left = batch.total - batch.completed - batch.failed
    counts |= {"succeeded": batch.completed, "errored": batch.failed}
    return {**counts, "canceled" if batch.status == "cancelled" else "expired": left}


def batch_json(batch: Batch, now: float, root_url: str) -> dict[str, Any]:
    """The batch object as a client sees it at `now`; its results are at `root_url`, this server."""
    results = f"{root_url.rstrip('/')}{_PATH}/{batch.id}/results" if has_results(batch, now) else None
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": _status(batch, now),
        "request_counts": _counts(batch),
        "created_at": _moment(batch.created_at),
        "expires_at": _moment(batch.expires_at),
        "ended_at": _moment(batch.ended_at),
        "cancel_initiated_at": _moment(batch.cancelling_at),
        "archived_at": _moment(archived_at(batch, now)),
        "results_url": results,
    }


def page_json(items: list[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    return {
        "data": items,
        "has_more": has_more,
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
    }


def cut_page(items: list[dict[str, Any]], *, after: str | None, before: str | None, limit: int) -> dict[str, Any]:
    """The `limit` items right behind `after`, or right in front of `before`; `has_more` looks the same way.

    Raises WireError 400 where the item is unknown or both are given.
    """
    if after is not None and before is not None:
        raise WireError(400, "after_id, before_id: only one of them can be given")
    if after is None and before is None:
        return page_json(items[:limit], has_more=len(items) > limit)
    name, wanted = ("after_id", after) if before is None else ("before_id", before)
    place = next((place for place, item in enumerate(items) if item["id"] == wanted), None)
    if place is None:
        raise WireError(400, f"{name}: no Message Batch {wanted} in this list")
    if before is None:
        return page_json(items[place + 1 : place + 1 + limit], has_more=len(items) > place + 1 + limit)
    return page_json(items[max(0, place - limit) : place], has_more=place > limit)
