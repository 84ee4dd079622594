"""What happens next, in words: pure functions over the store's views, for status, jobs, wait and their `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchctl import verdict
from batchctl.spelling import cut_path, duration, iso

Row = Mapping[str, Any]
LONGEST_TYPED = 24  # characters
CLOSED = ("collected", "rejected", "canceled", "gone")


def batch_next(batch: Row, job: Row, account: Row | None, now: float) -> str:
    """The next thing that happens to a batch, and when; empty for a closed one."""
    state = batch["state"]
    if state in CLOSED:
        return ""
    if state in ("planned", "ready"):
        held = _held(job, account)
        if held:
            return held
    verb = {
        "planned": "upload",
        "uploading": "being uploaded",
        "ready": "create",
        "submitting": "being created",
        "in_doubt": "look for it at the provider",
        "submitted": "ask the provider",
        "ended": "fetch its results",
    }[state]
    if job["cancel_requested_at"] is not None and state in ("planned", "ready"):
        verb = "drop (canceled)"
    at = batch["next_poll_at"] if state == "submitted" else batch["not_before"]
    if state in ("uploading", "submitting"):
        return verb
    if verdict.is_unsure(batch):
        return f"in doubt, needs you: {batch['note']}"
    when = f"in {duration(at - now)}" if at is not None and at > now else "at the next tick"
    note = f": {batch['note']}" if batch["note"] and state != "submitted" else ""
    late = "overdue, " if state == "submitted" and (batch["window_ends_at"] or now) < now else ""
    return f"{late}{verb} {when}{note}"


def _held(job: Row, account: Row | None) -> str | None:
    if job["cancel_requested_at"] is not None:
        return None
    if job["paused_at"] is not None:
        return "held: the job is paused"
    return None if account is None else f"held: account paused ({account['pause_kind']})"


def job_next(job: Row, now: float) -> str:
    """The next thing that happens to a job, in a few words."""
    state = job["state"]
    if state == "finished":
        return "-"
    if state == "paused" and not job["open_batches"]:
        return "resume"
    if state == "preparing":
        return "being read"
    if state == "merging":
        return "merge failed" if job["merge_error"] else "merge"
    at = job["next_action_at"]
    verb = "poll" if state in ("running", "canceling") else "look" if state == "in doubt" else "try"
    return f"{verb} in {duration(at - now)}" if at is not None and at > now else "tick"


def typed(job: Row) -> str:
    """A job as it is best typed: its name, its number where that is long."""
    return job["name"] if len(job["name"]) <= LONGEST_TYPED else str(job["id"])


def advice(job: Row, reason: str | None, room: int = 1_000) -> list[str]:
    """What the user may type next, in at most `room` columns. `reason` is why the job needs a person, if it does."""
    name = typed(job)
    failed = job["final_rows"] - job["succeeded_rows"]
    if job["state"] == "finished":
        where = f"batchctl results {name} -o FILE"
        if job["merged_at"]:
            where = f"the result is in {cut_path(job['output_path'], room - 17)}"
        return [where, *([f"batchctl retry {name} sends failed rows again"] if failed else [])]
    if job["state"] == "merging" and job["merge_error"]:
        return [
            f"the result could not be written: {job['merge_error']}",
            f"mend that and run batchctl tick, or: batchctl results {name} -o OTHER_FILE",
        ]
    if reason is None:
        return [f"batchctl tick (from cron), or: batchctl wait {name}"]
    if job["state"] == "in doubt":
        return [reason, f"batchctl logs {name} shows what was tried"]
    return [reason, f"when that is mended: batchctl resume {name}"]


def job_json(job: Row, code: int, now: float) -> dict[str, Any]:
    """A job as `--json` has it."""
    return {
        "job": job["name"],
        "number": job["id"],
        "state": job["state"],
        "exit_code": code,
        "rows": job["rows"],
        "succeeded": job["succeeded_rows"],
        "failed": job["final_rows"] - job["succeeded_rows"],
        "repeated": job["repeated"],
        "reused": job["reused"],
        "batches": job["batches"],
        "open_batches": job["open_batches"],
        "batches_in_doubt": job["doubtful_batches"],
        "provider": job["profile"],
        "model": job["model"],
        "input": job["input_name"],
        "output": job["output_path"],
        "created_at": iso(job["created_at"]),
        "finished_at": iso(job["finished_at"]),
        "merged_at": iso(job["merged_at"]),
        "merge_error": job["merge_error"],
        "account_paused": job["account_paused"],
        "window_ends_at": iso(job["window_ends_at"]),
        "next_action_at": iso(job["next_action_at"]),
        "next_action": job_next(job, now),
    }


def batch_json(batch: Row, next_action: str) -> dict[str, Any]:
    """A batch as `--json` has it."""
    return {
        "batch": f"b{batch['ordinal']}",
        "state": batch["state"],
        "provider_status": batch["raw_status"],
        "rows": batch["requests"],
        "counted": batch["counted"],
        "succeeded": batch["succeeded_rows"],
        "failed": batch["failed_rows"],
        "submissions": batch["submissions"],
        "remote_id": batch["remote_id"],
        "sent_at": iso(batch["sent_at"]),
        "window_ends_at": iso(batch["window_ends_at"]),
        "next_action": next_action or None,
        "note": batch["note"],
    }
