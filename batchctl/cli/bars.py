"""Progress on a terminal: one bar a job, on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from batchctl.cli.following import Standing


class Bars:
    """A bar for each job that is followed."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[int, TaskID] = {}

    def show(self, standing: Standing) -> None:
        for job in standing.jobs:
            words = standing.line(job).partition("; ")[2]
            if job["id"] not in self._tasks:
                self._tasks[job["id"]] = self._progress.add_task(job["name"], total=job["rows"], words="")
            self._progress.update(
                self._tasks[job["id"]], completed=standing.counted(job), words=words.partition("; ")[2] or job["state"]
            )

    def tell(self, note: str) -> None:
        self._progress.console.print(f"note: {note}", markup=False, highlight=False)


@contextmanager
def bars() -> Iterator[Bars]:
    """Draws until the end of the block; the last state stays on the screen."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[words]}"),
    )
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=4) as progress:
        yield Bars(progress)
