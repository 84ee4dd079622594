"""What is let go on this machine, and when: rendered requests, raw results, whole jobs, leftovers (docs/retention.md).

Whoever collects holds the lock of a pass, so that nothing is read meanwhile but by commands that only look.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, tee

from batchctl.engine.context import Engine
from batchctl.engine.keys import KEYS
from batchctl.engine.locks import sweep_owners
from batchctl.engine.plan import INPUTS
from batchctl.retention import DAY
from batchctl_store.records import IllegalMove, Job
from batchctl_store.spool import FrameWriter, SpoolError

LAST = "collected_at"
"""The setting that says when a tick last collected by itself; seconds of the store's clock."""
EVERY_S = DAY
AT_MOST_S = 60.0
"""How long a tick collects; the next one goes on."""
LEFTOVER_AGE_S = DAY
JOBS = "jobs"  # the spool's folder of the jobs' folders


class Kind(StrEnum):
    """What lies in the store's folder."""

    INPUT = "input rows"  # every later `results` reads them, and every submit their keys
    REQUESTS = "requests"  # as they were or will be sent, and where each row came from
    RESULTS = "results as received"
    STRAY = "stray lines"  # of results, that name no row
    LEFTOVERS = "leftovers"  # of writers and intakes that died
    LOCKS = "locks"
    STORE = "store"  # the database: jobs, rows, answers, history
    FREE = "free in the store"


_KINDS = {"rows": Kind.INPUT, KEYS: Kind.INPUT, "results": Kind.RESULTS, "quarantine": Kind.STRAY}
RENDERED = ("bodies", "lines", INPUTS)


def kind_of_object(name: str, folder: str) -> Kind:
    """What a spool object in a job's folder is."""
    return _KINDS.get(name.removeprefix(f"{folder}/").partition("/")[0], Kind.REQUESTS)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Jobs of which something goes: files of some, all of others."""

    trim: tuple[Job, ...] = ()
    forget: tuple[Job, ...] = ()


@dataclass(slots=True)
class Gone:
    """What was let go: bytes on disk by kind, and the jobs concerned."""

    freed: dict[Kind, int] = field(default_factory=dict)
    trimmed: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.freed.values())

    def add(self, kind: Kind, count: int) -> None:
        """So many bytes more."""
        if count:
            self.freed[kind] = self.freed.get(kind, 0) + count


def choose(
    engine: Engine, *, files_s: float | None, jobs_s: float | None, only: Collection[int] | None = None
) -> Chosen:
    """Jobs that are over for longer than these seconds (None: never), and that nothing is awaited for."""
    now, at_rest = engine.clock.now(), engine.store.keeping.at_rest
    forget = () if jobs_s is None else tuple(at_rest(before=now - jobs_s, now=now))
    whole = {job.id for job in forget if only is None or job.id in only}
    trim = () if files_s is None else tuple(at_rest(before=now - files_s, now=now, untrimmed=True))
    return Chosen(
        trim=tuple(job for job in trim if job.id not in whole and (only is None or job.id in only)),
        forget=tuple(job for job in forget if job.id in whole),
    )


def let_go(engine: Engine, chosen: Chosen, gone: Gone, *, at_most_s: float | None = None) -> bool:
    """Do it. False where the time was over before the end."""
    started = time.monotonic()
    for job, step in [*((job, forget) for job in chosen.forget), *((job, trim) for job in chosen.trim)]:
        if at_most_s is not None and time.monotonic() - started > at_most_s:
            return False
        step(engine, job, gone)
    return True


def trim(engine: Engine, job: Job, gone: Gone) -> None:
    """Let the job's raw results go, and its requests but for those that a `retry` would send.

    These stay as they are, byte for byte, at their line: rendering the rows anew could come out differently, because
    an image, the profile or batchctl itself may have changed meanwhile. Answered rows are never sent again.
    """
    if not engine.store.keeping.is_at_rest(job, now=engine.clock.now()):
        return  # a retry was asked for meanwhile
    before = _by_kind(engine, job)
    for part in ("results", "quarantine"):
        engine.spool.drop(f"{job.spool}/{part}")
    kept = _keep_retriable(engine, job)
    after = _by_kind(engine, job)
    for kind, count in before.items():
        gone.add(kind, count - after.get(kind, 0))
    gone.trimmed.append(job.name)
    rest = f"; the requests of {kept} rows stay for a retry" if kept else ""
    freed = sum(before.values()) - sum(after.values())
    event = f"let go of {freed} bytes of requests and raw results{rest}"
    engine.store.keeping.trimmed(job, now=engine.clock.now(), event=event)


def _keep_retriable(engine: Engine, job: Job) -> int:
    """Write the requests anew with an empty line for each row that is not sent again; returns how many stay."""
    found = engine.store.keeping.may_be_retried(job.id)
    first = next(found, None)
    if first is None:
        for part in RENDERED:
            engine.spool.delete(f"{job.spool}/{part}")
        return 0
    name, kept, end = f"{job.spool}/{RENDERED[0]}", 0, 0
    rows, numbers = tee(chain([first], found))  # read in step: nothing piles up between them
    with engine.spool.reader(name) as reader, engine.spool.writer(name) as writer:
        for row, body in zip(rows, reader.pick(numbers), strict=True):
            _skip(writer, row - end)
            writer.append(body)
            kept, end = kept + 1, row + 1
        _skip(writer, job.rows - end)
    return kept


def _skip(writer: FrameWriter, lines: int) -> None:
    for _ in range(lines):
        writer.append(b"")


def forget(engine: Engine, job: Job, gone: Gone) -> None:
    """Let all of the job go. Raises IllegalMove where it is not over, or something of it may still answer."""
    sizes = _by_kind(engine, job)
    engine.store.keeping.forget(job, now=engine.clock.now())
    engine.spool.drop(job.spool)  # the store first: a folder without its job is found again, a job without its rows not
    for kind, count in sizes.items():
        gone.add(kind, count)
    gone.forgotten.append(job.name)


def _by_kind(engine: Engine, job: Job) -> dict[Kind, int]:
    found: dict[Kind, int] = {}
    for name, size in engine.spool.sizes(job.spool).items():
        kind = kind_of_object(name, job.spool)
        found[kind] = found.get(kind, 0) + size
    return found


def leftovers(engine: Engine, *, dry: bool = False) -> dict[Kind, int]:
    """Delete what died writers and intakes left behind, older than a day; bytes by kind.

    An intake writes its folder before its job is in the store. A folder is an orphan where no job names it and no owner
    that is as old is still alive: folders are listed first, owners tested next, and jobs read last.
    """
    before = time.time() - LEFTOVER_AGE_S  # ages of files are told by the machine's clock, whichever the store follows
    old = [folder for folder, changed in engine.spool.folders(JOBS).items() if changed < before]
    dead, alive = sweep_owners(engine.locks, before=before, dry=dry)
    known = {job.spool for job in engine.store.jobs.all()}
    size = sum(engine.spool.sweep(dry=dry).values())
    for folder in () if alive else old:
        if folder not in known:
            size += sum(engine.spool.sizes(folder).values())
            if not dry:
                engine.spool.drop(folder)
    return {Kind.LEFTOVERS: size, Kind.LOCKS: dead}


def daily(engine: Engine) -> Gone:
    """What a tick lets go by itself, once a day: what `[retention]` says, and leftovers. Stops nothing else."""
    gone, now, settings = Gone(), engine.clock.now(), engine.retention
    last = engine.store.setting(LAST)
    if not settings.auto or (last is not None and 0 <= now - float(last) < EVERY_S):
        return gone
    try:
        for kind, count in leftovers(engine).items():
            gone.add(kind, count)
        chosen = choose(engine, files_s=settings.files_s, jobs_s=settings.jobs_s)
        done = let_go(engine, chosen, gone, at_most_s=AT_MOST_S)
    except (OSError, SpoolError, IllegalMove) as error:
        engine.note(f"what is no longer needed could not be deleted, tried again tomorrow: {error}")
        done = True
    if done:
        engine.store.put_setting(LAST, str(now))
    return gone
