"""How many rows have which outcome, kept in the transactions that give it to them; batch 0 is for rows not sent."""

from __future__ import annotations

from sqlalchemy import Connection, insert, text, update

from batchctl_store import models

TALLY = models.metadata.tables["tally"]

ANSWERED_BY = (
    "LEFT JOIN request l ON l.job_id = r.job_id AND l.row = r.source_row AND r.source_job = r.job_id "
    "LEFT JOIN result x ON x.job_id = r.job_id AND x.row = coalesce(l.row, r.row) "
    "AND x.batch_id = CASE WHEN l.row IS NULL THEN r.batch_id ELSE l.batch_id END"
)
"""Joins to a request `r` the result `x` of its row, or of the row `l` that it follows."""


def recount(connection: Connection, job_id: int, batch_id: int, first: int, last: int) -> None:
    """Tallies of a batch from its rows: called where a batch is closed, so it reads that batch only."""
    keys = {"job": job_id, "batch": batch_id, "first": first, "last": last}
    connection.execute(text("DELETE FROM tally WHERE job_id = :job AND batch_id = :batch"), keys)
    connection.execute(
        text(
            "INSERT INTO tally (job_id, batch_id, outcome, code, count, sample) "
            "SELECT r.job_id, r.batch_id, r.outcome, coalesce(x.error_code, ''), count(*), "
            "min(CASE WHEN r.outcome = 'succeeded' THEN NULL ELSE x.error END) FROM request r "
            f"{ANSWERED_BY} WHERE r.job_id = :job AND r.row BETWEEN :first AND :last AND r.batch_id = :batch "
            "AND r.state IN ('succeeded', 'failed', 'canceled') "
            "GROUP BY r.job_id, r.batch_id, r.outcome, coalesce(x.error_code, '')"
        ),
        keys,
    )


def add_to_tally(
    connection: Connection,
    job_id: int,
    batch_id: int,
    outcome: str,
    code: str,
    count: int,
    sample: str | None,
) -> None:
    """Count rows that got their final outcome outside a collection."""
    if not count:
        return
    keys = {"job_id": job_id, "batch_id": batch_id, "outcome": outcome, "code": code}
    same = [TALLY.c[name] == value for name, value in keys.items()]
    if not connection.execute(update(TALLY).where(*same).values(count=TALLY.c.count + count)).rowcount:
        connection.execute(insert(TALLY).values(count=count, sample=sample, **keys))
