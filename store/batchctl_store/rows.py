"""Rows in bulk: stored, assigned to batches, canceled, sent again, and read back in input order.

Every change is a statement over a range of rows, never one object or one commit a row.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from typing import Any

from sqlalchemy import Connection, insert, select, text, update

from batchctl_store import models
from batchctl_store.batches import Batches, move
from batchctl_store.database import Database, insert_many
from batchctl_store.jobs import JOB, add_event
from batchctl_store.outcomes import RESULT_FIELDS
from batchctl_store.records import (
    Batch,
    BatchState,
    IllegalMove,
    Job,
    RequestState,
    RowResult,
    Shard,
)
from batchctl_store.sources import follow, follow_anew
from batchctl_store.tallies import ANSWERED_BY, add_to_tally

REQUEST = models.metadata.tables["request"]
RESULT = models.metadata.tables["result"]

CHUNK = 5_000
FINAL = "('succeeded', 'failed', 'canceled')"
_NEW_ROW = ("job_id", "row", "state", "size", "attempts", "group_key")


class Rows:
    """The rows of jobs."""

    def __init__(self, database: Database, batches: Batches) -> None:
        self._db = database
        self._batches = batches

    def add(self, job_id: int, sizes: Iterable[tuple[int, int]], groups: Iterable[str | None] = ()) -> None:
        """Store rows as pending: (row, measured bytes of its line), in commits of some thousands.

        `groups` has each row's group; a batch never mixes them. Without it all rows are of one.
        """
        state, iterator = RequestState.PENDING.value, zip_longest(sizes, groups)
        while chunk := list(islice(iterator, CHUNK)):
            with self._db.begin() as connection:
                values = ((job_id, row, state, size, 0, group) for (row, size), group in chunk)
                insert_many(connection, REQUEST, _NEW_ROW, values)

    def pending(self, job_id: int) -> Iterator[tuple[int, int, str | None]]:
        """(row, size, group) of every pending row, in input order."""
        query = (
            select(REQUEST.c.row, REQUEST.c.size, REQUEST.c.group_key)
            .where(REQUEST.c.job_id == job_id, REQUEST.c.state == RequestState.PENDING)
            .order_by(REQUEST.c.row)
        )
        with self._db.read() as connection:
            yield from connection.execute(query.execution_options(yield_per=5_000))

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
            add_to_tally(connection, job.id, 0, "errored", code, len(rows), message)
            follow(connection, job.id, min(rows), max(rows))
            add_event(
                connection, now, "rows", f"{len(rows)} rows cannot be sent: {message}", job_id=job.id, count=len(rows)
            )

    def assign(self, job: Job, shards: Sequence[Shard], *, now: float) -> list[int]:
        """Make batches of pending rows, in the order of the shards.

        The pending rows of a shard's group between first and last are exactly its own. Raises IllegalMove where they
        are not.
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
                        "first_row": shard.first,
                        "last_row": shard.last,
                        "requests": shard.requests,
                        "bytes": shard.bytes,
                        "created_at": now,
                        "updated_at": now,
                    }
                    for index, shard in enumerate(shards)
                ],
            )
            for batch_id, (first, last, count, _, group) in zip(ids, shards, strict=True):
                changed = connection.execute(
                    update(REQUEST)
                    .where(
                        REQUEST.c.job_id == job.id,
                        REQUEST.c.row.between(first, last),
                        REQUEST.c.state == RequestState.PENDING,
                        REQUEST.c.group_key.is_not_distinct_from(group),
                    )
                    .values(state=RequestState.ASSIGNED, batch_id=batch_id)
                ).rowcount
                if changed != count:
                    raise IllegalMove(f"job {job.name}: {changed} of {count} rows {first}-{last} could be assigned")
            total = sum(shard.requests for shard in shards)
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

    def unanswered(self, batch: Batch) -> list[int]:
        """The rows whose last word is that this batch never answered them: missing or gone."""
        query = (
            select(REQUEST.c.row)
            .where(
                REQUEST.c.job_id == batch.job_id,
                REQUEST.c.row.between(batch.first_row, batch.last_row),
                REQUEST.c.batch_id == batch.id,
                REQUEST.c.state == RequestState.FAILED,
                REQUEST.c.outcome.in_(("missing", "gone")),
            )
            .order_by(REQUEST.c.row)
        )
        with self._db.read() as connection:
            return list(connection.execute(query).scalars())

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
            follow(connection, batch.job_id, batch.first_row, batch.last_row)

    def cancel_pending(self, job: Job, *, now: float) -> None:
        """pending -> canceled for rows that no batch holds."""
        with self._db.begin() as connection:
            count = self._cancel_rows(connection, job.id, 0, "state = 'pending'")
            if count:
                follow(connection, job.id)
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
        add_to_tally(connection, job_id, batch_id, "canceled", "", count, None)
        return count

    def retry(self, job: Job, outcomes: Collection[str], *, now: float) -> int:
        """failed | canceled -> pending for rows with these outcomes; the job is open again. Returns how many.

        Rows that follow one of them follow it again, and count. Rows that no batch can hold stay as they are.
        """
        names = ", ".join(f"'{outcome}'" for outcome in sorted(outcomes))
        chosen = f"job_id = :job AND outcome IN ({names}) AND (batch_id <> 0 OR outcome = 'canceled')"
        with self._db.begin() as connection:
            count = connection.execute(
                text(
                    "UPDATE request SET state = 'pending', outcome = NULL, batch_id = NULL "
                    f"WHERE {chosen} AND source_row IS NULL AND state IN ('failed', 'canceled')"
                ),
                {"job": job.id},
            ).rowcount
            if count:
                connection.execute(text(f"DELETE FROM tally WHERE {chosen}"), {"job": job.id})
                count += follow_anew(connection, job.id)
                connection.execute(
                    update(JOB)
                    .where(JOB.c.id == job.id)
                    .values(
                        finished_at=None,
                        merged_at=None,
                        merge_error=None,
                        written_at=None,
                        cancel_requested_at=None,
                        replan_at=now,
                    )
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

    def merged(self, job_id: int) -> Generator[tuple[Any, ...], None, None]:
        """Every row in input order: row, state, outcome, attempts, batch ordinal, then the other result fields."""
        yield from self._merged("r.job_id = :job", {"job": job_id})

    def final_of(self, batch: Batch) -> Generator[tuple[Any, ...], None, None]:
        """The same of the rows that a batch had the last word on, then of those that follow one of them."""
        where = f"r.job_id = :job AND r.row BETWEEN :first AND :last AND r.batch_id = :batch AND r.state IN {FINAL}"
        keys = {"job": batch.job_id, "first": batch.first_row, "last": batch.last_row, "batch": batch.id}
        yield from self._merged(where, keys)
        yield from self._merged(
            "r.source_job = :job AND r.source_row >= :first AND r.source_row <= :last AND r.job_id = :job "
            f"AND l.batch_id = :batch AND r.state IN {FINAL}",
            keys,
        )

    def one(self, job_id: int, row: int) -> tuple[Any, ...] | None:
        """The same of one row; None where the job has no such row."""
        found = list(self._merged("r.job_id = :job AND r.row = :row", {"job": job_id, "row": row}))
        return found[0] if found else None

    def _merged(self, where: str, keys: dict[str, int]) -> Generator[tuple[Any, ...], None, None]:
        fields = ", ".join(_spent(name) for name in RESULT_FIELDS if name not in ("row", "outcome"))
        query = text(
            f"SELECT r.row, r.state, r.outcome, r.attempts, b.ordinal, {fields} FROM request r {ANSWERED_BY} "
            f"LEFT JOIN batch b ON b.id = r.batch_id WHERE {where} ORDER BY r.row"
        ).execution_options(yield_per=2_000)
        with self._db.read() as connection:
            yield from connection.execute(query, keys)

    def tries(self, job_id: int, row: int) -> list[tuple[int | None, RowResult]]:
        """What each batch that had the row said of it, oldest first: (batch id, None for never sent; result)."""
        query = select(RESULT).where(RESULT.c.job_id == job_id, RESULT.c.row == row).order_by(RESULT.c.batch_id)
        with self._db.read() as connection:
            found = connection.execute(query).mappings().all()
        return [(one["batch_id"] or None, RowResult(**{name: one[name] for name in RESULT_FIELDS})) for one in found]

    def batch_of(self, job_id: int, row: int) -> int | None:
        """The id of the batch that holds the row now."""
        query = select(REQUEST.c.batch_id).where(
            REQUEST.c.job_id == job_id, REQUEST.c.row == row, REQUEST.c.state == RequestState.ASSIGNED
        )
        with self._db.read() as connection:
            return connection.execute(query).scalar()

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


def _spent(name: str) -> str:
    """A field of the result, where a row that follows another one has spent nothing."""
    return f"CASE WHEN l.row IS NULL OR x.row IS NULL THEN x.{name} ELSE 0 END" if "tokens" in name else f"x.{name}"
