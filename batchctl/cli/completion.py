"""`batchctl completion`: the shell's completion script."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for your shell.

    \b
    bash: batchctl completion bash > ~/.local/share/bash-completion/completions/batchctl
    zsh:  batchctl completion zsh > ~/.zfunc/_batchctl
    fish: batchctl completion fish > ~/.config/fish/completions/batchctl.fish
    """
    from batchctl.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None, shell
    click.echo(kind(cli, {}, "batchctl", "_BATCHCTL_COMPLETE").source())
