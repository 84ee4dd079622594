"""`batchctl resume`: go on after a pause, of the job or of its account."""

from __future__ import annotations

import click

from batchctl.cli import output
from batchctl.cli.base import command, json_option, on_interrupt
from batchctl.cli.reading import JOB, read


@command("resume")
@click.argument("job", type=JOB)
@click.option("--no-tick", is_flag=True, help="Only lift the pause; the next tick sends.")
@json_option
def resume(job: str, no_tick: bool, as_json: bool) -> None:
    """Go on with JOB, also where its account was paused for its key, its credit or a full queue."""
    from batchctl.cli import passes
    from batchctl.engine import wishes

    on_interrupt("no cancel was sent; the next tick goes on")
    with passes.opened(offline=no_tick) as engine:
        found = passes.named(engine, job)
        wishes.resume(engine, found)
        if not as_json:
            over = found.finished_at is not None
            output.say(
                f"{found.name} is finished; account {found.account} goes on" if over else f"{found.name} goes on"
            )
        if not no_tick:
            passes.run_for(engine, found)
    if as_json:
        output.emit("resume", {"job": found.name, "state": read().job(found.name)["state"]})
