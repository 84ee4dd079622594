"""What lies in the store's folder, by kind and by job, and what of it `gc` would let go."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from batchctl.engine.context import Engine
from batchctl.engine.intake import sweep
from batchctl.engine.keep import RENDERED, Chosen, Kind, kind_of_object, leftovers
from batchctl.engine.locks import exclusive, ownership
from batchctl_store.records import Job


@dataclass(frozen=True, slots=True)
class Holding:
    """Bytes on disk of one kind, of one job where it is one's; `goes` of them would be let go."""

    kind: Kind
    bytes: int
    goes: int = 0
    job: str | None = None


@contextmanager
def alone(engine: Engine) -> Iterator[None]:
    """No pass runs meanwhile. Raises `locks.Busy`."""
    with exclusive(engine.locks / "tick.lock", owner="gc", now=engine.clock.now()), ownership(engine.locks) as owner:
        engine.owner = owner.name
        sweep(engine)
        yield


def survey(engine: Engine, chosen: Chosen, only: Collection[int] | None = None) -> list[Holding]:
    """All that lies there, or what lies there of some jobs; what would go of a job's requests is an estimate."""
    found: list[Holding] = []
    whole, part = {job.id for job in chosen.forget}, {job.id for job in chosen.trim}
    for job in engine.store.jobs.all():
        if only is None or job.id in only:
            found += _of_job(engine, job, whole=job.id in whole, part=job.id in part)
    if only is None:
        left = leftovers(engine, dry=True)
        locks = sum(path.stat().st_size for path in engine.locks.glob("*"))
        size, free = engine.store.keeping.usage()
        found += [
            Holding(Kind.LEFTOVERS, left[Kind.LEFTOVERS], left[Kind.LEFTOVERS]),
            Holding(Kind.LOCKS, locks, left[Kind.LOCKS]),
            Holding(Kind.STORE, size - free),
            Holding(Kind.FREE, free),
        ]
    return found


def _of_job(engine: Engine, job: Job, *, whole: bool, part: bool) -> Iterator[Holding]:
    share = _share_that_goes(engine, job) if part else 0.0
    for name, size in engine.spool.sizes(job.spool).items():
        kind = kind_of_object(name, job.spool)
        goes = 0
        if whole or (part and kind in (Kind.RESULTS, Kind.STRAY)):
            goes = size
        elif part and kind is Kind.REQUESTS:
            goes = size if share == 1 else int(size * share) if name.endswith(f"/{RENDERED[0]}") else 0
        yield Holding(kind, size, goes, job.name)


def _share_that_goes(engine: Engine, job: Job) -> float:
    kept = sum(1 for _ in engine.store.keeping.may_be_retried(job.id))
    return 1 - kept / job.rows if job.rows else 1.0


def why_kept(engine: Engine, job: Job, files_s: float | None) -> str | None:
    """Why nothing of the job goes at the moment; None where something does, or nothing is left to go."""
    keeping, now = engine.store.keeping, engine.clock.now()
    if job.open:
        return "it is not over: finished, and merged where an output is wished for"
    if not keeping.is_at_rest(job, now=now):
        return "a batch of it may still answer, or was proved absent and is still watched for"
    if files_s is None:
        return "files are kept for ever ([retention] files)"
    if job.id not in {found.id for found in keeping.at_rest(before=now - files_s, now=now)}:
        return "it has not been over for long enough; --older-than 0s takes it now"
    return None


@dataclass(frozen=True, slots=True)
class Compacting:
    """Whether the database is written anew without its free pages, and what that takes; bytes."""

    free: int
    needs: int
    room: int

    @property
    def worth_it(self) -> bool:
        """A tenth of it is free, and at least a megabyte."""
        return self.free >= 1_000_000 and self.free * 10 >= self.needs // 2

    @property
    def fits(self) -> bool:
        """The copy and the write-ahead log both have room."""
        return self.room > self.needs


def compacting(engine: Engine) -> Compacting:
    """What compacting the store would bring and take."""
    size, free = engine.store.keeping.usage()
    return Compacting(free, 2 * size, shutil.disk_usage(engine.home).free)
