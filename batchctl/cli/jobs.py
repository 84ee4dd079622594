"""`batchctl jobs`: every job, one a line."""

from __future__ import annotations

from batchctl import words
from batchctl.cli import output
from batchctl.cli.base import command, json_option
from batchctl.cli.reading import read


@command("jobs")
@json_option
def jobs(as_json: bool) -> None:
    """List every job, oldest first. Reads the store only."""
    from batchctl.verdict import codes

    reading = read()
    rows = reading.views.jobs()
    if as_json:
        found = codes(reading, rows)
        output.emit("jobs", {"jobs": [words.job_json(job, found[job["id"]], reading.now) for job in rows]})
        return
    if not rows:
        output.say("no jobs yet; start one with `batchctl submit TASK INPUT --provider PROFILE -o FILE`")
        return
    table = [
        (
            str(job["id"]),
            job["name"],
            job["state"],
            f"{job['rows']:,}",
            output.local(job["created_at"])[:16],
            _files(job),
        )
        for job in rows
    ]
    header = ("NO", "JOB", "STATE", "ROWS", "CREATED", "INPUT -> OUTPUT")
    for line in output.table(
        header, table, right=("NO", "ROWS"), shrink=("INPUT -> OUTPUT", "JOB"), room=output.width()
    ):
        output.data(line)


def _files(job: dict[str, object]) -> str:
    return f"{job['input_name']} -> {job['output_path']}" if job["output_path"] else str(job["input_name"])
