"""One pass of the engine, as several commands run it: interruptible at safe places, and patient with another tick."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from batchctl import session
from batchctl.cli import interrupts, output
from batchctl.session import named

if TYPE_CHECKING:
    from batchctl.engine.context import Engine
    from batchctl.engine.locks import Busy
    from batchctl.engine.tick import Report
    from batchctl_store.records import Job

__all__ = ["holder", "named", "opened", "refresh", "run", "run_for", "tell"]
MAX_RUNTIME_S = 600.0


@contextmanager
def opened(*, profile: str | None = None, offline: bool = False) -> Iterator[Engine]:
    """`session.opened`; an interrupt waits for the end of its closing: a connection half closed complains aloud.

    What libraries log is for BATCHCTL_DEBUG=1.
    """
    if not os.environ.get("BATCHCTL_DEBUG"):
        logging.getLogger().addHandler(logging.NullHandler())
    with session.opened(profile=profile, offline=offline, closing=interrupts.deferred) as engine:
        yield engine


def run(
    engine: Engine,
    *,
    jobs: Collection[int] | None = None,
    only: Sequence[type] | None = None,
    max_runtime_s: float = MAX_RUNTIME_S,
    progress: Callable[[], None] | None = None,
) -> Report:
    """One pass; an interrupt waits for the end of the step it comes in. Raises `locks.Busy`."""
    from batchctl.engine.tick import run_pass

    def step() -> None:
        interrupts.check()
        if progress is not None:
            progress()

    with interrupts.deferred():
        return run_pass(engine, jobs=jobs, only=only, max_runtime_s=max_runtime_s, progress=step)


def run_for(engine: Engine, job: Job) -> Report | None:
    """A pass for one job after a command changed it; None where a running tick will take it instead."""
    from batchctl.engine.locks import Busy

    try:
        report = run(engine, jobs=[job.id])
    except Busy as busy:
        output.say(f"{holder(engine, busy)} is at work and will take {job.name}")
        return None
    tell(report)
    return report


def tell(report: Report) -> None:
    """A pass's notes, for the user to read."""
    for note in report.notes:
        output.say(f"note: {note}")


def holder(engine: Engine, busy: Busy) -> str:
    """Who holds the lock, and since when."""
    since = "" if busy.since is None else f", for {output.duration(engine.clock.now() - busy.since)}"
    return f"another tick ({busy.holder}{since})"


def refresh(name: str | None) -> None:
    """Ask the provider about the batches of one job, or of all."""
    from batchctl.engine.locks import Busy

    with opened() as engine:
        try:
            tell(session.ask_again(engine, name, run))
        except Busy as busy:
            output.say(f"{holder(engine, busy)} is at work; this is what it has stored so far")
