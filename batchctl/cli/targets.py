"""What submit, validate and estimate have in common: the task, the inputs, the provider that is meant."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from batchctl.errors import UsageError
from batchctl.ordering import Asked, provider_of

if TYPE_CHECKING:
    from batchctl.config import Settings
    from batchctl.engine.preview import Target
    from batchctl.inputs import Format

__all__ = ["Asked", "asked_options", "provider_of", "target"]
R = TypeVar("R")


def asked_options(function: Callable[..., R]) -> Callable[..., R]:
    """TASK INPUT... and the options that say how to read the inputs; the command gets one `asked`."""

    @functools.wraps(function)
    def command(
        words: tuple[str, ...],
        requests: bool,
        input_format: Format | None,
        encoding: str | None,
        sheet: str | None,
        **others: Any,
    ) -> R:
        task, inputs = (None, words) if requests else (Path(words[0]), words[1:])
        if not inputs:
            raise _no_input(words[0])
        return function(asked=Asked(task, inputs, input_format, encoding, sheet), **others)

    return _all(
        command,
        click.argument("words", nargs=-1, required=True, metavar="TASK INPUT..."),
        click.option(
            "--requests",
            is_flag=True,
            help="No TASK: each INPUT has ready-made requests, as OpenAI's batch API takes them.",
        ),
        click.option(
            "--format",
            "input_format",
            type=click.Choice(["csv", "tsv", "jsonl", "parquet", "excel"]),
            help="Of every INPUT; default: what its name ends in.",
        ),
        click.option("--encoding", metavar="NAME", help="Of text, such as cp1252; default: UTF-8."),
        click.option("--sheet", metavar="NAME", help="Of an Excel file with several."),
    )


def _all(function: Callable[..., R], *decorators: Callable[[Callable[..., R]], Callable[..., R]]) -> Callable[..., R]:
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


def _no_input(word: str) -> UsageError:
    from batchctl.inputs import FORMATS
    from batchctl.inputs.sources import PACKINGS

    command = click.get_current_context().command_path
    suffixes = Path(word.lower()).suffixes
    if suffixes and (suffixes[-1] in PACKINGS or suffixes[-1] in FORMATS):
        hint = f"{command} TASK.yaml {word}, or --requests {word} where it has ready-made requests"
        return UsageError(f"{word} is an input, and a task is missing", hint=hint)
    return UsageError("no input is named", hint=f"{command} {word} INPUT..., such as rows.csv")


@contextmanager
def target(
    settings: Settings, name: str, *, max_requests: int | None = None, max_bytes: int | None = None
) -> Iterator[Target]:
    """Where a submit to the profile `name` would go, to look at only. Raises UsageError."""
    from batchctl.composition import find_profile, open_encoder
    from batchctl.engine.preview import Target

    profile = find_profile(settings, name)
    adapter = open_encoder(settings, profile)
    try:
        yield Target(profile, adapter, max_requests, max_bytes)
    finally:
        adapter.close()
