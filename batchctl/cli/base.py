"""What every command has: documented exit codes, and a Ctrl-C that says what was done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from batchctl.cli import interrupts
from batchctl.exits import DONE, ERROR, EXITS, FAILED_ROWS, INTERRUPTED, LATE, PAUSED, RUNNING, USAGE

__all__ = [
    "DONE",
    "ERROR",
    "EXITS",
    "FAILED_ROWS",
    "INTERRUPTED",
    "LATE",
    "PAUSED",
    "RUNNING",
    "USAGE",
    "Command",
    "command",
    "json_option",
    "on_interrupt",
]

ALWAYS = (DONE, ERROR, USAGE, INTERRUPTED)
_INTERRUPTED = "batchctl.interrupted"


class Command(click.Command):
    """A command whose function returns its exit code (None: 0); `exits` are those it can end with."""

    def __init__(self, *args: Any, exits: Iterable[int] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.exits = tuple(sorted({*ALWAYS, *exits}))

    def invoke(self, ctx: click.Context) -> Any:
        with interrupts.listening():
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt:
                click.echo(f"\ninterrupted: {ctx.meta.get(_INTERRUPTED, 'nothing was sent')}", err=True)
                return INTERRUPTED

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), EXITS[code]) for code in self.exits])


def command(name: str, *, exits: Iterable[int] = (), **settings: Any) -> Callable[[Any], Command]:
    """Decorator: a `Command` called `name` that can end with `exits` besides 0, 1, 2 and 130."""
    return click.command(name, cls=Command, exits=exits, **settings)


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object (docs/json.md).")


def on_interrupt(text: str) -> None:
    """What Ctrl-C says from here on: what was done and how to go on."""
    click.get_current_context().meta[_INTERRUPTED] = text
