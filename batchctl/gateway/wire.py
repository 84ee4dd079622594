"""What goes over the wire: OpenAI's objects and error bodies (PROVIDERS.md 2.3, 2.5, 2.8; the OpenAPI document)."""

from __future__ import annotations

from typing import Any

from batchctl.gateway.faults import Kind
from batchctl.gateway.state import TERMINAL, Batch, StoredFile


class WireError(Exception):
    """An error answer, which `refusals` words as the wire of the request does.

    `kind` None: as that wire says it for the status. `retry_after` in seconds.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str | None = None,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind = status, message, kind
        self.param, self.code, self.retry_after = param, code, retry_after


def error_body(
    message: str, *, kind: str = "invalid_request_error", param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """`{"error": {...}}` as every OpenAI error has it."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def no_file(file_id: str) -> WireError:
    return WireError(404, f"No such File object: {file_id}", param="id")


def no_batch(batch_id: str) -> WireError:
    return WireError(404, f"No batch found with id '{batch_id}'.")


def file_not_visible(file_id: str) -> WireError:
    """The synchronous refusal straight after an upload (PROVIDERS.md 2.4, curator #116)."""
    message = f"Cannot find file {file_id}, it does not exist or your organization does not have access to it."
    return WireError(400, message, param="file_id")


def wrong_key(key: str) -> WireError:
    shown = f"{key[:3]}...{key[-2:]}" if len(key) > 8 else "***"
    message = f"Incorrect API key provided: {shown}. This server was started with other keys."
    return WireError(401, message, code="invalid_api_key")


def file_json(stored: StoredFile) -> dict[str, Any]:
    return {
        "object": "file",
        "id": stored.id,
        "purpose": stored.purpose,
        "filename": stored.filename,
        "bytes": stored.bytes,
        "created_at": int(stored.created_at),
        "expires_at": int(stored.expires_at),
        "status": "processed",
        "status_details": None,
    }


def is_visible(batch: Batch, now: float) -> bool:
    """False once a `vanish` fault has taken it away."""
    vanish = batch.fault(Kind.VANISH)
    return vanish is None or now < batch.created_at + vanish.seconds


def is_listed(batch: Batch, now: float) -> bool:
    """False while a `list_lag` fault keeps it out of the list, or when it is not visible at all."""
    lag = batch.fault(Kind.LIST_LAG)
    return is_visible(batch, now) and (lag is None or now >= batch.created_at + lag.seconds)


def _whole(moment: float | None) -> int | None:
    return None if moment is None else int(moment)


def shown_status(batch: Batch, now: float) -> str:
    """Its status, or what a fault says instead while it runs."""
    strange = batch.fault(Kind.UNKNOWN_STATUS)
    begun = batch.in_progress_at
    if strange is None or batch.status != "in_progress" or begun is None:
        return batch.status
    return strange.raw_status if not strange.seconds or now < begun + strange.seconds else batch.status


def _counts(batch: Batch) -> dict[str, int] | None:
    """As the real ones behave (PROVIDERS.md 2.3, 2.7): zeros after a failed validation, unreliable after a cancel.

    A cancel resets them; once cancelled they are right again for every second batch only.
    """
    if batch.fault(Kind.NULL_COUNTS):
        return None
    if batch.status in ("validating", "failed"):
        return {"total": 0, "completed": 0, "failed": 0}
    if batch.status == "cancelling" or (batch.status == "cancelled" and batch.seq % 2):
        return {"total": batch.total, "completed": 0, "failed": 0}
    return {"total": batch.total, "completed": batch.completed, "failed": batch.failed}


def batch_json(batch: Batch, now: float) -> dict[str, Any]:
    """The batch object as a client sees it at `now`."""
    late = batch.fault(Kind.FILES_LATE)
    shows_files = batch.status in TERMINAL and (late is None or now >= (batch.ended_at or now) + late.seconds)
    created = int(batch.created_at)
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model,
        "errors": {"object": "list", "data": batch.errors} if batch.errors else None,
        "input_file_id": batch.input_file_id,
        "completion_window": "24h",
        "status": shown_status(batch, now),
        "output_file_id": batch.output_file_id if shows_files else None,
        "error_file_id": batch.error_file_id if shows_files else None,
        "created_at": created,
        "in_progress_at": _whole(batch.in_progress_at),
        "expires_at": created + int(batch.expires_at - batch.created_at),
        "finalizing_at": _whole(batch.finalizing_at),
        "completed_at": _whole(batch.completed_at),
        "failed_at": _whole(batch.failed_at),
        "expired_at": _whole(batch.expired_at),
        "cancelling_at": _whole(batch.cancelling_at),
        "cancelled_at": _whole(batch.cancelled_at),
        "request_counts": _counts(batch),
        "usage": usage_json(batch.usage or {}),
        "metadata": batch.metadata,
    }


def usage_json(sums: dict[str, int]) -> dict[str, Any]:
    """A batch's `usage` from sums `input`, `cached`, `output`, `reasoning`."""
    used, made = sums.get("input", 0), sums.get("output", 0)
    return {
        "input_tokens": used,
        "input_tokens_details": {"cached_tokens": sums.get("cached", 0)},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": sums.get("reasoning", 0)},
        "total_tokens": used + made,
    }


def page_json(items: list[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """A cursor page."""
    return {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": has_more,
    }


def cut_page(items: list[dict[str, Any]], *, after: str | None, limit: int) -> dict[str, Any]:
    """The page behind the item `after` (400 where it is unknown), at most `limit` long."""
    begin = 0
    if after is not None:
        places = {item["id"]: place for place, item in enumerate(items)}
        if after not in places:
            raise WireError(400, f"Invalid 'after': no object with id '{after}' in this list.", param="after")
        begin = places[after] + 1
    return page_json(items[begin : begin + limit], has_more=len(items) > begin + limit)
