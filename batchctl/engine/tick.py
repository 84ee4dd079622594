"""One idempotent pass of the engine: observe, decide, act. It may be killed anywhere and run again."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from batchctl.engine import cleaning, keep, planner
from batchctl.engine.collect import collect, take_late
from batchctl.engine.context import Engine
from batchctl.engine.intake import sweep
from batchctl.engine.locks import exclusive, lives, ownership
from batchctl.engine.plan import plan_rows
from batchctl.engine.poll import poll
from batchctl.engine.recover import recover
from batchctl.engine.submit import submit, upload
from batchctl.engine.wishes import carry_out_cancel
from batchctl.merge import merge_job
from batchctl_adapters.errors import AdapterError
from batchctl_store.records import CLOSED, BatchState, Job

MAX_RUNTIME_S = 600.0


@dataclass(slots=True)
class Report:
    """What a pass did: decisions by kind, notes for the user, when something will be due next."""

    done: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    next_at: float | None = None
    cut_short: bool = False


def run_pass(
    engine: Engine,
    *,
    jobs: Collection[int] | None = None,
    only: Sequence[type] | None = None,
    max_runtime_s: float = MAX_RUNTIME_S,
    progress: Callable[[], None] | None = None,
) -> Report:
    """Do all that can be done now, for these jobs or for all.

    Raises `locks.Busy` where another pass is at work. `only` restricts the pass to some kinds of decision.
    """
    report = Report()
    with (
        exclusive(engine.locks / "tick.lock", owner=f"{_whoami()}", now=engine.clock.now()),
        ownership(engine.locks) as owner,
    ):
        engine.owner = owner.name
        engine.notes = report.notes
        sweep(engine)
        started, last, tried = time.monotonic(), None, set[int]()
        while True:
            state = observe(engine, jobs)
            decisions = planner.decide(state, engine.clock.now())
            decisions = [d for d in decisions if only is None or isinstance(d, tuple(only))]
            decisions = [d for d in decisions if not (isinstance(d, planner.Merge) and d.job.id in tried)]
            if not decisions or decisions == last:  # nothing to do, or nothing that changes anything
                break
            if time.monotonic() - started > max_runtime_s:
                report.cut_short = True
                break
            last = decisions
            tried |= {d.job.id for d in decisions if isinstance(d, planner.Merge)}  # a failed one costs a whole file
            act(engine, decisions, report, progress)
        if only is None and not report.cut_short:
            _tidy(engine, jobs, report, progress)
        for batch in state.batches:
            if batch.owner in state.live_owners and batch.state in (BatchState.UPLOADING, BatchState.SUBMITTING):
                engine.note(f"batch {batch.ordinal} is being sent by {batch.owner}, which holds its lock; left alone")
        report.next_at = planner.next_time(state, engine.clock.now())
    return report


def _tidy(
    engine: Engine, jobs: Collection[int] | None, report: Report, progress: Callable[[], None] | None = None
) -> None:
    """What nothing waits for comes last, and takes little time: files at the provider, and files here once a day."""
    started = time.monotonic()
    for decision in cleaning.due(engine, jobs):
        if time.monotonic() - started > cleaning.AT_MOST_S:
            break
        act(engine, [decision], report, progress)
    if jobs is None and (gone := keep.daily(engine)).total:
        engine.note(
            f"let go of {gone.total:,} bytes that nothing needs any more (batchctl gc --dry-run shows the rest)"
        )


def observe(engine: Engine, jobs: Collection[int] | None = None) -> planner.Snapshot:
    """The stored state, as the planner wants it."""
    store, now = engine.store, engine.clock.now()
    batches = [b for b in store.batches.load(open_at=now) if jobs is None or b.job_id in jobs]
    open_jobs = {job.id: job for job in store.jobs.all(open_only=True) if jobs is None or job.id in jobs}
    for batch in batches:
        if batch.job_id not in open_jobs:
            open_jobs[batch.job_id] = store.jobs.get(batch.job_id)
    profiles = {job.profile for job in open_jobs.values()} | {batch.profile for batch in batches}
    owners = {b.owner for b in batches if b.owner and b.state not in CLOSED}
    return planner.Snapshot(
        jobs=open_jobs,
        batches=batches,
        accounts=store.batches.accounts(),
        timings={name: engine.timing(name) for name in profiles},
        live_owners=frozenset(owner for owner in owners if owner != engine.owner and lives(engine.locks, owner)),
    )


def act(
    engine: Engine,
    decisions: Sequence[planner.Decision],
    report: Report,
    progress: Callable[[], None] | None = None,
) -> None:
    """Carry decisions out: uploads several at once, everything else in order."""
    uploads = [d for d in decisions if isinstance(d, planner.Upload)]
    for decision in decisions:
        if not isinstance(decision, planner.Upload):
            _isolated(engine, decision, report)
            _count(report, decision)
            if progress:
                progress()
    if not uploads:
        return
    workers = max(engine.profile(d.batch.profile).concurrent_uploads for d in uploads)
    with ThreadPoolExecutor(workers, thread_name_prefix="upload") as pool:
        try:
            for _ in pool.map(lambda d: _isolated(engine, d, report), uploads):
                if progress:
                    progress()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)  # what is under way is finished and written down
            raise
    for decision in uploads:
        _count(report, decision)


def _count(report: Report, decision: planner.Decision) -> None:
    kind = type(decision).__name__.lower()
    report.done[kind] = report.done.get(kind, 0) + 1


def _isolated(engine: Engine, decision: planner.Decision, report: Report) -> None:
    """What a provider refuses concerns the batches of that decision; the others go on."""
    try:
        _act(engine, decision, report)
    except AdapterError as error:
        engine.note(error.message)
        batches = getattr(decision, "batches", None) or [getattr(decision, "batch", None)]
        concerned = [batch for batch in batches if batch is not None]
        if concerned:
            at = engine.clock.now() + engine.profile(concerned[0].profile).poll_interval_s
            engine.store.batches.touch_all(concerned, not_before=at, next_poll_at=at, note=error.message)


def _act(engine: Engine, decision: planner.Decision, report: Report) -> None:
    match decision:
        case planner.Plan(job):
            plan_rows(engine, job)
        case planner.Upload(batch):
            upload(engine, batch)
        case planner.Submit(batch):
            submit(engine, batch)
        case planner.Recover(batch):
            recover(engine, batch)
        case planner.Poll(profile, batches):
            poll(engine, profile, batches)
        case planner.Collect(batch):
            take_late(engine, batch) if batch.state in CLOSED else collect(engine, batch)
        case planner.Cancel(job, batch):
            carry_out_cancel(engine, job, batch)
        case planner.Finish(job):
            _finish(engine, job, report)
        case planner.Merge(job):
            merge_job(engine, job)
        case planner.Clean(batch):
            cleaning.clean(engine, batch)


def _finish(engine: Engine, job: Job, report: Report) -> None:
    now = engine.clock.now()
    engine.store.jobs.update(job.id, now=now, event="every row is final", unless="finished_at", finished_at=now)
    report.finished.append(job.name)


def _whoami() -> str:
    import os
    import socket

    return f"process {os.getpid()} on {socket.gethostname()}"
