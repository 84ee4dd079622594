"""Rows in bulk: stored, assigned to batches, given their results, released, and read back in input order.

Every change is a statement over a range of rows, never one object or one commit a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import Connection, insert, select, text, update

from batchctl_store import models
from batchctl_store.batches import Batches, move, settle
from batchctl_store.database import Database
from batchctl_store.jobs import JOB, add_event
from batchctl_store.records import (
    Batch,
    BatchState,
    IllegalMove,
    Job,
    RequestState,
    RowResult,
    Submission,
    SubmissionState,
)

REQUEST = models.metadata.tables["request"]
RESULT = models.metadata.tables["result"]
TALLY = models.metadata.tables["tally"]

CHUNK = 5_000
_RESULT_FIELDS = tuple(RowResult.__dataclass_fields__)
_UPSERT = (
    "INSERT INTO result (job_id, batch_id, {names}) VALUES (:job_id, :batch_id, {values}) "
    "ON CONFLICT (job_id, row, batch_id) DO UPDATE SET {sets} "
    "WHERE excluded.outcome = 'succeeded' AND result.outcome <> 'succeeded'"
).format(
    names=", ".join(_RESULT_FIELDS),
    values=", ".join(f":{name}" for name in _RESULT_FIELDS),
    sets=", ".join(f"{name} = excluded.{name}" for name in _RESULT_FIELDS if name != "row"),
)
_HELD = "job_id = :job AND row BETWEEN :first AND :last AND batch_id = :batch AND state = 'assigned'"


class Rows:
    """The rows of jobs."""

    def __init__(self, database: Database, batches: Batches) -> None:
        self._db = database
        self._batches = batches

    def add(self, job_id: int, sizes: Iterable[tuple[int, int]]) -> None:
        """Store rows as pending: (row, measured bytes of its line), in commits of some thousands."""
        statement = insert(REQUEST)
        iterator = iter(sizes)
        while chunk := list(islice(iterator, CHUNK)):
            with self._db.begin() as connection:
                connection.execute(
                    statement,
                    [
                        {"job_id": job_id, "row": row, "state": RequestState.PENDING.value, "size": size, "attempts": 0}
                        for row, size in chunk
                    ],
                )

    def pending(self, job_id: int) -> Iterator[tuple[int, int]]:
        """(row, size) of every pending row, in input order."""
        query = (
            select(REQUEST.c.row, REQUEST.c.size)
            .where(REQUEST.c.job_id == job_id, REQUEST.c.state == RequestState.PENDING)
            .order_by(REQUEST.c.row)
        )
        with self._db.read() as connection:
            for found in connection.execute(query.execution_options(yield_per=10_000)):
                yield found.row, found.size

    def fail_unsent(self, job: Job, rows: Sequence[int], *, now: float, code: str, message: str) -> None:
        """pending -> failed for rows that cannot be sent at all (too large alone)."""
        if not rows:
            return
        with self._db.begin() as connection:
            connection.execute(
                update(REQUEST)
                .where(REQUEST.c.job_id == job.id, REQUEST.c.row.in_(rows), REQUEST.c.state == RequestState.PENDING)
                .values(state=RequestState.FAILED, outcome="errored", batch_id=0)
            )
            connection.execute(
                insert(RESULT),
                [
                    {
                        "job_id": job.id,
                        "row": r,
                        "batch_id": 0,
                        "outcome": "errored",
                        "error_code": code,
                        "error": message,
                    }
                    for r in rows
                ],
            )
            self._count(connection, job.id, 0, "errored", code, len(rows), message)
            add_event(
                connection, now, "rows", f"{len(rows)} rows cannot be sent: {message}", job_id=job.id, count=len(rows)
            )

    def assign(self, job: Job, shards: Sequence[tuple[int, int, int, int]], *, now: float) -> list[int]:
        """Make batches of pending rows: each shard is (first row, last row, requests, bytes), in input order.

        The pending rows between first and last are exactly the shard's. Raises IllegalMove where they are not.
        """
        with self._db.begin() as connection:
            ordinal = self._batches.next_ordinal(connection, job.id)
            ids = self._batches.add(
                connection,
                [
                    {
                        "job_id": job.id,
                        "ordinal": ordinal + index,
                        "profile": job.profile,
                        "account": job.account,
                        "first_row": first,
                        "last_row": last,
                        "requests": count,
                        "bytes": size,
                        "created_at": now,
                        "updated_at": now,
                    }
                    for index, (first, last, count, size) in enumerate(shards)
                ],
            )
            for batch_id, (first, last, count, _) in zip(ids, shards, strict=True):
                changed = connection.execute(
                    update(REQUEST)
                    .where(
                        REQUEST.c.job_id == job.id,
                        REQUEST.c.row.between(first, last),
                        REQUEST.c.state == RequestState.PENDING,
                    )
                    .values(state=RequestState.ASSIGNED, batch_id=batch_id)
                ).rowcount
                if changed != count:
                    raise IllegalMove(f"job {job.name}: {changed} of {count} rows {first}-{last} could be assigned")
            total = sum(shard[2] for shard in shards)
            add_event(
                connection, now, "plan", f"{total} rows planned into {len(ids)} batches", job_id=job.id, count=total
            )
            connection.execute(update(JOB).where(JOB.c.id == job.id).values(replan_at=None))
        return ids

    def of_batch(self, batch: Batch) -> list[int]:
        """The rows a batch holds (while it is open), in input order."""
        query = (
            select(REQUEST.c.row)
            .where(
                REQUEST.c.job_id == batch.job_id,
                REQUEST.c.row.between(batch.first_row, batch.last_row),
                REQUEST.c.batch_id == batch.id,
            )
            .order_by(REQUEST.c.row)
        )
        with self._db.read() as connection:
            return list(connection.execute(query).scalars())

    def stage(self, batch: Batch, results: Iterable[RowResult]) -> None:
        """Write results down without giving them to their rows yet; may be repeated, the first success stays."""
        statement = text(_UPSERT)
        iterator = iter(results)
        while chunk := _up_to(iterator, rows=2_000, chars=4_000_000):
            chunk.sort(key=lambda result: result.row)  # in the order of the table, whatever order they came in
            with self._db.begin() as connection:
                connection.execute(
                    statement,
                    [
                        {"job_id": batch.job_id, "batch_id": batch.id}
                        | {name: getattr(result, name) for name in _RESULT_FIELDS}
                        for result in chunk
                    ],
                )

    def collect(
        self,
        batch: Batch,
        *,
        now: float,
        resent: Collection[str],
        absent: tuple[str, str],
        replan_at: float,
        text_: str,
    ) -> dict[str, int]:
        """ended -> collected: every row of the batch gets what was staged for it, in one transaction.

        `absent` is (outcome, message) of rows that stand in no file. Rows whose outcome is in `resent` go back to
        pending while the job's attempts last, or are canceled where the user wished so. Returns rows by outcome.
        """
        with self._db.begin() as connection:
            return self._close(
                connection,
                batch,
                BatchState.COLLECTED,
                sources={BatchState.ENDED},
                now=now,
                resent=resent,
                absent=absent,
                replan_at=replan_at,
                text_=text_,
            )

    def fail_batch(
        self,
        batch: Batch,
        *,
        to: BatchState,
        now: float,
        outcome: str,
        code: str,
        message: str,
        only: Sequence[int] | None,
    ) -> dict[str, int]:
        """Close a batch that answered nothing: its rows fail with `message`.

        With `only`, just these rows fail and the others go back to pending without using up an attempt.
        """
        with self._db.begin() as connection:
            named = None if only is None else sorted(only)
            condition = "" if named is None else f" AND row IN ({', '.join(str(int(row)) for row in named)})"
            keys = {"job": batch.job_id, "first": batch.first_row, "last": batch.last_row, "batch": batch.id}
            connection.execute(
                text(
                    "INSERT INTO result (job_id, row, batch_id, outcome, error_code, error) "
                    f"SELECT job_id, row, :batch, :outcome, :code, :message FROM request WHERE {_HELD}{condition} "
                    "ON CONFLICT (job_id, row, batch_id) DO NOTHING"
                ),
                keys | {"outcome": outcome, "code": code, "message": message},
            )
            return self._close(
                connection,
                batch,
                to,
                sources={batch.state},
                now=now,
                resent=(),
                absent=None,
                replan_at=now,
                text_=message,
                submission_to=SubmissionState.REFUSED if to is BatchState.REJECTED else SubmissionState.DONE,
                used=0 if to is BatchState.REJECTED else 1,
            )

    def cancel_unsent(self, batch: Batch, *, now: float) -> None:
        """planned | ready -> canceled with all its rows, because the user wished it."""
        with self._db.begin() as connection:
            move(
                connection,
                batch.id,
                BatchState.CANCELED,
                sources={BatchState.PLANNED, BatchState.READY},
                now=now,
                text="canceled before it was sent",
                count=batch.requests,
            )
            self._cancel_rows(connection, batch.job_id, batch.id, "state = 'assigned' AND batch_id = :batch")

    def cancel_pending(self, job: Job, *, now: float) -> None:
        """pending -> canceled for rows that no batch holds."""
        with self._db.begin() as connection:
            count = self._cancel_rows(connection, job.id, 0, "state = 'pending'")
            if count:
                add_event(
                    connection, now, "rows", f"{count} rows canceled before they were sent", job_id=job.id, count=count
                )

    def _cancel_rows(self, connection: Connection, job_id: int, batch_id: int, where: str) -> int:
        count = connection.execute(
            text(
                "UPDATE request SET state = 'canceled', outcome = 'canceled', batch_id = :batch "
                f"WHERE job_id = :job AND {where}"
            ),
            {"job": job_id, "batch": batch_id},
        ).rowcount
        self._count(connection, job_id, batch_id, "canceled", "", count, None)
        return count

    def _close(
        self,
        connection: Connection,
        batch: Batch,
        target: BatchState,
        *,
        sources: Collection[BatchState],
        now: float,
        resent: Collection[str],
        absent: tuple[str, str] | None,
        replan_at: float,
        text_: str,
        submission_to: SubmissionState = SubmissionState.DONE,
        used: int = 1,
    ) -> dict[str, int]:
        keys: dict[str, Any] = {
            "job": batch.job_id,
            "first": batch.first_row,
            "last": batch.last_row,
            "batch": batch.id,
        }
        move(connection, batch.id, target, sources=sources, now=now, text=text_, count=batch.requests)
        for submission in batch.submissions:
            if submission.state not in (SubmissionState.REFUSED, SubmissionState.ABSENT, SubmissionState.ABANDONED):
                settle(connection, submission.id, submission_to)
        if absent is not None:
            connection.execute(
                text(
                    "INSERT INTO result (job_id, row, batch_id, outcome, error) "
                    f"SELECT r.job_id, r.row, :batch, :outcome, :message FROM request r WHERE {_HELD} AND NOT EXISTS "
                    "(SELECT 1 FROM result x WHERE x.job_id = r.job_id AND x.row = r.row AND x.batch_id = :batch)"
                ),
                keys | {"outcome": absent[0], "message": absent[1]},
            )
        outcomes = self._give_results(connection, keys, resent, used=used)
        pending = connection.execute(
            text(
                "SELECT count(*) FROM request WHERE job_id = :job AND row BETWEEN :first AND :last "
                "AND state = 'pending'"
            ),
            keys,
        ).scalar()
        if pending:
            connection.execute(
                update(JOB).where(JOB.c.id == batch.job_id, JOB.c.replan_at.is_(None)).values(replan_at=replan_at)
            )
        return outcomes

    def _give_results(
        self, connection: Connection, keys: dict[str, Any], resent: Collection[str], *, used: int
    ) -> dict[str, int]:
        """The set-based heart of a collection: outcome, next state, attempts and tallies of all rows of a batch."""
        word = (
            "(SELECT outcome FROM result x "
            "WHERE x.job_id = request.job_id AND x.row = request.row AND x.batch_id = :batch)"
        )
        connection.execute(
            text(f"UPDATE request SET outcome = {word}, attempts = attempts + :used WHERE {_HELD}"),
            keys | {"used": used},
        )
        again = ", ".join(f"'{outcome}'" for outcome in resent) or "''"
        job = connection.execute(
            select(JOB.c.max_attempts, JOB.c.cancel_requested_at).where(JOB.c.id == keys["job"])
        ).one()
        by_outcome: dict[str, int] = {}
        for outcome, count in connection.execute(
            text(f"SELECT coalesce(outcome, 'pending'), count(*) FROM request WHERE {_HELD} GROUP BY 1"), keys
        ):
            by_outcome[outcome] = count
        released = f"outcome IS NULL OR (outcome IN ({again}) AND attempts < :cap)"
        if job.cancel_requested_at is not None:
            connection.execute(
                text(f"UPDATE request SET state = 'canceled', outcome = 'canceled' WHERE {_HELD} AND ({released})"),
                keys | {"cap": job.max_attempts},
            )
        else:
            connection.execute(
                text(
                    "UPDATE request SET state = 'pending', outcome = NULL, batch_id = NULL "
                    f"WHERE {_HELD} AND ({released})"
                ),
                keys | {"cap": job.max_attempts},
            )
        connection.execute(
            text(f"UPDATE request SET state = 'succeeded' WHERE {_HELD} AND outcome = 'succeeded'"), keys
        )
        connection.execute(text(f"UPDATE request SET state = 'failed' WHERE {_HELD}"), keys)
        self._recount(connection, keys["job"], keys["batch"], keys["first"], keys["last"])
        return by_outcome

    def _recount(self, connection: Connection, job_id: int, batch_id: int, first: int, last: int) -> None:
        """Tallies of a batch from its rows: called where a batch is closed, so it reads that batch only."""
        keys = {"job": job_id, "batch": batch_id, "first": first, "last": last}
        connection.execute(text("DELETE FROM tally WHERE job_id = :job AND batch_id = :batch"), keys)
        connection.execute(
            text(
                "INSERT INTO tally (job_id, batch_id, outcome, code, count, sample) "
                "SELECT r.job_id, r.batch_id, r.outcome, coalesce(x.error_code, ''), count(*), "
                "min(CASE WHEN r.outcome = 'succeeded' THEN NULL ELSE x.error END) FROM request r "
                "LEFT JOIN result x ON x.job_id = r.job_id AND x.row = r.row AND x.batch_id = r.batch_id "
                "WHERE r.job_id = :job AND r.row BETWEEN :first AND :last AND r.batch_id = :batch "
                "AND r.state IN ('succeeded', 'failed', 'canceled') "
                "GROUP BY r.job_id, r.batch_id, r.outcome, coalesce(x.error_code, '')"
            ),
            keys,
        )

    def _count(
        self,
        connection: Connection,
        job_id: int,
        batch_id: int,
        outcome: str,
        code: str,
        count: int,
        sample: str | None,
    ) -> None:
        if not count:
            return
        keys = {"job_id": job_id, "batch_id": batch_id, "outcome": outcome, "code": code}
        same = [TALLY.c[name] == value for name, value in keys.items()]
        if not connection.execute(update(TALLY).where(*same).values(count=TALLY.c.count + count)).rowcount:
            connection.execute(insert(TALLY).values(count=count, sample=sample, **keys))

    def take_late(self, batch: Batch, submission: Submission, *, now: float) -> int:
        """failed(missing | gone) -> succeeded for rows of a closed batch that a late submission answered, once."""
        keys = {"job": batch.job_id, "first": batch.first_row, "last": batch.last_row, "batch": batch.id}
        with self._db.begin() as connection:
            count = connection.execute(
                text(
                    "UPDATE request SET state = 'succeeded', outcome = 'succeeded' WHERE job_id = :job "
                    "AND row BETWEEN :first AND :last AND batch_id = :batch AND state = 'failed' "
                    "AND outcome IN ('missing', 'gone') AND EXISTS "
                    "(SELECT 1 FROM result x WHERE x.job_id = request.job_id AND x.row = request.row AND x.batch_id = :batch AND x.outcome = 'succeeded')"
                ),
                keys,
            ).rowcount
            self._recount(connection, batch.job_id, batch.id, batch.first_row, batch.last_row)
            settle(connection, submission.id, SubmissionState.DONE)
            add_event(
                connection,
                now,
                "late",
                f"{submission.tag} was found late: {count} rows without an answer have one now; the rest was paid twice",
                job_id=batch.job_id,
                batch_id=batch.id,
                count=count,
            )
            if count:
                connection.execute(update(JOB).where(JOB.c.id == batch.job_id).values(merged_at=None))
        return count

    def retry(self, job: Job, outcomes: Collection[str], *, now: float) -> int:
        """failed -> pending for rows with these outcomes; the job is open again. Returns how many."""
        names = ", ".join(f"'{outcome}'" for outcome in sorted(outcomes))
        with self._db.begin() as connection:
            count = connection.execute(
                text(
                    "UPDATE request SET state = 'pending', outcome = NULL, batch_id = NULL "
                    f"WHERE job_id = :job AND state = 'failed' AND outcome IN ({names}) AND batch_id <> 0"
                ),
                {"job": job.id},
            ).rowcount
            if count:
                connection.execute(
                    text(f"DELETE FROM tally WHERE job_id = :job AND batch_id <> 0 AND outcome IN ({names})"),
                    {"job": job.id},
                )
                connection.execute(
                    update(JOB)
                    .where(JOB.c.id == job.id)
                    .values(finished_at=None, merged_at=None, merge_error=None, cancel_requested_at=None, replan_at=now)
                )
                add_event(
                    connection,
                    now,
                    "rows",
                    f"{count} rows to be sent again ({', '.join(sorted(outcomes))})",
                    job_id=job.id,
                    count=count,
                )
        return count

    def merged(self, job_id: int) -> Iterator[tuple[Any, ...]]:
        """Every row in input order: row, state, outcome, attempts, batch ordinal, then the other result fields."""
        fields = ", ".join(f"x.{name}" for name in _RESULT_FIELDS if name not in ("row", "outcome"))
        query = text(
            f"SELECT r.row, r.state, r.outcome, r.attempts, b.ordinal, {fields} FROM request r "
            "LEFT JOIN result x ON x.job_id = r.job_id AND x.row = r.row AND x.batch_id = r.batch_id "
            "LEFT JOIN batch b ON b.id = r.batch_id WHERE r.job_id = :job ORDER BY r.row"
        ).execution_options(yield_per=2_000)
        with self._db.read() as connection:
            yield from connection.execute(query, {"job": job_id})

    def tally(self, job_id: int) -> dict[str, int]:
        """Rows by final outcome; rows that have none yet are not in it."""
        query = text("SELECT outcome, sum(count) FROM tally WHERE job_id = :job GROUP BY outcome ORDER BY outcome")
        with self._db.read() as connection:
            return {outcome: int(count) for outcome, count in connection.execute(query, {"job": job_id})}

    def counted(self, job_id: int) -> dict[str, int]:
        """The same from the rows themselves: what the tallies are checked against."""
        query = text("SELECT coalesce(outcome, state), count(*) FROM request WHERE job_id = :job GROUP BY 1 ORDER BY 1")
        with self._db.read() as connection:
            return {outcome: int(count) for outcome, count in connection.execute(query, {"job": job_id})}


def _up_to(iterator: Iterator[RowResult], *, rows: int, chars: int) -> list[RowResult]:
    """The next results, at most so many and so much text, so that long answers do not pile up in memory."""
    chunk: list[RowResult] = []
    held = 0
    for result in iterator:
        chunk.append(result)
        held += len(result.answer or "")
        if len(chunk) >= rows or held >= chars:
            break
    return chunk
