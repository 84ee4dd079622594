"""`batchctl validate`: check everything, send nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchctl.cli import output
from batchctl.cli.base import USAGE, command, json_option
from batchctl.errors import TaskError, UsageError

if TYPE_CHECKING:
    from batchctl.config import Settings
    from batchctl.engine.preview import Preview, Target
    from batchctl.inputs import Format

FORMATS = ("csv", "jsonl")


def target_of(
    settings: Settings, name: str, *, max_requests: int | None = None, max_bytes: int | None = None
) -> Target:
    """Where a submit to the profile `name` would go. Raises UsageError."""
    from batchctl.composition import find_profile, open_encoder
    from batchctl.engine.preview import Target

    profile = find_profile(settings, name)
    return Target(profile, open_encoder(settings, profile), max_requests, max_bytes)


@command("validate")
@click.argument("task", type=click.Path(path_type=Path))
@click.argument("input", type=click.Path(path_type=Path))
@click.option("--provider", metavar="PROFILE", help="Check the key and the limits of this profile as well.")
@click.option("--format", "input_format", type=click.Choice(FORMATS), help="Of INPUT; default: what its name ends in.")
@json_option
def validate(task: Path, input: Path, provider: str | None, input_format: Format | None, as_json: bool) -> int:
    """Check TASK and every row of INPUT. Sends and stores nothing.

    Prints every problem as FILE:LINE: what is wrong; what to do.
    """
    from batchctl.composition import require_key
    from batchctl.config import load_settings
    from batchctl.engine.preview import preview
    from batchctl.task import load_task

    problems: list[str] = []
    found: Preview | None = None
    settings = load_settings()
    chosen = provider or settings.provider
    target = None
    if chosen:
        target = target_of(settings, chosen)
        try:
            require_key(settings, target.profile)
        except UsageError as error:
            problems.append(error.message)
    try:
        asked = load_task(task)
    except TaskError as error:
        problems += error.problems
    else:
        found = preview(asked, input, input_format=input_format, target=target)
        problems += found.problems
    more = 0 if found is None else found.more_problems
    if as_json:
        payload = {"ok": not problems, "rows": 0 if found is None else found.rows, "problems": problems}
        output.emit("validate", {**payload, "more_problems": more})
    else:
        for problem in problems:
            output.data(problem)
        if more:
            output.data(f"... and {more:,} more")
        if found is not None and not problems:
            where = f" for {chosen}" if chosen else "; name a --provider to check its limits and key too"
            output.say(f"{output.counted(found.rows, 'row')} and the task are fine{where}")
        elif found is None:
            output.say("the input was not looked at: mend the task first")
    return USAGE if problems else 0
