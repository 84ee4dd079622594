"""The command line. A command is one file here, named in COMMANDS and imported only when it is used.

`--help`, `--version` and completion are typed all day, so this module imports nothing but click. A command returns its
exit code (None is 0) or raises; `failures` has the words and the code of what it raises.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module

import click

from batchctl import __version__

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
    "submit": ("batchctl.cli.submit:submit", "Send every row of a table with a task's prompt, in batches."),
    "status": ("batchctl.cli.status:status", "Show all jobs, or one with its batches."),
    "tick": ("batchctl.cli.tick:tick", "Do all that can be done now, for every job; for cron."),
    "wait": ("batchctl.cli.wait:wait", "Run passes until jobs are finished and merged."),
    "results": ("batchctl.cli.results:results", "Write one output row for each input row."),
    "show": ("batchctl.cli.show:show", "Show one row: what was sent, the answer, each attempt."),
    "retry": ("batchctl.cli.retry:retry", "Send failed rows of a job again."),
    "cancel": ("batchctl.cli.cancel:cancel", "Stop a job and keep what is answered."),
    "pause": ("batchctl.cli.pause:pause", "Send nothing more of a job for now."),
    "resume": ("batchctl.cli.resume:resume", "Go on after a pause of a job or its account."),
    "jobs": ("batchctl.cli.jobs:jobs", "List every job."),
    "logs": ("batchctl.cli.logs:logs", "Print a job's history."),
    "validate": ("batchctl.cli.validate:validate", "Check a task and a table; send nothing."),
    "estimate": ("batchctl.cli.estimate:estimate", "Say what a submit would send: batches, bytes, tokens."),
    "gc": ("batchctl.cli.gc:gc", "Show what lies on this disk, and let go of what nothing needs."),
    "serve": ("batchctl.cli.serve:serve", "Serve OpenAI's batch API here, for rehearsals and small models."),
    "demo": ("batchctl.cli.demo:demo", "Run the whole main job on this machine."),
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
    except Exception as error:
        from batchctl.failures import explain

        failure = explain(error)
        if failure is None or os.environ.get("BATCHCTL_DEBUG"):  # a defect of our own keeps its traceback
            raise
        click.secho("error: ", fg="red", bold=True, nl=False, err=True, color=color)
        click.echo(failure.message, err=True)
        if failure.hint:
            click.echo(f"hint: {failure.hint}", err=True)
        return failure.code
    return result if isinstance(result, int) else 0


def _discard_output() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not fail as well."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
