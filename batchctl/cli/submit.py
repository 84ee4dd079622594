"""`batchctl submit`: a table and a task become a job."""

from __future__ import annotations

from pathlib import Path

import click

from batchctl.cli import output
from batchctl.cli.base import FAILED_ROWS, PAUSED, command, json_option, on_interrupt
from batchctl.cli.targets import Asked, asked_options


@command("submit", exits=(FAILED_ROWS, PAUSED))
@asked_options
@click.option("--provider", metavar="PROFILE", help="Where to send it; default: `provider` in batchctl.toml.")
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(path_type=Path),
    help="Where the result is merged to (.csv, .tsv, .jsonl or .parquet).",
)
@click.option("--force", is_flag=True, help="Replace the output file if it exists.")
@click.option("--again", is_flag=True, help="Submit although the same job is open or was finished lately.")
@click.option("--reuse", is_flag=True, help="Take answers of earlier jobs to the same requests; send only the others.")
@click.option("--no-dedupe", is_flag=True, help="Send rows with the same request each by itself.")
@click.option("--max-batch-requests", type=click.IntRange(1), metavar="N", help="At most N rows in a batch.")
@click.option("--max-batch-bytes", type=click.IntRange(1), metavar="N", help="At most N bytes in a batch.")
@click.option(
    "--max-attempts", type=click.IntRange(1), metavar="N", default=3, show_default=True, help="Tries for each row."
)
@click.option("--keep-remote", is_flag=True, help="Leave its files at the provider after the merge.")
@click.option("--no-tick", is_flag=True, help="Store the job only; the next tick sends it.")
@click.option("--wait", "waiting", is_flag=True, help="Go on until the job is finished and merged, as `wait` does.")
@json_option
def submit(
    asked: Asked,
    provider: str | None,
    target: Path | None,
    force: bool,
    again: bool,
    reuse: bool,
    no_dedupe: bool,
    max_batch_requests: int | None,
    max_batch_bytes: int | None,
    max_attempts: int,
    keep_remote: bool,
    no_tick: bool,
    waiting: bool,
    as_json: bool,
) -> int:
    """Send every row of the INPUTs with the prompt in TASK, in batches.

    An INPUT is a file, a pattern such as 'data/*.csv', - for standard input, or hf:NAME:SPLIT (docs/tables.md).

    The task, the whole input, the key and the output's path are checked before anything is stored or sent. Prints the
    job's name as soon as the job is stored, then sends its batches. The input is copied: the file may change later.

    Rows that ask the same are sent once, and each gets the answer; a row that failed in an earlier job is sent again
    with --reuse (docs/reuse.md).
    """
    from batchctl.cli import passes
    from batchctl.config import load_settings
    from batchctl.engine.intake import create_job
    from batchctl.ordering import Options, doubts, order_of

    on_interrupt("nothing was stored and nothing was sent")
    options = Options(
        provider=provider,
        output=target,
        force=force,
        again=again,
        dedupe=not no_dedupe,
        reuse=reuse,
        keep_remote=keep_remote,
        max_batch_requests=max_batch_requests,
        max_batch_bytes=max_batch_bytes,
        max_attempts=max_attempts,
    )
    order = order_of(asked, options, load_settings())
    with passes.opened(profile=order.profile) as engine:
        for warning in doubts(engine, order, asked.task):
            output.warn(warning)
        job = create_job(engine, order)
        on_interrupt(
            f"job {job.name} is stored and no cancel was sent\n  go on with `batchctl wait {job.name}` or"
            f" `batchctl tick`, or stop it with `batchctl cancel {job.name}`"
        )
        if not as_json:
            output.data(job.name)
            for note in engine.notes:
                output.say(note)
        code = 0
        if waiting and not no_tick:
            from batchctl.cli.wait import wait_for

            code, _ = wait_for(engine, [job.id], timeout=None)
        elif not no_tick:
            passes.run_for(engine, job)
        _say_what_is_next(job.name, as_json=as_json, waited=waiting and not no_tick)
        return code


def _say_what_is_next(name: str, *, as_json: bool, waited: bool) -> None:
    from batchctl.cli.reading import read
    from batchctl.verdict import codes
    from batchctl.words import job_json

    reading = read()
    row = reading.job(name)
    if as_json:
        output.emit("submit", {"job": job_json(row, codes(reading, [row])[row["id"]], reading.now)})
    elif not waited:
        over = row["batches"] - row["open_batches"]
        unsent = row["repeated"] + row["reused"]
        rows = f"{output.counted(row['rows'] - unsent, 'row')} in {output.counted(row['batches'], 'batch')}"
        output.say(
            f"{rows if row['batches'] else 'nothing to send'}{f', {over} over already' if over else ''};"
            f" state: {row['state']}"
        )
        output.say(
            f"batchctl status {name} shows it; batchctl tick (from cron) or batchctl wait {name} goes on with it"
        )
