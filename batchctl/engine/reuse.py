"""Rows whose request is that of another row, of their own job or of an earlier one: found by key, bucket by bucket.

Nothing here sends or stores an answer: rows are marked, and the store gives them what their source has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from batchctl.engine.context import Engine
from batchctl.engine.keys import KEYS, StoredKeys, key_of, row_of
from batchctl.engine.sorting import BUCKETS, Sorter
from batchctl.errors import UsageError
from batchctl_store.records import Job, Mark

MOST_JOBS = 50
"""Jobs that are looked at for answers, the latest first: each has those that it took itself, too."""
HINTED_JOBS = 5
"""The same, where nobody asked for it and it is only told."""
_HINTED_SHARE = 100  # one row of so many is worth a word
_UNKNOWN, _ANSWERED, _AWAITED = 0, 1, 2


@dataclass(slots=True)
class Earlier:
    """An earlier job and how its rows stand, which is only looked at where one of them asks the same."""

    engine: Engine
    job: Job
    keys: StoredKeys
    same: int = 0  # rows of the new job that it has an answer for
    awaited: int = 0  # rows of the new job that it may still get an answer for
    _rows: bytearray | None = field(default=None, repr=False)

    def state(self, row: int) -> int:
        """One of `_UNKNOWN`, `_ANSWERED`, `_AWAITED`."""
        if self.job.ready_at is None:  # being taken in by another process
            return _AWAITED
        if self._rows is None:
            self._rows = bytearray(self.job.rows)
            for found, answered in self.engine.store.sources.usable(self.job.id):
                self._rows[found] = _ANSWERED if answered else _AWAITED
        return self._rows[row]


def share(engine: Engine, job: Job, *, dedupe: bool, reuse: bool) -> None:
    """Mark the rows of a new job that are not sent, before it is planned, and say so.

    Raises UsageError where answers are to be reused that an open job still waits for.
    """
    marks = Sorter(24, engine.home)
    with ExitStack() as stack:
        own = _keys(engine, job, stack)
        if own is None:
            return
        earlier = _earlier(engine, job, own, stack, MOST_JOBS if reuse else HINTED_JOBS)
        for number in range(BUCKETS) if dedupe or earlier else ():
            for row, source, source_row in _bucket(job.id, own, earlier, number, dedupe=dedupe, reuse=reuse):
                record = b"".join(part.to_bytes(8, "big") for part in (row, source, source_row))
                marks.add(row * BUCKETS // job.rows, record)
    if reuse:
        _refuse_awaited(earlier)
    counts = engine.store.sources.give(job.id, _marks(marks), now=engine.clock.now())
    for text in _told(job, counts, earlier, engine.store.jobs.all(), reuse=reuse):
        engine.note(text)


def _keys(engine: Engine, job: Job, stack: ExitStack) -> StoredKeys | None:
    name = f"{job.spool}/{KEYS}"
    return StoredKeys(stack.enter_context(engine.spool.reader(name))) if engine.spool.exists(name) else None


def _earlier(engine: Engine, job: Job, own: StoredKeys, stack: ExitStack, most: int) -> list[Earlier]:
    """Jobs that may have the same requests, the latest first. Of two that are taken in at once, one is the earlier."""
    found: list[Earlier] = []
    for other in reversed(engine.store.jobs.all()):
        if other.id >= job.id:
            continue
        with ExitStack() as opened:
            keys = _keys(engine, other, opened)
            if keys is not None and keys.context == own.context:
                found.append(Earlier(engine, other, keys))
                stack.push(opened.pop_all())
        if len(found) == most:
            break
    return found


def _bucket(
    job_id: int, own: StoredKeys, earlier: Sequence[Earlier], number: int, *, dedupe: bool, reuse: bool
) -> Iterator[tuple[int, int, int]]:
    """(row, job, row there) of the rows of one bucket that are not sent."""
    records = own.bucket(number)
    keys = set(map(key_of, records))
    same = [[record for record in one.keys.bucket(number) if record[:16] in keys] for one in earlier]
    if len(keys) == len(records) and not any(same):
        return
    asked = _rows_by_key(records)
    left, unknown, awaited = dict(asked), keys, dict[bytes, Earlier]()
    for one, found in zip(earlier, same, strict=True):
        answers, waiting = _answers(one, [record for record in found if record[:16] in unknown])
        for key in waiting:
            awaited.setdefault(key, one)
        for key, sources in answers.items():
            rows = asked[key]
            # each answer is given to one row, where each row is to have an answer of its own
            pairs = [(row, sources[0]) for row in rows] if dedupe else list(zip(rows, sources, strict=False))
            left[key] = rows[len(pairs) :]
            one.same += len(pairs)
            if reuse:
                yield from ((row, one.job.id, source) for row, source in pairs)
        unknown -= answers.keys()
    for key, one in awaited.items():
        one.awaited += len(left[key])
    for rows in (left if reuse else asked).values() if dedupe else ():
        yield from ((row, job_id, rows[0]) for row in rows[1:])


def _rows_by_key(records: Iterable[bytes]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for record in records:
        found.setdefault(key_of(record), []).append(row_of(record))
    return found


def _answers(one: Earlier, records: Sequence[bytes]) -> tuple[dict[bytes, list[int]], set[bytes]]:
    """Rows of the earlier job with an answer, by key; and the keys that it may only get one for."""
    answered = _rows_by_key(record for record in records if one.state(row_of(record)) == _ANSWERED)
    awaited = {key_of(record) for record in records if one.state(row_of(record)) == _AWAITED}
    return answered, awaited - answered.keys()


def _marks(marks: Sorter) -> Iterator[Mark]:
    for records in marks.buckets():
        for record in records:
            yield Mark(*(int.from_bytes(record[start : start + 8], "big") for start in (0, 8, 16)))


def _refuse_awaited(earlier: Sequence[Earlier]) -> None:
    waiting = max(earlier, key=lambda one: one.awaited, default=None)
    if waiting is None or not waiting.awaited:
        return
    name = waiting.job.name
    what = f"job {name} asks {_rows(waiting.awaited)} of these as well and has no answer yet: both would be paid for"
    raise UsageError(what, hint=f"wait for it with `batchctl wait {name}`, or submit without --reuse to ask again")


def _told(
    job: Job, counts: dict[int, int], earlier: Sequence[Earlier], others: Sequence[Job], *, reuse: bool
) -> Iterator[str]:
    if repeated := counts.get(job.id, 0):
        yield f"the same as an earlier row asks: {_rows(repeated)}, sent once (--no-dedupe sends each by itself)"
    if reuse:
        for one in earlier:
            if count := counts.get(one.job.id, 0):
                yield f"answered by the same request in job {one.job.name}: {_rows(count)}, not sent again"
        if not counts.keys() - {job.id}:
            yield _why_nothing(job, others)
        return
    best = max(earlier, key=lambda one: one.same, default=None)
    if best is not None and best.same * _HINTED_SHARE >= job.rows:
        yield f"job {best.job.name} has answers to {_rows(best.same)} of these: --reuse takes them"
    waiting = max(earlier, key=lambda one: one.awaited, default=None)
    if waiting is not None and waiting.awaited * _HINTED_SHARE >= job.rows:
        yield f"job {waiting.job.name}, which is not over, asks {_rows(waiting.awaited)} of these as well"


def _why_nothing(job: Job, others: Sequence[Job]) -> str:
    """What differs from the latest job of the same input (CASES.md 34)."""
    before = next((one for one in reversed(others) if one.input_name == job.input_name and one.id < job.id), None)
    if before is None:
        return "no earlier job has an answer to one of these requests"
    now, then = json.loads(job.task), json.loads(before.task)
    changed = [key for key in now if now[key] != then.get(key) and key not in ("name", "expected")]
    changed += ["provider"] if job.profile != before.profile else []
    what = f"other {', '.join(changed)}" if changed else "none of its rows with an answer asks the same"
    return f"nothing of job {before.name} is reused: {what}"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
