"""A job on the command line: by its name or number, with completion."""

from __future__ import annotations

from typing import Any

import click

from batchctl.reading import Reading, read

__all__ = ["JOB", "Reading", "read"]


class JobName(click.ParamType[str]):
    """A job's name or number; completes from the store."""

    name = "job"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        rows = read().views.jobs()
        return [CompletionItem(row["name"], help=row["state"]) for row in rows if row["name"].startswith(incomplete)]


JOB = JobName()
