"""The command line. A command is one file here, named in COMMANDS and imported only when it is used.

`--help`, `--version` and completion are typed all day, so this module imports nothing but click. A command returns its
exit code (None is 0), or raises UserError with the code and the words for the user.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module

import click

from batchctl import __version__
from batchctl.errors import UserError

INTERRUPTED = 130

EPILOG = """\b
Exit codes:
    0  done
    1  error
    2  usage: the command line, a setting or a file is wrong; nothing was sent
    3  finished, with failed rows
    4  still running
    5  late, or will be late
    6  paused for money, keys or doubt
  130  interrupted: no cancel was sent, a create in flight may be in doubt
"""

COMMANDS: dict[str, tuple[str, str]] = {
    "completion": ("batchctl.cli.completion:completion", "Print the completion script for your shell."),
}
"""Name -> where the command stands (`module:attribute`), and its line in `batchctl --help`."""


def load(name: str) -> click.Command:
    """Import the command `name` of COMMANDS."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    command = getattr(import_module(module), attribute)
    assert isinstance(command, click.Command), COMMANDS[name][0]
    return command


class LazyGroup(click.Group):
    """Lists, completes and suggests commands from COMMANDS; imports the one that is used."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, listed, rest = super().resolve_command(ctx, args)
        return name, load(name) if name and listed else None, rest


@click.group(
    cls=LazyGroup,
    commands={name: click.Command(name, short_help=short_help) for name, (_, short_help) in COMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EPILOG,
)
@click.version_option(__version__, prog_name="batchctl", message="%(prog)s %(version)s")
def cli() -> None:
    """Bulk LLM work at batch price.

    Splits a table into provider batches, tracks each of them, and merges one output row for each input row.
    """


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. With BATCHCTL_DEBUG=1 errors come with their traceback."""
    color = False if os.environ.get("NO_COLOR") else None
    try:
        result = cli.main(args=args, prog_name="batchctl", standalone_mode=False, color=color)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as error:
        if not isinstance(error.__cause__, KeyboardInterrupt):  # a question was answered with no, or not at all
            return 1
        click.echo("interrupted: no cancel was sent", err=True)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe left, as `head` does
        _discard_output()
        return 1
    except (UserError, OSError) as error:
        if os.environ.get("BATCHCTL_DEBUG"):
            raise
        return _explain(error, color)
    return result if isinstance(result, int) else 0


def _explain(error: UserError | OSError, color: bool | None) -> int:
    """Tell the user what happened and what to do next; the exit code of it."""
    message, hint, code = str(error), None, 1
    if isinstance(error, UserError):
        hint, code = error.hint, error.exit_code
    elif error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    click.secho("error: ", fg="red", bold=True, nl=False, err=True, color=color)
    click.echo(message, err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)
    return code


def _discard_output() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not fail as well."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
