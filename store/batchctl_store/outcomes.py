"""Results given to rows: staged in bulk, then handed over in the one transaction that closes their batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, select, text, update

from batchctl_store.batches import move, settle
from batchctl_store.database import Database, execute_many
from batchctl_store.jobs import JOB, add_event
from batchctl_store.records import Batch, BatchState, RowResult, Submission, SubmissionState
from batchctl_store.sources import follow, follow_anew
from batchctl_store.tallies import recount

RESULT_FIELDS = tuple(RowResult.__dataclass_fields__)
_UPSERT = (
    "INSERT INTO result (job_id, batch_id, {names}) VALUES (:job_id, :batch_id, {values}) "
    "ON CONFLICT (job_id, row, batch_id) DO UPDATE SET {sets} "
    "WHERE excluded.outcome = 'succeeded' AND result.outcome <> 'succeeded'"
).format(
    names=", ".join(RESULT_FIELDS),
    values=", ".join(f":{name}" for name in RESULT_FIELDS),
    sets=", ".join(f"{name} = excluded.{name}" for name in RESULT_FIELDS if name != "row"),
)
_STAGED = ("job_id", "batch_id", *RESULT_FIELDS)
_HELD = "job_id = :job AND row BETWEEN :first AND :last AND batch_id = :batch AND state = 'assigned'"


class Outcomes:
    """The results of batches."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def stage(self, batch: Batch, results: Iterable[RowResult]) -> None:
        """Write results down without giving them to their rows yet; may be repeated, the first success stays."""
        values = attrgetter(*RESULT_FIELDS)
        iterator = iter(results)
        while chunk := _up_to(iterator, rows=2_000, chars=4_000_000):
            chunk.sort(key=lambda result: result.row)  # in the order of the table, whatever order they came in
            with self._db.begin() as connection:
                compiled = text(_UPSERT).compile(dialect=connection.dialect)
                rows = ((batch.job_id, batch.id, *values(result)) for result in chunk)
                execute_many(connection, compiled, _STAGED, rows)

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

    def take_late(self, batch: Batch, submission: Submission, *, now: float) -> int:
        """failed(missing | gone) -> succeeded for rows of a closed batch that a late submission answered, once."""
        keys = {"job": batch.job_id, "first": batch.first_row, "last": batch.last_row, "batch": batch.id}
        with self._db.begin() as connection:
            count = connection.execute(
                text(
                    "UPDATE request SET state = 'succeeded', outcome = 'succeeded' WHERE job_id = :job "
                    "AND row BETWEEN :first AND :last AND batch_id = :batch AND state = 'failed' "
                    "AND outcome IN ('missing', 'gone') AND EXISTS "
                    "(SELECT 1 FROM result x WHERE x.job_id = request.job_id AND x.row = request.row "
                    "AND x.batch_id = :batch AND x.outcome = 'succeeded')"
                ),
                keys,
            ).rowcount
            recount(connection, batch.job_id, batch.id, batch.first_row, batch.last_row)
            settle(connection, submission.id, SubmissionState.DONE)
            add_event(
                connection,
                now,
                "late",
                f"{submission.tag} was found late: {count} rows without an answer have one now, the rest is waste",
                job_id=batch.job_id,
                batch_id=batch.id,
                count=count,
            )
            if count:
                follow_anew(connection, batch.job_id)
                connection.execute(update(JOB).where(JOB.c.id == batch.job_id).values(merged_at=None, written_at=None))
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
        follow(connection, batch.job_id, batch.first_row, batch.last_row)
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
        counts = text(f"SELECT coalesce(outcome, 'pending'), count(*) FROM request WHERE {_HELD} GROUP BY 1")
        by_outcome = {outcome: int(count) for outcome, count in connection.execute(counts, keys)}
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
        recount(connection, keys["job"], keys["batch"], keys["first"], keys["last"])
        return by_outcome


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
