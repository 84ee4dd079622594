"""Jobs: created once, found by name, wished upon, finished."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, func, insert, select, text, update

from batchctl_store import models
from batchctl_store.database import Database
from batchctl_store.records import DuplicateJob, Event, IllegalMove, Job, NewJob, StoreError

JOB = models.metadata.tables["job"]
EVENT = models.metadata.tables["event"]
SETTING = models.metadata.tables["setting"]

LAST_FORGOTTEN = "last_forgotten_job"
"""The setting with the highest number of a job that was forgotten."""

_JOB_SQL = "SELECT * FROM job_status"


def add_event(
    connection: Connection,
    at: float,
    kind: str,
    text: str,
    *,
    job_id: int | None = None,
    batch_id: int | None = None,
    source: str | None = None,
    target: str | None = None,
    count: int | None = None,
) -> None:
    """One line of history, in the transaction of what it tells."""
    connection.execute(
        insert(EVENT).values(
            at=at, kind=kind, text=text, job_id=job_id, batch_id=batch_id, source=source, target=target, count=count
        )
    )


def job_of(row: RowMapping) -> Job:
    """A `job_status` row as a record."""
    fields = {name: row[name] for name in Job.__dataclass_fields__}
    fields["columns"] = tuple(json.loads(row["columns"]))
    return Job(**fields)


def erase(connection: Connection, job_id: int) -> None:
    """Delete a job and all that belongs to it."""
    connection.execute(
        text("DELETE FROM submission WHERE batch_id IN (SELECT id FROM batch WHERE job_id = :job)"), {"job": job_id}
    )
    for name in ("result", "request", "tally", "event", "batch"):
        table = models.metadata.tables[name]
        connection.execute(delete(table).where(table.c.job_id == job_id))
    connection.execute(delete(JOB).where(JOB.c.id == job_id))


def _next_number(connection: Connection) -> int:
    """A number that no job has or had."""
    highest = connection.execute(select(func.max(JOB.c.id))).scalar() or 0
    forgotten = connection.execute(select(SETTING.c.value).where(SETTING.c.key == LAST_FORGOTTEN)).scalar()
    return max(int(highest), int(forgotten or 0)) + 1


class Jobs:
    """What the store knows of jobs."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def create(self, new: NewJob, *, now: float, owner: str, again: bool, same_within_s: float) -> Job:
        """Store a job that has no rows yet; the check for a job with the same content is in the same transaction.

        Raises DuplicateJob where one is open or finished less than `same_within_s` ago, unless `again`.
        """
        with self._db.begin() as connection:
            if not again:
                self._refuse_same(connection, new, now - same_within_s)
            values = {
                "created_at": now,
                "owner": owner,
                "columns": json.dumps(new.columns),
                **{name: getattr(new, name) for name in NewJob.__dataclass_fields__ if name not in ("stem", "columns")},
            }
            job_id = _next_number(connection)
            connection.execute(insert(JOB).values(id=job_id, name=f"{new.stem}-{job_id}", **values))
            add_event(connection, now, "job", f"created from {new.input_name}: {new.rows} rows", job_id=job_id)
        return self.get(job_id)

    def _refuse_same(self, connection: Connection, new: NewJob, since: float) -> None:
        row = connection.execute(
            select(JOB.c.name).where(
                JOB.c.input_hash == new.input_hash,
                JOB.c.task_hash == new.task_hash,
                JOB.c.route_hash == new.route_hash,
                (JOB.c.finished_at.is_(None)) | (JOB.c.finished_at > since),
            )
        ).first()
        if row:
            raise DuplicateJob(row.name)

    def get(self, job_id: int) -> Job:
        """The job, with its derived counts."""
        with self._db.read() as connection:
            row = connection.execute(text(f"{_JOB_SQL} WHERE id = :id"), {"id": job_id}).mappings().first()
        if row is None:
            raise StoreError(f"there is no job {job_id}")
        return job_of(row)

    def find(self, name: str) -> Job | None:
        """The job called `name`, or with that number."""
        where = "id = :key" if name.isdecimal() else "name = :key"
        key: Any = int(name) if name.isdecimal() else name
        with self._db.read() as connection:
            row = connection.execute(text(f"{_JOB_SQL} WHERE {where}"), {"key": key}).mappings().first()
        return None if row is None else job_of(row)

    def all(self, *, open_only: bool = False) -> list[Job]:
        """All jobs, oldest first."""
        where = "WHERE finished_at IS NULL OR (output_path IS NOT NULL AND merged_at IS NULL)" if open_only else ""
        with self._db.read() as connection:
            rows = connection.execute(text(f"{_JOB_SQL} {where} ORDER BY id")).mappings().all()
        return [job_of(row) for row in rows]

    def update(self, job_id: int, *, now: float, event: str, unless: str | None = None, **values: Any) -> None:
        """Set flags or times, with the event that says so. `unless` names a column that must still be null."""
        with self._db.begin() as connection:
            statement = update(JOB).where(JOB.c.id == job_id)
            if unless:
                statement = statement.where(JOB.c[unless].is_(None))
            if connection.execute(statement.values(**values)).rowcount != 1:
                raise IllegalMove(f"job {job_id} was changed meanwhile ({', '.join(values)})")
            add_event(connection, now, "job", event, job_id=job_id)

    def unready(self) -> Iterable[tuple[Job, str]]:
        """Jobs whose intake never ended, with the owner that was at it."""
        with self._db.read() as connection:
            rows = connection.execute(text(f"{_JOB_SQL} WHERE ready_at IS NULL ORDER BY id")).mappings().all()
        return [(job_of(row), row["owner"] or "") for row in rows]

    def forget(self, job_id: int) -> None:
        """Delete a job whose intake never ended; nothing of it was ever sent."""
        with self._db.begin() as connection:
            ready = connection.execute(select(JOB.c.ready_at).where(JOB.c.id == job_id)).scalar()
            if ready is not None:
                raise IllegalMove(f"job {job_id} is complete and may have been sent")
            erase(connection, job_id)

    def events(self, job_id: int, *, limit: int = 1000) -> list[Event]:
        """The job's history, oldest first."""
        sql = text(
            "SELECT e.at, e.kind, e.text, b.ordinal AS batch, e.source, e.target, e.count FROM event e"
            " LEFT JOIN batch b ON b.id = e.batch_id WHERE e.job_id = :job ORDER BY e.id DESC LIMIT :limit"
        )
        with self._db.read() as connection:
            rows = connection.execute(sql, {"job": job_id, "limit": limit}).mappings().all()
        return [Event(**row) for row in reversed(rows)]
