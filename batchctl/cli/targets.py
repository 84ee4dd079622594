"""What submit, validate and estimate have in common: the input's format, the provider that is meant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from batchctl.errors import UsageError

if TYPE_CHECKING:
    from batchctl.config import Settings
    from batchctl.engine.preview import Target

format_option = click.option(
    "--format",
    "input_format",
    type=click.Choice(["csv", "jsonl"]),
    help="Of INPUT; default: what its name ends in.",
)


def provider_of(given: str | None, settings: Settings) -> str:
    """The profile to use. Raises UsageError where neither the command line nor batchctl.toml names one."""
    chosen = given or settings.provider
    if not chosen:
        hint = 'add --provider PROFILE, or write provider = "..." in batchctl.toml'
        raise UsageError("no provider is named", hint=hint)
    return chosen


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
