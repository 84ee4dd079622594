"""Rows that are not sent because another row's request is the same: they take that row's answer.

A row that follows one of its own job (the leader) waits in the state `following` and gets the leader's outcome in the
transaction that gives it to the leader; it has no result of its own. A row that takes the answer of an earlier job gets
a copy of that result at once, so that the earlier job may be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from sqlalchemy import Connection, text

from batchctl_store.database import Database, execute_many
from batchctl_store.jobs import add_event
from batchctl_store.records import Mark, StoreError
from batchctl_store.tallies import add_to_tally, recount

CHUNK = 5_000
_LAST_ROW = 2**62
_FINAL = "l.state IN ('succeeded', 'failed', 'canceled')"

_FOLLOW = text(
    "UPDATE request SET state = 'following', source_job = :job, source_row = :source_row "
    "WHERE job_id = :job AND row = :row AND state = 'pending'"
)
_COPY = text(
    "INSERT INTO result (job_id, row, batch_id, outcome, answer, finish_reason, input_tokens, output_tokens, "
    "cached_tokens, model, error_code, error) "
    "SELECT :job, :row, 0, x.outcome, x.answer, x.finish_reason, 0, 0, 0, x.model, x.error_code, x.error "
    "FROM request s JOIN result x ON x.job_id = s.job_id AND x.row = s.row AND x.batch_id = s.batch_id "
    "WHERE s.job_id = :source_job AND s.row = :source_row AND s.state = 'succeeded'"
)
_TAKE = text(
    "UPDATE request SET state = 'succeeded', outcome = 'succeeded', batch_id = 0, source_job = :source_job, "
    "source_row = :source_row WHERE job_id = :job AND row = :row AND state = 'pending'"
)


class Sources:
    """Where rows have their answers from."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def give(self, job_id: int, marks: Iterable[Mark], *, now: float) -> dict[int, int]:
        """pending -> following, or succeeded where the source is a row of another job. Returns rows by source job.

        Ascending rows are stored fastest. Raises StoreError where a source has no answer any more.
        """
        counts: dict[int, int] = {}
        iterator = iter(marks)
        while chunk := list(islice(iterator, CHUNK)):
            with self._db.begin() as connection:
                self._follow(connection, job_id, [mark for mark in chunk if mark.job == job_id])
                self._take(connection, job_id, [mark for mark in chunk if mark.job != job_id])
            for mark in chunk:
                counts[mark.job] = counts.get(mark.job, 0) + 1
        with self._db.begin() as connection:
            for source, count in counts.items():
                add_event(connection, now, "rows", _told(connection, job_id, source, count), job_id=job_id, count=count)
        return counts

    def _follow(self, connection: Connection, job_id: int, marks: Sequence[Mark]) -> None:
        if not marks:
            return
        rows = ((job_id, mark.row, mark.source_row) for mark in marks)
        count = execute_many(
            connection, _FOLLOW.compile(dialect=connection.dialect), ("job", "row", "source_row"), rows
        )
        if count != len(marks):
            raise StoreError(f"only {count} of {len(marks)} rows can follow another one")
        connection.execute(
            text("UPDATE job SET repeated = repeated + :count, following = following + :count WHERE id = :job"),
            {"job": job_id, "count": count},
        )

    def _take(self, connection: Connection, job_id: int, marks: Sequence[Mark]) -> None:
        if not marks:
            return
        names = ("job", "row", "source_job", "source_row")
        values = [(job_id, *mark) for mark in marks]
        compiled = (statement.compile(dialect=connection.dialect) for statement in (_COPY, _TAKE))
        copied, taken = (execute_many(connection, statement, names, values) for statement in compiled)
        if copied != len(marks) or taken != len(marks):
            raise StoreError("an earlier job, whose answers are to be reused, was changed meanwhile: submit once more")
        codes = text(
            "SELECT coalesce(error_code, ''), count(*) FROM result WHERE job_id = :job AND batch_id = 0 "
            "AND row BETWEEN :first AND :last AND outcome = 'succeeded' GROUP BY 1"
        )
        rows = [mark.row for mark in marks]
        keys = {"job": job_id, "first": min(rows), "last": max(rows)}
        for code, count in connection.execute(codes, keys).all():
            add_to_tally(connection, job_id, 0, "succeeded", code, count, None)
        connection.execute(
            text("UPDATE job SET reused = reused + :count WHERE id = :job"), {"job": job_id, "count": len(marks)}
        )

    def marks(self, job_id: int) -> Iterator[Mark]:
        """Where the rows that were not sent have their answers from, in input order."""
        query = text(
            "SELECT row, source_job, source_row FROM request WHERE job_id = :job AND source_row IS NOT NULL "
            "ORDER BY row"
        ).execution_options(yield_per=10_000)
        with self._db.read() as connection:
            yield from (Mark(*found) for found in connection.execute(query, {"job": job_id}))

    def of(self, job_id: int, row: int) -> Mark | None:
        """Where one row has its answer from; None where it was sent itself."""
        query = text(
            "SELECT row, source_job, source_row FROM request WHERE job_id = :job AND row = :row "
            "AND source_row IS NOT NULL"
        )
        with self._db.read() as connection:
            found = connection.execute(query, {"job": job_id, "row": row}).first()
        return None if found is None else Mark(*found)

    def usable(self, job_id: int) -> Iterator[tuple[int, bool]]:
        """(row, answered) of rows with an answer to be taken, and of rows that may still get one."""
        query = text(
            "SELECT row, state = 'succeeded' FROM request WHERE job_id = :job AND (state IN ('pending', 'assigned', "
            "'following') OR (state = 'succeeded' AND (source_job IS NULL OR source_job <> job_id)))"
        ).execution_options(yield_per=10_000)
        with self._db.read() as connection:
            for row, answered in connection.execute(query, {"job": job_id}):
                yield row, bool(answered)


def _told(connection: Connection, job_id: int, source: int, count: int) -> str:
    if source == job_id:
        return f"{count} rows ask the same as an earlier row and get its answer: sent once"
    name = connection.execute(text("SELECT name FROM job WHERE id = :job"), {"job": source}).scalar()
    return f"{count} rows have the answer of the same request in job {name}: not sent"


def follow(connection: Connection, job_id: int, first: int = 0, last: int = _LAST_ROW) -> None:
    """following -> the final state of their leader, for rows whose leader, from `first` to `last`, has one now."""
    if not connection.execute(text("SELECT following FROM job WHERE id = :job"), {"job": job_id}).scalar():
        return
    keys = {"job": job_id, "first": first, "last": last}
    chosen = "source_job = :job AND r.source_row >= :first AND r.source_row <= :last AND r.state = 'following'"
    counts = text(
        "SELECT l.outcome, coalesce(x.error_code, ''), count(*), "
        "min(CASE WHEN l.outcome = 'succeeded' THEN NULL ELSE x.error END) FROM request r "
        "CROSS JOIN request l "  # in this order: SQLite would look for followers of each row of the batch
        "LEFT JOIN result x ON x.job_id = l.job_id AND x.row = l.row AND x.batch_id = l.batch_id "
        f"WHERE r.{chosen} AND r.job_id = :job AND l.job_id = :job AND l.row = r.source_row AND {_FINAL} GROUP BY 1, 2"
    )
    found = connection.execute(counts, keys).all()
    if not found:
        return
    connection.execute(
        text(
            "UPDATE request AS r SET state = l.state, outcome = l.outcome, batch_id = 0 FROM request l "
            f"WHERE r.{chosen} AND r.job_id = :job AND l.job_id = :job AND l.row = r.source_row AND {_FINAL}"
        ),
        keys,
    )
    for outcome, code, count, sample in found:
        add_to_tally(connection, job_id, 0, outcome, code, count, sample)
    total = sum(count for _, _, count, _ in found)
    connection.execute(
        text("UPDATE job SET following = following - :count WHERE id = :job"), {"job": job_id, "count": total}
    )


def follow_anew(connection: Connection, job_id: int) -> int:
    """Each follower stands again as its leader does: for a retry or a late answer. Returns how many follow now."""
    if not connection.execute(text("SELECT repeated FROM job WHERE id = :job"), {"job": job_id}).scalar():
        return 0
    connection.execute(
        text(
            "UPDATE request AS r SET state = CASE WHEN l.outcome IS NULL THEN 'following' ELSE l.state END, "
            "outcome = l.outcome, batch_id = CASE WHEN l.outcome IS NULL THEN NULL ELSE 0 END FROM request l "
            "WHERE r.source_job = :job AND r.source_row >= 0 AND r.job_id = :job "
            "AND l.job_id = :job AND l.row = r.source_row AND coalesce(r.outcome, '') <> coalesce(l.outcome, '')"
        ),
        {"job": job_id},
    )
    recount(connection, job_id, 0, 0, _LAST_ROW)
    following = text(
        "SELECT count(*) FROM request r WHERE r.source_job = :job AND r.source_row >= 0 AND r.job_id = :job "
        "AND r.state = 'following'"
    )
    count = int(connection.execute(following, {"job": job_id}).scalar_one())
    connection.execute(text("UPDATE job SET following = :count WHERE id = :job"), {"job": job_id, "count": count})
    return count
