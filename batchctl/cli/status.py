"""`batchctl status`: where everything stands, from the store alone."""

from __future__ import annotations

from typing import Any

import click

from batchctl import verdict, words
from batchctl.cli import output
from batchctl.cli.base import FAILED_ROWS, LATE, PAUSED, RUNNING, command, json_option
from batchctl.cli.reading import JOB, Reading, read

Row = dict[str, Any]
SHOWN_JOBS, SHOWN_BATCHES, SHOWN_REASONS = 12, 20, 12
RECENT_S = 86_400.0


@command("status", exits=(FAILED_ROWS, RUNNING, LATE, PAUSED))
@click.argument("job", type=JOB, required=False)
@click.option("--all", "everything", is_flag=True, help="Every job or batch, however long the list.")
@click.option("--refresh", is_flag=True, help="Ask the provider first; without it nothing is asked.")
@click.option(
    "--check", is_flag=True, help="Exit 3 to 6 as the job stands (without JOB: open jobs and those of the last 24 h)."
)
@json_option
def status(job: str | None, everything: bool, refresh: bool, check: bool, as_json: bool) -> int:
    """Show all jobs, or one JOB with its batches.

    Reads the store only: nothing is asked or sent, unless with --refresh.
    """
    reading = read()
    if job is not None:
        reading.job(job)
    if refresh:
        from batchctl.cli.passes import refresh as ask

        ask(job)
        reading = read()
    if job is None:
        return _all(reading, everything=everything, check=check, as_json=as_json)
    return _one(reading, reading.job(job), everything=everything, check=check, as_json=as_json)


def _all(reading: Reading, *, everything: bool, check: bool, as_json: bool) -> int:
    jobs, now = reading.views.jobs(), reading.now
    if as_json:
        found = verdict.codes(reading, jobs)
        output.emit("status", {"jobs": [words.job_json(job, found[job["id"]], now) for job in jobs]})
    elif not jobs:
        output.say("no jobs yet; start one with `batchctl submit TASK INPUT --provider PROFILE -o FILE`")
    else:
        for line in job_table(jobs, now, shown=None if everything else SHOWN_JOBS):
            output.data(line)
        for account in reading.views.accounts():
            reason = f"account {account['name']} is paused ({account['pause_kind']}): {account['pause_reason']}"
            output.data(output.cut(reason, output.width()))
    if not check:
        return 0
    recent = [job for job in jobs if job["state"] != "finished" or job["finished_at"] > now - RECENT_S]
    return verdict.worst(verdict.codes(reading, recent).values())


def job_table(jobs: list[Row], now: float, *, shown: int | None) -> list[str]:
    """Lines of the table of jobs: the open ones and the last finished ones, at most `shown` (None: all)."""
    picked = jobs
    if shown is not None and len(jobs) > shown:
        open_jobs = [job for job in jobs if job["state"] != "finished"]
        done = [job for job in jobs if job["state"] == "finished"]
        room = max(3, shown - len(open_jobs))
        keep = {job["id"] for job in (open_jobs[-shown:] + done[-room:])}
        picked = [job for job in jobs if job["id"] in keep]
    header = ("JOB", "STATE", "DONE", "ROWS", "FAILED", "BATCHES", "AGE", "LEFT", "NEXT")
    rows = [
        (
            job["name"],
            job["state"],
            f"{job['final_rows']:,}",
            f"{job['rows']:,}",
            f"{job['final_rows'] - job['succeeded_rows']:,}",
            f"{job['batches'] - job['open_batches']}/{job['batches']}",
            output.duration((job["finished_at"] or now) - job["created_at"]),
            output.duration(None if job["window_ends_at"] is None else job["window_ends_at"] - now),
            words.job_next(job, now),
        )
        for job in picked
    ]
    right = ("DONE", "ROWS", "FAILED", "BATCHES", "AGE", "LEFT")
    lines = output.table(header, rows, right=right, room=output.width())
    if len(picked) < len(jobs):
        lines.append(f"... and {len(jobs) - len(picked)} more; `batchctl status --all` lists them")
    return lines


def _one(reading: Reading, job: Row, *, everything: bool, check: bool, as_json: bool) -> int:
    views, now = reading.views, reading.now
    batches, tally = views.batches(job["id"]), views.tally(job["id"])
    account = next((found for found in views.accounts() if found["name"] == job["account"]), None)
    code = verdict.of_job(job, batches, account, now)
    reason = verdict.needs_person(job, batches, account) if job["state"] != "finished" else None
    following = {batch["id"]: words.batch_next(batch, job, account, now) for batch in batches}
    hints = words.advice(job, reason, 1_000 if as_json else output.width() - 2)
    if as_json:
        output.emit(
            "status",
            {
                "jobs": [words.job_json(job, code, now)],
                "batch_list": [words.batch_json(batch, following[batch["id"]]) for batch in batches],
                "outcomes": tally,
                "advice": hints,
            },
        )
    else:
        for line in [
            *_header(job, now),
            *_batch_lines(job, batches, following, now, shown=None if everything else SHOWN_BATCHES),
            *_outcome_lines(tally, shown=None if everything else SHOWN_REASONS),
            "next",
            *(f"  {output.cut(hint, output.width() - 2)}" for hint in hints),
        ]:
            output.data(line)
    return code if check else 0


def _header(job: Row, now: float) -> list[str]:
    failed = job["final_rows"] - job["succeeded_rows"]
    room = output.width()
    left = None if job["window_ends_at"] is None else job["window_ends_at"] - now
    window = "" if left is None else f", first window ends in {output.duration(left)}"
    if left is not None and left < 0:
        window = f", the provider's window ended {output.duration(-left)} ago: overdue"
    age = output.duration((job["finished_at"] or now) - job["created_at"])
    state = output.styled(job["state"], bold=True)
    sent_to = f"{job['profile']}, model {job['model']}"
    unsent = {"ask the same as another": job["repeated"], "answered by an earlier job": job["reused"]}
    told = ", ".join(f"{count:,} {what}" for what, count in unsent.items() if count)
    return [
        f"{output.cut(job['name'], room - 20)}: {state}",
        f"  rows    {job['final_rows']:,} of {job['rows']:,} final: {job['succeeded_rows']:,} ok, {failed:,} failed",
        *([f"          not sent: {told}"] if told else []),
        f"  input   {output.cut_path(job['input_name'], room - 10)}",
        f"  output  {output.cut_path(job['output_path'], room - 10) if job['output_path'] else 'none named'}",
        f"  sent to {output.cut(sent_to, room - 10)}",
        f"  {'took   ' if job['finished_at'] else 'age    '} {age}{window}",
    ]


def _batch_lines(
    job: Row, batches: list[Row], following: dict[int, str], now: float, *, shown: int | None
) -> list[str]:
    if not batches:
        return []
    picked = batches
    if shown is not None and len(batches) > shown:
        first = sorted(batches, key=lambda batch: batch["state"] in words.CLOSED)[:shown]
        keep = {batch["id"] for batch in first}
        picked = [batch for batch in batches if batch["id"] in keep]
    header = ("BATCH", "STATE", "PROVIDER", "ROWS", "COUNTED", "OK", "FAILED", "AGE", "LEFT")
    rows = [
        (
            f"b{batch['ordinal']}",
            batch["state"].replace("_", " "),
            batch["raw_status"] or "-",
            f"{batch['requests']:,}",
            "-" if batch["counted"] is None else f"{batch['counted']:,}",
            f"{batch['succeeded_rows']:,}",
            f"{batch['failed_rows']:,}",
            output.duration(_age(batch, now)),
            output.duration(_left(batch, now)),
        )
        for batch in picked
    ]
    right = ("ROWS", "COUNTED", "OK", "FAILED", "AGE", "LEFT")
    top, *lines = output.table(header, rows, right=right, room=output.width())
    made = [top]
    for batch, line in zip(picked, lines, strict=True):
        made.append(line)
        if following[batch["id"]]:
            told = ", ".join(part for part in (batch["remote_id"], following[batch["id"]]) if part)
            made.append(f"       {output.cut(told, output.width() - 7)}")
    if len(picked) < len(batches):
        made.append(f"... and {len(batches) - len(picked)} more; `batchctl status {words.typed(job)} --all` lists them")
    return made


def _age(batch: Row, now: float) -> float | None:
    """Since it was first sent; of a closed one, how long it took."""
    end = batch["updated_at"] if batch["state"] in words.CLOSED else now
    return None if batch["sent_at"] is None else end - batch["sent_at"]


def _left(batch: Row, now: float) -> float | None:
    return None if batch["state"] != "submitted" or not batch["window_ends_at"] else batch["window_ends_at"] - now


def _outcome_lines(tally: list[Row], *, shown: int | None) -> list[str]:
    """`9x errored invalid_value: invalid temperature ...`, the most frequent first."""
    if not tally:
        return []
    room = output.width()
    picked = tally if shown is None else tally[:shown]
    lines = ["outcomes"]
    for group in picked:
        sample = f": {group['sample']}" if group["sample"] else ""
        text = f"{group['count']:,}x {group['outcome']} {group['code']}".rstrip() + sample
        lines.append(f"  {output.cut(text, room - 2)}")
    if len(picked) < len(tally):
        lines.append(f"  ... and {len(tally) - len(picked)} more kinds; --all lists them")
    return lines
