"""What every command has: documented exit codes, errors shown in one place, and a Ctrl-C that loses nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import click

from batchctl.cli import interrupts

EXITS = {
    0: "done",
    1: "error",
    2: "usage",
    3: "finished with failed rows",
    4: "still running",
    5: "late or will be late",
    6: "paused for money, keys or doubt",
    130: "interrupted",
}
_INTERRUPTED = "batchctl.interrupted"


class Command(click.Command):
    """A command whose function returns its exit code (None: 0); `exits` are those it can end with."""

    def __init__(self, *args: Any, exits: Iterable[int] = (0, 1, 2, 130), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.exits = tuple(sorted({*exits}))

    def invoke(self, ctx: click.Context) -> Any:
        with interrupts.listening():
            try:
                code = super().invoke(ctx)
            except KeyboardInterrupt:
                click.echo(f"\ninterrupted: {ctx.meta.get(_INTERRUPTED, 'nothing was sent')}", err=True)
                code = 130
            except Exception as error:
                code = _shown(error)
        if code:
            ctx.exit(code)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), EXITS[code]) for code in self.exits])


def command(name: str, *, exits: Iterable[int] = (0, 1, 2, 130), **settings: Any) -> Callable[[Any], Command]:
    """Decorator: a `Command` called `name`."""
    return click.command(name, cls=Command, exits=exits, **settings)


def on_interrupt(text: str) -> None:
    """What Ctrl-C says from here on: what was done and how to go on."""
    click.get_current_context().meta[_INTERRUPTED] = text


def _shown(error: Exception) -> int:
    """Print an error that the user can act on; anything else is a defect and keeps its traceback."""
    from batchctl.cli.failures import explain

    found = explain(error)
    if found is None:
        raise error
    if os.environ.get("BATCHCTL_DEBUG"):
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    click.echo(f"error: {found.message}", err=True)
    if found.hint:
        click.echo(f"  {found.hint}", err=True)
    return found.code
