"""The engine over the user's store, as commands and Python use it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

from batchctl.config import Settings, load_settings
from batchctl.reading import read

if TYPE_CHECKING:
    from batchctl.engine.context import Engine
    from batchctl.engine.tick import Report
    from batchctl_store.records import Job


class Run(Protocol):
    """One pass, restricted to some jobs and kinds of decision; raises `locks.Busy`."""

    def __call__(self, engine: Engine, *, jobs: Collection[int], only: Sequence[type]) -> Report: ...


@contextmanager
def opened(
    settings: Settings | None = None,
    *,
    profile: str | None = None,
    offline: bool = False,
    closing: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Iterator[Engine]:
    """The engine over the user's store, closed at the end, in `closing`'s block."""
    from batchctl.composition import open_engine

    engine = open_engine(settings or load_settings(), profile=profile, offline=offline)
    try:
        yield engine
    finally:
        with closing():
            engine.close()


def named(engine: Engine, name: str) -> Job:
    """The job called `name`, or with that number. Raises UsageError where there is none."""
    job = engine.store.jobs.find(name)
    return job if job is not None else engine.store.jobs.get(read().job(name)["id"])


def ask_again(engine: Engine, name: str | None, run: Run) -> Report:
    """Ask the provider about the batches of one job, or of all. Raises `locks.Busy`."""
    from batchctl.engine import planner
    from batchctl.engine.wishes import look_now

    jobs = [named(engine, name).id] if name else [job.id for job in engine.store.jobs.all(open_only=True)]
    look_now(engine, jobs)
    return run(engine, jobs=jobs, only=[planner.Poll])
