"""`batchctl wait`: passes until jobs are finished and merged."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from batchctl.cli import output
from batchctl.cli.base import ERROR, FAILED_ROWS, PAUSED, RUNNING, command, json_option, on_interrupt
from batchctl.cli.reading import JOB, read

if TYPE_CHECKING:
    from batchctl.cli.following import Standing
    from batchctl.engine.context import Engine


@command("wait", exits=(FAILED_ROWS, RUNNING, PAUSED))
@click.argument("jobs", type=JOB, nargs=-1, metavar="[JOB]...")
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Give up waiting (exit 4); jobs go on.")
@json_option
def wait(jobs: tuple[str, ...], timeout: float | None, as_json: bool) -> int:
    """Run passes until each JOB (default: all open ones) is finished and merged.

    Where another tick is at work its progress is shown. Exits 6 when nothing moves on without a person.
    """
    from batchctl.cli import passes

    reading = read()
    rows = [reading.job(name) for name in jobs] or [
        row for row in reading.views.jobs() if row["state"] not in ("finished", "preparing")
    ]
    on_interrupt(
        "no cancel was sent, what was sent goes on at the provider\n  go on with `batchctl wait` or `batchctl tick`;"
        " `batchctl cancel JOB` stops a job"
    )
    if not rows:
        output.say("no open jobs")
        if as_json:
            output.emit("wait", {"jobs": []})
        return 0
    with passes.opened() as engine:
        code, standing = wait_for(engine, [row["id"] for row in rows], timeout=timeout)
    if as_json:
        from batchctl.verdict import codes
        from batchctl.words import job_json

        reading = read()
        found = codes(reading, standing.jobs)
        output.emit("wait", {"jobs": [job_json(job, found[job["id"]], reading.now) for job in standing.jobs]})
    return code


def wait_for(engine: Engine, numbers: Collection[int], *, timeout: float | None) -> tuple[int, Standing]:
    """Follow the jobs, and say how it ended. Returns the exit code."""
    from batchctl.cli.following import follow

    code, standing = follow(engine, read(), numbers, timeout=timeout)
    for job in standing.jobs:
        output.say(_ending(job, standing, code))
    return code, standing


def _ending(job: dict[str, object], standing: Standing, code: int) -> str:
    name = str(job["name"])
    if job["state"] == "finished":
        failed = int(str(job["final_rows"])) - int(str(job["succeeded_rows"]))
        where = f"in {job['output_path']}" if job["merged_at"] else f"ready: batchctl results {name} -o FILE"
        lost = f", {failed:,} failed (batchctl status {name} says why)" if failed else ""
        return f"{name}: finished, {int(str(job['succeeded_rows'])):,} rows succeeded{lost}; the result is {where}"
    if name in standing.stuck:
        return f"{name}: needs you: {standing.stuck[name]}\n  when that is mended: batchctl resume {name}"
    if code == ERROR:
        return f"{name}: {job['merge_error']}\n  write it elsewhere: batchctl results {name} -o OTHER_FILE"
    return f"{name}: still running; batchctl wait {name} goes on"
