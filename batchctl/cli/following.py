"""Following jobs to their end, with progress as the terminal allows."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from batchctl import following
from batchctl.cli import interrupts, output, passes
from batchctl.following import Standing, Watcher
from batchctl.reading import Reading

if TYPE_CHECKING:
    from batchctl.engine.context import Engine

__all__ = ["Standing", "Watcher", "follow"]


class Lines:
    """Plain lines on stderr, one for each change."""

    def __init__(self) -> None:
        self._last: dict[int, str] = {}

    def show(self, standing: Standing) -> None:
        for job in standing.jobs:
            line = standing.line(job)
            if self._last.get(job["id"]) != line:
                self._last[job["id"]] = line
                output.say(line)

    def tell(self, note: str) -> None:
        output.say(f"note: {note}")


@contextmanager
def watcher() -> Iterator[Watcher]:
    """Bars on a terminal, plain lines elsewhere."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    from batchctl.cli.bars import bars

    with bars() as live:
        yield live


def follow(
    engine: Engine, reading: Reading, numbers: Collection[int], *, timeout: float | None = None
) -> tuple[int, Standing]:
    """`following.follow`, watched by people who may interrupt it."""
    with watcher() as shown:
        return following.follow(
            engine, reading, numbers, run=passes.run, shown=shown, check=interrupts.check, timeout=timeout
        )
