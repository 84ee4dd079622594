"""How a job stands, as an exit code: pure functions over the store's views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from batchctl.engine.doubt import UNSURE, UNSURE_GONE
from batchctl.exits import DONE, FAILED_ROWS, LATE, PAUSED, RUNNING

if TYPE_CHECKING:
    from batchctl.reading import Reading

Row = Mapping[str, Any]
PERSONAL = ("auth", "billing")
"""Pauses of an account that only a person ends; a full queue ends by itself."""


def of_job(job: Row, batches: Sequence[Row], account: Row | None, now: float) -> int:
    """The exit code of one job. `account` is its account's row where that is paused."""
    if job["state"] == "finished":
        return FAILED_ROWS if job["final_rows"] > job["succeeded_rows"] else DONE
    if needs_person(job, batches, account):
        return PAUSED
    return LATE if is_late(job, batches, now) else RUNNING


def needs_person(job: Row, batches: Sequence[Row], account: Row | None) -> str | None:
    """Why nothing moves on before a person does something; None where it does."""
    out = any(batch["state"] in ("submitted", "ended", "submitting", "uploading") for batch in batches)
    if account is not None and account["pause_kind"] == "auth":
        return f"account {account['name']} is paused, its key was refused: {account['pause_reason']}"
    if any(is_unsure(batch) for batch in batches):
        unsure = next(batch for batch in batches if is_unsure(batch))
        return f"batch b{unsure['ordinal']} is in doubt: {unsure['note']}"
    if account is not None and account["pause_kind"] in PERSONAL and not out:
        return f"account {account['name']} is paused: {account['pause_reason']}"
    if job["state"] == "paused" and not out:
        return "it was paused with `batchctl pause`"
    return None


def is_unsure(batch: Row) -> bool:
    """In doubt, or out and not visible any more, and looking for it again will not tell."""
    words = {"in_doubt": UNSURE, "submitted": UNSURE_GONE, "ended": UNSURE_GONE}.get(batch["state"])
    return words is not None and (batch["note"] or "").startswith(words)


def is_late(job: Row, batches: Sequence[Row], now: float) -> bool:
    """A batch is past the provider's window, or the job's deadline cannot be kept any more."""
    ends = [batch["window_ends_at"] for batch in batches if batch["state"] == "submitted" and batch["window_ends_at"]]
    if any(end < now for end in ends):
        return True
    return job["deadline"] is not None and (job["deadline"] < now or any(end > job["deadline"] for end in ends))


def worst(codes: Iterable[int]) -> int:
    """One code for several jobs: what needs a person first, then what is late, running, failed."""
    return max(codes, default=DONE)


def codes(reading: Reading, jobs: Iterable[Row]) -> dict[int, int]:
    """The exit code of each job, by its number."""
    accounts = {account["name"]: account for account in reading.views.accounts()}
    now = reading.now
    return {
        job["id"]: of_job(
            job,
            [] if job["state"] == "finished" else reading.views.open_batches(job["id"]),
            accounts.get(job["account"]),
            now,
        )
        for job in jobs
    }


def reason(reading: Reading, job: Row) -> str | None:
    """Why the job does not move on before a person does something; None where it does, or is finished."""
    if job["state"] == "finished":
        return None
    account = next((found for found in reading.views.accounts() if found["name"] == job["account"]), None)
    return needs_person(job, reading.views.open_batches(job["id"]), account)
