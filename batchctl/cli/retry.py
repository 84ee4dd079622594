"""`batchctl retry`: failed rows once more."""

from __future__ import annotations

import click

from batchctl.cli import output
from batchctl.cli.base import command, json_option, on_interrupt
from batchctl.cli.reading import JOB, read

OUTCOMES = (
    "truncated",
    "empty",
    "refused",
    "filtered",
    "invalid",
    "errored",
    "errored_transient",
    "expired",
    "canceled",
    "missing",
    "gone",
)
BILLED = ("missing", "gone")


@command("retry")
@click.argument("job", type=JOB)
@click.option(
    "--where",
    "outcomes",
    multiple=True,
    type=click.Choice(OUTCOMES),
    metavar="OUTCOME",
    help="Rows with this outcome; repeat. Default: errored_transient, expired, canceled, empty and invalid. Also: "
    "truncated, refused, filtered, errored, missing, gone.",
)
@click.option("--no-tick", is_flag=True, help="Only mark them; the next tick sends them.")
@json_option
def retry(job: str, outcomes: tuple[str, ...], no_tick: bool, as_json: bool) -> None:
    """Send failed rows of JOB again. Rows that are answered, or held by a batch, are never touched.

    `missing` and `gone` rows may have been answered and billed at the provider; they are sent again only where named.
    """
    from batchctl.cli import passes
    from batchctl.engine import wishes
    from batchctl_adapters.base import Outcome

    on_interrupt("no cancel was sent; the next tick goes on")
    with passes.opened(offline=no_tick) as engine:
        found = passes.named(engine, job)
        wanted = [Outcome(outcome) for outcome in outcomes] or sorted(wishes.RETRIED_BY_DEFAULT)
        count = wishes.retry(engine, found, wanted)
        doubtful = [outcome for outcome in wanted if outcome in BILLED]
        if count and doubtful:
            output.say(f"note: rows that are {' or '.join(doubtful)} may have been answered and billed already")
        if as_json:
            output.emit("retry", {"job": found.name, "rows": count, "outcomes": [str(outcome) for outcome in wanted]})
        elif count:
            output.say(f"{output.counted(count, 'row')} of {found.name} to be sent again")
        else:
            output.say(f"no failed row of {found.name} is {', '.join(wanted)}")
            _say_others(found.id, found.name, {str(outcome) for outcome in wanted})
        if count and not no_tick:
            passes.run_for(engine, found)


def _say_others(number: int, name: str, asked: set[str]) -> None:
    failed: dict[str, int] = {}
    for group in read().views.tally(number):
        if group["outcome"] != "succeeded" and group["outcome"] not in asked:
            failed[group["outcome"]] = failed.get(group["outcome"], 0) + group["count"]
    for outcome, count in failed.items():
        output.say(f"  {count:,} {outcome}: batchctl retry {name} --where {outcome}")
