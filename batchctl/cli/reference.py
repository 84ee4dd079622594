"""docs/cli.md, made from the commands: `python -m batchctl.cli.reference > docs/cli.md`."""

from __future__ import annotations

import click

from batchctl.cli import COMMANDS, cli, load
from batchctl.cli.base import EXITS, Command

INTRO = """# The command line

Made from the commands themselves by `python -m batchctl.cli.reference`; a test keeps it current. What `--json` prints
is in [json.md](json.md).

Data goes to stdout, talk to stderr. `NO_COLOR` is honoured, progress is drawn only on a terminal. Settings come from
`batchctl.toml`, found upwards from the working directory; the store lies in `BATCHCTL_HOME` (default: the platform's
data folder). With `BATCHCTL_DEBUG=1` errors come with their traceback. A job is named by its name or its number.

Ctrl-C and SIGTERM end a command with 130: no cancel is sent, the step that is under way is finished and written down
first, and a second Ctrl-C leaves at once. `batchctl tick` or `batchctl wait` goes on.
"""


def reference() -> str:
    """The whole page."""
    parts = [INTRO, "| exit code | meaning |", "| --- | --- |"]
    parts += [f"| {code} | {meaning} |" for code, meaning in EXITS.items()]
    parts += ["", "## Commands", ""]
    parts += [f"- [`{name}`](#batchctl-{name}): {line}" for name, (_, line) in COMMANDS.items()]
    root = click.Context(cli, info_name="batchctl", help_option_names=["-h", "--help"])
    for name in COMMANDS:
        parts += ["", *_section(name, load(name), root)]
    return "\n".join(parts) + "\n"


def _section(name: str, command: click.Command, root: click.Context) -> list[str]:
    context = click.Context(command, info_name=name, parent=root, max_content_width=100, terminal_width=100)
    lines = [f"## batchctl {name}", "", "```", command.get_help(context).rstrip(), "```"]
    if not isinstance(command, Command):
        lines += ["", "Exit codes: " + ", ".join(f"{code} {EXITS[code]}" for code in (0, 1, 2)) + "."]
    return lines


if __name__ == "__main__":
    click.echo(reference(), nl=False)
