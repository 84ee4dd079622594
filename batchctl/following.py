"""Following jobs to their end: pass, look, sleep by the clock, again; with progress as the terminal allows."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from batchctl import verdict
from batchctl.exits import DONE, ERROR, FAILED_ROWS, PAUSED, RUNNING
from batchctl.reading import Reading

if TYPE_CHECKING:
    from batchctl.engine.context import Engine
    from batchctl.engine.tick import Report

Row = dict[str, Any]
LEAST_SLEEP_S = 1.0  # of the clock
LEAST_REAL_SLEEP_S = 0.05  # of the machine, where a rehearsal's clock runs fast
GLANCE_S = 0.5  # of the machine, between two looks during one pass
BUSY_SLEEP_S = 2.0  # of the machine, while another tick does the work


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the followed jobs are: their rows of `job_status`, and those of their open batches."""

    jobs: tuple[Row, ...]
    batches: Mapping[int, list[Row]]  # by job number
    accounts: Mapping[str, Row]

    @property
    def finished(self) -> bool:
        return all(job["state"] == "finished" for job in self.jobs)

    @property
    def stuck(self) -> dict[str, str]:
        """Jobs that nothing moves on without a person, with the reason."""
        found = {}
        for job in self.jobs:
            if job["state"] == "finished":
                continue
            reason = verdict.needs_person(job, self.batches[job["id"]], self.accounts.get(job["account"]))
            if reason:
                found[job["name"]] = reason
        return found

    def counted(self, job: Row) -> int:
        """Rows that are final, with those that the provider says are done in batches that are out."""
        out = sum(b["counted"] or 0 for b in self.batches[job["id"]] if b["state"] in ("submitted", "ended"))
        return min(int(job["rows"]), int(job["final_rows"]) + out)

    def line(self, job: Row) -> str:
        """A job in one line."""
        states: dict[str, int] = {}
        for batch in self.batches[job["id"]]:
            if batch["state"] not in ("collected", "rejected", "canceled", "gone"):
                word = batch["raw_status"] if batch["state"] == "submitted" and batch["raw_status"] else batch["state"]
                states[word] = states.get(word, 0) + 1
        failed = job["final_rows"] - job["succeeded_rows"]
        parts = [f"{self.counted(job):,} of {job['rows']:,} rows done"]
        parts += [f"{failed:,} failed"] if failed else []
        parts += [", ".join(f"{count} {word.replace('_', ' ')}" for word, count in states.items())] if states else []
        return f"{job['name']}: {job['state']}; {'; '.join(parts)}"


def stand(reading: Reading, numbers: Collection[int]) -> Standing:
    """The jobs with these numbers, as the store has them now."""
    jobs = tuple(job for job in reading.views.jobs() if job["id"] in numbers)
    batches = {job["id"]: [] if job["state"] == "finished" else reading.views.batches(job["id"]) for job in jobs}
    return Standing(jobs, batches, {account["name"]: account for account in reading.views.accounts()})


class Watcher(Protocol):
    """Shows where the jobs are."""

    def show(self, standing: Standing) -> None: ...

    def tell(self, note: str) -> None:
        """Something the user should read, once."""
        ...


class _Glance:
    """Shows the standing during a pass, but not after every step of thousands."""

    def __init__(self, reading: Reading, numbers: Collection[int], shown: Watcher) -> None:
        self._reading, self._numbers, self._shown = reading, numbers, shown
        self._last = time.monotonic()

    def __call__(self) -> None:
        if time.monotonic() - self._last >= GLANCE_S:
            self._shown.show(stand(self._reading, self._numbers))
            self._last = time.monotonic()


class Pass(Protocol):
    """One pass for some jobs; raises `locks.Busy`."""

    def __call__(self, engine: Engine, *, jobs: Collection[int], progress: Callable[[], None]) -> Report: ...


def follow(
    engine: Engine,
    reading: Reading,
    numbers: Collection[int],
    *,
    run: Pass,
    shown: Watcher,
    check: Callable[[], None],
    timeout: float | None = None,
) -> tuple[int, Standing]:
    """Passes until the jobs are finished and merged. Returns the exit code and where they stand.

    `timeout` is in seconds of the machine's clock; `check` is called before each sleep, and may raise. While another
    tick holds the lock its work is watched only.
    """
    from batchctl.engine.locks import Busy

    started = time.monotonic()
    told: set[str] = set()
    glance = _Glance(reading, numbers, shown)
    while True:
        busy, next_at = False, None
        try:
            report = run(engine, jobs=numbers, progress=glance)
        except Busy:
            busy = True
        else:
            next_at = report.next_at
            for note in report.notes:
                if note not in told:
                    told.add(note)
                    shown.tell(note)
        standing = stand(reading, numbers)
        shown.show(standing)
        if (code := _over(standing)) is not None:
            return code, standing
        left = None if timeout is None else timeout - (time.monotonic() - started)
        if left is not None and left <= 0:
            return RUNNING, standing
        check()
        _sleep(engine, standing, next_at, busy=busy, left=left)


def _over(standing: Standing) -> int | None:
    """The exit code once there is nothing to wait for."""
    if standing.finished:
        failed = any(job["final_rows"] > job["succeeded_rows"] for job in standing.jobs)
        return FAILED_ROWS if failed else DONE
    waiting = [job for job in standing.jobs if job["state"] != "finished"]
    if all(job["name"] in standing.stuck for job in waiting):
        return PAUSED
    if all(job["state"] == "merging" and job["merge_error"] for job in waiting):
        return ERROR
    return None


def _sleep(engine: Engine, standing: Standing, next_at: float | None, *, busy: bool, left: float | None) -> None:
    """Until something is due: at least a second of the clock, at most the shortest poll interval."""
    clock = engine.clock
    least = max(LEAST_SLEEP_S, clock.real(LEAST_REAL_SLEEP_S))
    if busy:
        seconds = clock.real(BUSY_SLEEP_S)
    else:
        profiles = {job["profile"] for job in standing.jobs if job["state"] != "finished"}
        most = max(least, min(engine.profile(name).poll_interval_s for name in profiles))
        seconds = most if next_at is None else min(most, max(least, next_at - clock.now()))
    if left is not None:
        seconds = min(seconds, clock.real(left))
    clock.sleep(seconds)
