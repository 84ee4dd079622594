"""What to do next, as pure functions: state, limits and the time go in, decisions come out. No I/O, no clock."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from batchctl_store.records import Account, Batch, BatchState, Job

_STRIDE = 64  # rows between two kept totals


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one batch may hold; sizes are bytes as sent, inputs are texts of embedding requests."""

    max_requests: int
    max_bytes: int
    max_line_bytes: int
    max_inputs: int | None = None
    max_request_inputs: int | None = None


def partition(sizes: Sequence[int], limits: Limits, inputs: Sequence[int] | None = None) -> list[int]:
    """Cut consecutive rows into the fewest batches within the limits, as even as can be; returns their lengths.

    `inputs` counts each row's texts; None: one a row. Every size must be at most `limits.max_bytes`, every count at
    most `limits.max_inputs`. Order is kept, so a batch is a run of rows.
    """
    if not sizes:
        return []
    most = limits.max_requests
    measures = [(_Totals(sizes), limits.max_bytes)]
    if limits.max_inputs is not None and inputs is None:
        most = min(most, limits.max_inputs)
    elif limits.max_inputs is not None and inputs is not None:
        measures.append((_Totals(inputs), limits.max_inputs))
    best = _cuts(len(sizes), measures, most)
    fewest = len(best)
    low, high = 0.0, 1.0  # the smallest share of all limits that still needs no more batches, found by halving
    for _ in range(24):
        share = (low + high) / 2
        narrowed = [(totals, max(totals.largest, int(limit * share))) for totals, limit in measures]
        cuts = _cuts(len(sizes), narrowed, max(1, int(most * share)), at_most=fewest)
        if cuts:
            best, high = cuts, share
        else:
            low = share
    return [end - start for start, end in zip([0, *best], best, strict=False)]


def _cuts(rows: int, measures: Sequence[tuple[_Totals, int]], count: int, at_most: int | None = None) -> list[int]:
    """Ends of the runs that greedy filling makes; empty where that needs more than `at_most` runs.

    `measures` are what the rows weigh, with the most that a run may weigh.
    """
    ends: list[int] = []
    start = 0
    while start < rows:
        end = min(start + count, *(totals.end(start, most) for totals, most in measures))
        start = max(end, start + 1)
        ends.append(start)
        if at_most is not None and len(ends) > at_most:
            return []
    return ends


class _Totals:
    """Running totals of a million values in little memory: one in `_STRIDE` is kept, the rest is added up again."""

    def __init__(self, values: Sequence[int]) -> None:
        self._values = values
        self._marks = array("Q", [0])  # the total before each stride, and at the end
        self.largest = 0
        total = 0
        for start in range(0, len(values), _STRIDE):
            stride = values[start : start + _STRIDE]
            self.largest = max(self.largest, *stride, 0)
            total += sum(stride)
            self._marks.append(total)

    def end(self, start: int, most: int) -> int:
        """The furthest end of a run from `start` that weighs no more than `most`."""
        first = start - start % _STRIDE
        ceiling = self._marks[start // _STRIDE] + sum(self._values[first:start]) + most
        stride = bisect_right(self._marks, ceiling) - 1
        end, total = stride * _STRIDE, self._marks[stride]
        for value in self._values[end : end + _STRIDE]:
            total += value
            if total > ceiling:
                break
            end += 1
        return min(end, len(self._values))


@dataclass(frozen=True, slots=True)
class Plan:
    """Turn the pending rows of a job into batches."""

    job: Job


@dataclass(frozen=True, slots=True)
class Upload:
    """Send a batch's file."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Submit:
    """Create the batch at the provider."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Recover:
    """Find out what became of an upload or a create whose owner died or had no answer."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Poll:
    """Ask one profile's provider about these batches, in as few calls as it can."""

    profile: str
    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class Collect:
    """Take in the results of a batch that ended."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Cancel:
    """Carry out the user's wish: drop what was not sent, ask the provider to stop what was."""

    job: Job
    batch: Batch | None  # None: the rows that no batch holds


@dataclass(frozen=True, slots=True)
class Finish:
    """Every row of the job has its final outcome."""

    job: Job


@dataclass(frozen=True, slots=True)
class Merge:
    """Write the job's output file."""

    job: Job


@dataclass(frozen=True, slots=True)
class Clean:
    """Delete a batch's files at the provider: its job is merged, and nothing reads them any more."""

    batch: Batch


Decision = Plan | Upload | Submit | Recover | Poll | Collect | Cancel | Finish | Merge | Clean


@dataclass(frozen=True, slots=True)
class Timing:
    """What the planner has to know of a profile: seconds."""

    settle_s: float  # after a send deadline, before anybody looks
    coalesce_s: float  # how long rows to be sent again wait for others while batches are still out


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything `decide` looks at."""

    jobs: Mapping[int, Job]
    batches: Sequence[Batch]
    accounts: Mapping[str, Account]
    timings: Mapping[str, Timing]
    live_owners: frozenset[str]  # owners whose process certainly still runs: they are left alone


def decide(state: Snapshot, now: float) -> list[Decision]:
    """All that can be done now, in an order that gets results in first and sends last."""
    decisions: list[Decision] = []
    polls: dict[str, list[Batch]] = {}
    held: dict[int, list[Batch]] = {}
    for batch in state.batches:
        held.setdefault(batch.job_id, []).append(batch)
        job = state.jobs.get(batch.job_id)
        decision = _for_batch(batch, job, state, now)
        if isinstance(decision, Poll):
            polls.setdefault(batch.profile, []).append(batch)
        elif decision is not None:
            decisions.append(decision)
    decisions += [Poll(profile, tuple(found)) for profile, found in polls.items()]
    for job in state.jobs.values():
        decisions += _for_job(job, held.get(job.id, []), state, now)
    return sorted(decisions, key=_order)


def _order(decision: Decision) -> int:
    kinds = (Recover, Cancel, Poll, Collect, Merge, Finish, Plan, Upload, Submit, Clean)
    return kinds.index(type(decision))


def _for_batch(batch: Batch, job: Job | None, state: Snapshot, now: float) -> Decision | None:
    if job is None or job.ready_at is None or (batch.not_before is not None and batch.not_before > now):
        return None
    canceling = job.cancel_requested_at is not None
    match batch.state:
        case BatchState.PLANNED | BatchState.READY:
            return Cancel(job, batch) if canceling else _unsent(batch, job, state, now)
        case BatchState.UPLOADING:
            return None if batch.owner in state.live_owners else Recover(batch)
        case BatchState.SUBMITTING | BatchState.IN_DOUBT:
            return _recovery(batch, state, now)
        case BatchState.SUBMITTED:
            if canceling and any(s.cancel_sent_at is None for s in batch.live):
                return Cancel(job, batch)
            return Poll(batch.profile, (batch,)) if (batch.next_poll_at or 0) <= now else None
        case BatchState.ENDED:
            return Collect(batch)
        case BatchState.COLLECTED | BatchState.REJECTED | BatchState.CANCELED | BatchState.GONE:
            if any(late.ended_at is not None for late in batch.live):
                return Collect(batch)
            looks = (batch.live and (batch.next_poll_at or 0) <= now) or _watched(batch, now)
            return Poll(batch.profile, (batch,)) if looks else None
        case _:
            assert_never(batch.state)


def _unsent(batch: Batch, job: Job, state: Snapshot, now: float) -> Decision | None:
    if _watched(batch, now):  # a try that was proved absent: one more look before the next one is sent
        return Poll(batch.profile, (batch,))
    if job.paused_at is not None or _paused(state, batch.account, now):
        return None
    return Upload(batch) if batch.state is BatchState.PLANNED else Submit(batch)


def _watched(batch: Batch, now: float) -> bool:
    """A try of the batch is watched for, and it is time to look."""
    return (batch.next_poll_at or 0) <= now and any(s.watched(now) for s in batch.submissions)


def _recovery(batch: Batch, state: Snapshot, now: float) -> Decision | None:
    """Nobody looks for a create before its send deadline plus the grace has passed."""
    open_try = batch.open_submission
    if open_try is None or (batch.owner in state.live_owners and batch.state is BatchState.SUBMITTING):
        return None
    settle = state.timings[batch.profile].settle_s
    return Recover(batch) if now >= open_try.send_deadline + settle else None


def _for_job(job: Job, held: Iterable[Batch], state: Snapshot, now: float) -> list[Decision]:
    if job.ready_at is None:
        return []
    if job.finished_at is not None:
        return [Merge(job)] if job.output_path is not None and job.merged_at is None else []
    if job.pending_rows > 0:
        if job.cancel_requested_at is not None:
            return [Cancel(job, None)]
        if job.paused_at is None and _replan(job, held, state, now):
            return [Plan(job)]
        return []
    return [Finish(job)] if job.open_rows == 0 else []


def _replan(job: Job, held: Iterable[Batch], state: Snapshot, now: float) -> bool:
    """Rows to be sent again wait a little for others, so that they do not go out as many tiny batches."""
    if job.replan_at is None:
        return True
    if now < job.replan_at:
        return False
    out = any(batch.state is not BatchState.PLANNED for batch in held if not _closed(batch))
    return not out or now >= job.replan_at + state.timings[job.profile].coalesce_s


def _closed(batch: Batch) -> bool:
    return batch.state in (BatchState.COLLECTED, BatchState.REJECTED, BatchState.CANCELED, BatchState.GONE)


def _paused(state: Snapshot, account: str, now: float) -> bool:
    return _is_paused(state.accounts.get(account), now)


def _is_paused(account: Account | None, now: float) -> bool:
    if account is None or account.paused_at is None:
        return False
    return account.not_before is None or account.not_before > now


def cleanups(spent: Iterable[Batch], accounts: Mapping[str, Account], now: float) -> list[Clean]:
    """Which of the batches that have served are cleaned up behind: decided last, once nothing else is to be done.

    Never one with a try that is under way, in doubt, or not taken in; nor one with a try that was proved absent while
    that is watched for: should it appear after all, its files are read once more.
    """
    return [
        Clean(batch)
        for batch in spent
        if _closed(batch)
        and batch.open_submission is None
        and not batch.live
        and not any(s.watched(now) for s in batch.submissions)
        and not _is_paused(accounts.get(batch.account), now)
    ]


def next_time(state: Snapshot, now: float) -> float | None:
    """When something will be due that is not due now; None where nothing is waited for."""
    times: list[float] = []
    for batch in state.batches:
        if batch.state in (BatchState.SUBMITTING, BatchState.IN_DOUBT) and batch.open_submission:
            settled = batch.open_submission.send_deadline + state.timings[batch.profile].settle_s
            times.append(max(settled, batch.not_before or 0))
            continue
        times += [t for t in (batch.not_before, batch.next_poll_at if batch.live else None) if t is not None]
    for job in state.jobs.values():
        coalesced = None if job.replan_at is None else job.replan_at + state.timings[job.profile].coalesce_s
        times += [t for t in (job.replan_at, coalesced) if t is not None]
    times += [a.not_before for a in state.accounts.values() if a.not_before is not None]
    later = [t for t in times if t > now]
    return min(later) if later else None
