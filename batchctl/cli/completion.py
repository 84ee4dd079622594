"""`batchctl completion`: the shell's completion script."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from batchctl.cli.base import command
from batchctl.errors import UsageError

SHELLS = ("bash", "zsh", "fish")


@command("completion")
@click.argument("shell", type=click.Choice(SHELLS), required=False)
def completion(shell: str | None) -> None:
    """Print the completion script for your shell (default: the one in $SHELL).

    \b
    bash: batchctl completion bash >> ~/.bashrc
    zsh:  batchctl completion zsh > ~/.zfunc/_batchctl
    fish: batchctl completion fish > ~/.config/fish/completions/batchctl.fish
    """
    from batchctl.cli import cli

    shell = shell or Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        raise UsageError("which shell?", hint=f"batchctl completion {'|'.join(SHELLS)}")
    kind = get_completion_class(shell)
    assert kind is not None, shell
    click.echo(kind(cli, {}, "batchctl", "_BATCHCTL_COMPLETE").source())
