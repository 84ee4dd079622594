"""`batchctl cancel`: stop a job, and keep what is answered."""

from __future__ import annotations

import click

from batchctl.cli import output
from batchctl.cli.base import command, json_option, on_interrupt
from batchctl.cli.reading import JOB, read


@command("cancel")
@click.argument("job", type=JOB)
@click.option("--no-tick", is_flag=True, help="Only note the wish; the next tick carries it out.")
@json_option
def cancel(job: str, no_tick: bool, as_json: bool) -> None:
    """Stop JOB: drop what was not sent, ask the provider to stop what was.

    Providers need minutes for it. Rows they finish meanwhile are billed, collected and kept.
    """
    from batchctl.cli import passes
    from batchctl.engine import wishes

    on_interrupt("the cancel may not have been sent yet; run the same command again")
    with passes.opened(offline=no_tick) as engine:
        found = passes.named(engine, job)
        wished = wishes.cancel(engine, found)
        if not wished:
            output.say(f"{found.name} is over already; nothing to cancel")
        elif not as_json:
            _say_what_happens(found.id)
        if wished and not no_tick:
            passes.run_for(engine, found)
    row = read().job(str(found.id))
    if as_json:
        output.emit("cancel", {"job": found.name, "canceling": wished, "state": row["state"]})
    elif wished:
        output.say(f"{found.name} is {row['state']} now; batchctl wait {found.name} collects what was answered")


def _say_what_happens(number: int) -> None:
    batches = read().views.batches(number)
    unsent = sum(batch["requests"] for batch in batches if batch["state"] in ("planned", "ready"))
    out = [batch for batch in batches if batch["state"] == "submitted"]
    doubtful = [batch for batch in batches if batch["state"] in ("submitting", "in_doubt", "uploading")]
    if unsent:
        output.say(f"{output.counted(unsent, 'row')} not sent yet: dropped")
    if out:
        output.say(
            f"{output.counted(len(out), 'batch')} at the provider: asked to stop; rows finished meanwhile are billed"
            " and kept"
        )
    if doubtful:
        output.say(f"{output.counted(len(doubtful), 'batch')} being sent or in doubt: found out first, then canceled")
