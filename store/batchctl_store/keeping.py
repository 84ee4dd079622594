"""What may go: jobs that are over and nobody waits for, batches whose files at the provider have served.

Nothing here touches a job or a batch that a provider may still answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from sqlalchemy import Connection, insert, select, text, update

from batchctl_store import models
from batchctl_store.batches import Batches
from batchctl_store.database import Database
from batchctl_store.jobs import LAST_FORGOTTEN, SETTING, Jobs, add_event, erase
from batchctl_store.records import CLOSED, LIVE_SUBMISSIONS, Batch, IllegalMove, Job, SubmissionState

BATCH = models.metadata.tables["batch"]

_CLOSED = ", ".join(f"'{state}'" for state in sorted(CLOSED))
_AWAITED = ", ".join(f"'{state}'" for state in sorted(LIVE_SUBMISSIONS | {SubmissionState.OPEN}))
_NEEDED = f"(s.state IN ({_AWAITED}) OR s.state = '{SubmissionState.ABSENT}' AND s.watch_until > :now)"
"""A submission that may still answer, or one proved absent that is still watched for."""
_OVER = "j.finished_at IS NOT NULL AND (j.output_path IS NULL OR j.merged_at IS NOT NULL)"
_AT_REST = (
    f"{_OVER} AND NOT EXISTS (SELECT 1 FROM batch b WHERE b.job_id = j.id AND (b.state NOT IN ({_CLOSED})"
    f" OR EXISTS (SELECT 1 FROM submission s WHERE s.batch_id = b.id AND {_NEEDED})))"
)
_SINCE = "max(j.finished_at, coalesce(j.merged_at, 0))"
_MERGED = (
    "j.finished_at IS NOT NULL AND (j.merged_at IS NOT NULL OR (j.output_path IS NULL AND j.written_at IS NOT NULL))"
)

_SPENT = f"""
SELECT b.id FROM batch b JOIN job j ON j.id = b.job_id
WHERE b.cleaned_at IS NULL AND b.state IN ({_CLOSED}) AND {_MERGED} AND NOT j.keep_remote
  AND NOT EXISTS (SELECT 1 FROM submission s WHERE s.batch_id = b.id AND {_NEEDED})
  AND NOT EXISTS (SELECT 1 FROM tally t WHERE t.job_id = b.job_id AND t.batch_id = b.id
    AND t.outcome IN ('missing', 'gone') AND t.count > 0)
  AND NOT EXISTS (SELECT 1 FROM batch o WHERE o.account = b.account AND o.clean_at > :now)
  AND NOT EXISTS (SELECT 1 FROM account a WHERE a.name = b.account AND a.paused_at IS NOT NULL
    AND (a.not_before IS NULL OR a.not_before > :now))
"""
"""An account whose last deletion failed waits as a whole, and so does one that is paused."""


class Keeping:
    """What is kept of jobs that are over, here and at the provider."""

    def __init__(self, database: Database, jobs: Jobs, batches: Batches) -> None:
        self._db = database
        self._jobs = jobs
        self._batches = batches

    def at_rest(self, *, before: float, now: float, untrimmed: bool = False) -> list[Job]:
        """Jobs over since `before` or longer, no submission of which may answer or is watched for; oldest first.

        Over: finished, and merged where an output is wished for. `untrimmed` leaves out those that were trimmed since.
        """
        since = f" AND (j.trimmed_at IS NULL OR j.trimmed_at < {_SINCE})" if untrimmed else ""
        query = text(f"SELECT j.id FROM job j WHERE {_AT_REST} AND {_SINCE} <= :before{since} ORDER BY j.id")
        with self._db.read() as connection:
            found = list(connection.execute(query, {"before": before, "now": now}).scalars())
        return [self._jobs.get(job_id) for job_id in found]

    def is_at_rest(self, job: Job, *, now: float) -> bool:
        """True while that holds of this job."""
        with self._db.read() as connection:
            return _is_at_rest(connection, job, now)

    def may_be_retried(self, job_id: int) -> Iterator[int]:
        """Rows that a retry could send, now or later, in input order: those without an answer that could be sent."""
        query = text(
            "SELECT row FROM request WHERE job_id = :job AND state <> 'succeeded' "
            "AND (batch_id IS NULL OR batch_id <> 0 OR outcome = 'canceled') ORDER BY row"
        ).execution_options(yield_per=10_000)
        with self._db.read() as connection:
            yield from connection.execute(query, {"job": job_id}).scalars()

    def trimmed(self, job: Job, *, now: float, event: str) -> None:
        """Write down that what retention lets go of the job is gone."""
        self._jobs.update(job.id, now=now, event=event, trimmed_at=now)

    def wrote_whole(self, job: Job, *, now: float, where: str) -> None:
        """All rows of a finished job were written to a file that no merge was asked for."""
        self._jobs.update(job.id, now=now, event=f"results written to {where}", written_at=now)

    def forget(self, job: Job, *, now: float) -> None:
        """Delete the whole job. Raises IllegalMove where it is not over, or a provider may still answer for it."""
        with self._db.begin() as connection:
            if not _is_at_rest(connection, job, now):
                raise IllegalMove(f"job {job.name} is not over, or a batch of it may still answer")
            erase(connection, job.id)
            _remember_number(connection, job.id)
            add_event(connection, now, "job", f"{job.name} was forgotten: {job.rows} rows")

    def spent(self, profile: str, *, now: float, limit: int, jobs: Collection[int] | None = None) -> list[Batch]:
        """Closed batches of merged jobs whose files at the provider may go now, at most `limit`.

        Not those with rows that are missing or gone: their files may be there all the same, for a person to fetch.
        """
        order = "ORDER BY b.clean_at IS NULL, b.id LIMIT :limit"  # what failed goes first
        query = text(f"{_SPENT} AND b.profile = :profile {_among('b.job_id', jobs)} {order}")
        with self._db.read() as connection:
            found = list(connection.execute(query, {"profile": profile, "now": now, "limit": limit}).scalars())
        return [self._batches.get(batch_id) for batch_id in found]

    def is_spent(self, batch: Batch, *, now: float) -> bool:
        """True while that holds of this batch."""
        with self._db.read() as connection:
            query = text(f"{_SPENT} AND b.id = :batch")
            return connection.execute(query, {"batch": batch.id, "now": now}).first() is not None

    def uncleaned_profiles(self) -> list[str]:
        """Profiles with closed batches whose files at the provider may still be there."""
        query = select(BATCH.c.profile).where(BATCH.c.cleaned_at.is_(None), BATCH.c.state.in_(sorted(CLOSED)))
        with self._db.read() as connection:
            return list(connection.execute(query.distinct().order_by(BATCH.c.profile)).scalars())

    def left_at_provider(self, job: Job) -> int:
        """How many batches of the job may still have files at the provider."""
        query = text(
            "SELECT count(*) FROM batch b WHERE b.job_id = :job AND b.cleaned_at IS NULL AND (b.upload_id IS NOT NULL"
            " OR EXISTS (SELECT 1 FROM submission s WHERE s.batch_id = b.id AND s.files <> '[]'))"
        )
        with self._db.read() as connection:
            return int(connection.execute(query, {"job": job.id}).scalar_one())

    def cleaned(self, batch: Batch, *, now: float, event: str | None) -> None:
        """The batch's files at the provider are deleted, or left for good."""
        self._batches.touch(batch.id, now=now, event=event, cleaned_at=now, clean_at=None)

    def clean_later(self, batch: Batch, *, at: float, tries: int) -> None:
        """Try again at `at`; the account's other batches wait as long."""
        self._batches.touch(batch.id, clean_at=at, clean_tries=tries)

    def clean_tries(self, batch: Batch) -> int:
        """How often deleting the batch's files has failed."""
        with self._db.read() as connection:
            query = select(BATCH.c.clean_tries).where(BATCH.c.id == batch.id)
            return int(connection.execute(query).scalar_one())

    def usage(self) -> tuple[int, int]:
        """Bytes of the database, and how many of them are free pages."""
        with self._db.read() as connection:
            pages, free, size = (
                int(connection.execute(text(f"PRAGMA {name}")).scalar_one())
                for name in ("page_count", "freelist_count", "page_size")
            )
        return pages * size, free * size

    def compact(self) -> None:
        """Write the database anew without its free pages. Needs twice its size of disk meanwhile."""
        self._db.compact()


def _is_at_rest(connection: Connection, job: Job, now: float) -> bool:
    query = text(f"SELECT 1 FROM job j WHERE j.id = :job AND {_AT_REST}")
    return connection.execute(query, {"job": job.id, "now": now}).first() is not None


def _among(column: str, numbers: Collection[int] | None) -> str:
    return "" if numbers is None else f"AND {column} IN ({', '.join(str(int(number)) for number in numbers)})"


def _remember_number(connection: Connection, job_id: int) -> None:
    """A name is never used again, although the table would give the highest number out anew."""
    known: Any = connection.execute(select(SETTING.c.value).where(SETTING.c.key == LAST_FORGOTTEN)).scalar()
    if known is None:
        connection.execute(insert(SETTING).values(key=LAST_FORGOTTEN, value=str(job_id)))
    elif int(known) < job_id:
        connection.execute(update(SETTING).where(SETTING.c.key == LAST_FORGOTTEN).values(value=str(job_id)))
