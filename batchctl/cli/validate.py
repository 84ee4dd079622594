"""`batchctl validate`: check everything, send nothing."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from batchctl.cli import output
from batchctl.cli.base import USAGE, command, json_option
from batchctl.cli.targets import Asked, asked_options, target
from batchctl.errors import TaskError, UsageError

if TYPE_CHECKING:
    from batchctl.engine.preview import Preview


@command("validate")
@asked_options
@click.option("--provider", metavar="PROFILE", help="Check the key and the limits of this profile as well.")
@json_option
def validate(asked: Asked, provider: str | None, as_json: bool) -> int:
    """Check TASK and every row of the INPUTs. Sends and stores nothing.

    Prints every problem as FILE:LINE: what is wrong; what to do. With a provider this covers what it is known to refuse
    in every request: settings, schemas, models. What is only doubtful is a warning and stops nothing.
    """
    problems, found, chosen = _look(asked, provider)
    more = 0 if found is None else found.more_problems
    warnings = [] if found is None else found.warnings
    if as_json:
        rows = 0 if found is None else found.rows
        listed = {"problems": problems, "more_problems": more, "warnings": warnings}
        repeated = 0 if found is None else found.repeated
        output.emit("validate", {"ok": not problems, "rows": rows, "repeated": repeated, **listed})
        return USAGE if problems else 0
    for warning in warnings:
        output.warn(warning)
    for problem in problems:
        output.data(problem)
    if more:
        output.data(f"... and {more:,} more")
    if found is None:
        output.say("the input was not looked at: mend the task first")
    elif not problems:
        where = f" for {chosen}" if chosen else "; name a --provider to check its limits and key too"
        what = "" if asked.task is None else " and the task"
        same = f" ({found.repeated:,} ask the same as an earlier one)" if found.repeated else ""
        output.say(f"{output.counted(found.rows, 'row')}{same}{what} are fine{where}")
    return USAGE if problems else 0


def _look(asked: Asked, provider: str | None) -> tuple[list[str], Preview | None, str | None]:
    """All problems; what the input was found to be (None: the task is wrong already); the profile that was meant."""
    from batchctl.composition import require_key
    from batchctl.config import load_settings
    from batchctl.engine.preview import preview

    problems: list[str] = []
    settings = load_settings()
    chosen = provider or settings.provider
    with ExitStack() as stack:
        aim = stack.enter_context(target(settings, chosen)) if chosen else None
        try:
            if aim is not None:
                require_key(settings, aim.profile)
        except UsageError as error:
            problems.append(error.message)
        try:
            task = asked.load()
        except TaskError as error:
            return [*problems, *error.problems], None, chosen
        found = preview(
            task,
            asked.inputs,
            input_format=asked.format,
            encoding=asked.encoding,
            sheet=asked.sheet,
            target=aim,
            task_file=asked.task,
        )
    return [*problems, *found.problems], found, chosen
