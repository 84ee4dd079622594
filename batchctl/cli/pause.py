"""`batchctl pause`: send nothing more of a job for now."""

from __future__ import annotations

import click

from batchctl.cli import output
from batchctl.cli.base import command, json_option
from batchctl.cli.reading import JOB, read


@command("pause")
@click.argument("job", type=JOB)
@json_option
def pause(job: str, as_json: bool) -> None:
    """Send nothing more of JOB. What is at the provider already is still collected."""
    from batchctl.cli import passes
    from batchctl.engine import wishes

    with passes.opened(offline=True) as engine:
        found = passes.named(engine, job)
        is_over = found.finished_at is not None
        if not is_over:
            wishes.pause(engine, found)
    if is_over:
        output.say(f"{found.name} is finished; nothing to pause")
    elif not as_json:
        output.say(f"{found.name} is paused; batchctl resume {found.name} goes on")
    if as_json:
        output.emit("pause", {"job": found.name, "state": read().job(found.name)["state"]})
