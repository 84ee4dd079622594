"""Batches and submissions: each move is one guarded UPDATE with its event in the same transaction."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, RowMapping, bindparam, exists, func, insert, select, update

from batchctl_store import models
from batchctl_store.database import Database
from batchctl_store.jobs import EVENT, JOB, add_event
from batchctl_store.records import (
    BATCH_MOVES,
    CLOSED,
    LIVE_SUBMISSIONS,
    Account,
    Batch,
    BatchState,
    IllegalMove,
    Noted,
    StoreError,
    Submission,
    SubmissionState,
)

BATCH = models.metadata.tables["batch"]
SUBMISSION = models.metadata.tables["submission"]
ACCOUNT = models.metadata.tables["account"]

CHUNK = 500
"""So many batches are read or written at once: within what one statement may bind, and short as a transaction."""
T = TypeVar("T")


def move(
    connection: Connection,
    batch_id: int,
    target: BatchState,
    *,
    sources: Collection[BatchState],
    now: float,
    text: str,
    count: int | None = None,
    where: ColumnElement[bool] | None = None,
    **values: Any,
) -> None:
    """Move a batch to `target` if it is in one of `sources`, and write the event.

    Raises IllegalMove where the batch is elsewhere (or `where` does not hold): nothing was changed.
    """
    for source in sources:
        if (source, target) not in BATCH_MOVES:
            raise IllegalMove(f"no batch moves from {source} to {target}")
    row = connection.execute(select(BATCH.c.job_id, BATCH.c.state).where(BATCH.c.id == batch_id)).one()
    statement = update(BATCH).where(BATCH.c.id == batch_id, BATCH.c.state.in_(sorted(sources)))
    if where is not None:
        statement = statement.where(where)
    if connection.execute(statement.values(state=target, updated_at=now, **values)).rowcount != 1:
        raise IllegalMove(f"batch {batch_id} is {row.state} and cannot become {target} now")
    add_event(
        connection,
        now,
        "batch",
        text,
        job_id=row.job_id,
        batch_id=batch_id,
        source=row.state,
        target=target,
        count=count,
    )


def settle(connection: Connection, submission_id: int, target: SubmissionState, **values: Any) -> None:
    """Move a submission; raises IllegalMove where it does not exist."""
    statement = update(SUBMISSION).where(SUBMISSION.c.id == submission_id).values(state=target, **values)
    if connection.execute(statement).rowcount != 1:
        raise IllegalMove(f"there is no submission {submission_id}")


def not_canceled() -> ColumnElement[bool]:
    """The batch's job carries no wish to cancel; tested in the same UPDATE as the move it guards."""
    wish = select(JOB.c.id).where(JOB.c.id == BATCH.c.job_id, JOB.c.cancel_requested_at.is_not(None))
    return ~exists(wish.correlate(BATCH))


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + CHUNK] for start in range(0, len(items), CHUNK))


def _event(note: Noted, now: float) -> dict[str, Any]:
    return {"at": now, "kind": "note", "text": note.event, "job_id": note.job_id, "batch_id": note.submission.batch_id}


def _submission(row: RowMapping) -> Submission:
    fields = {name: row[name] for name in Submission.__dataclass_fields__}
    fields["state"] = SubmissionState(row["state"])
    fields["files"] = tuple(json.loads(row["files"]))
    return Submission(**fields)


class Batches:
    """What the store knows of batches, their submissions, and the accounts they go to."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def load(
        self,
        *,
        job_id: int | None = None,
        batch_id: int | None = None,
        among: Sequence[int] | None = None,
        open_at: float | None = None,
    ) -> list[Batch]:
        """Batches with their submissions, in the order they were planned.

        `among` are at most `CHUNK` numbers of batches. `open_at` leaves out closed ones, but for those with a late
        submission to collect or an absent one that is still watched for at that time.
        """
        query = select(BATCH).order_by(BATCH.c.id)
        if job_id is not None:
            query = query.where(BATCH.c.job_id == job_id)
        if batch_id is not None:
            query = query.where(BATCH.c.id == batch_id)
        if among is not None:
            query = query.where(BATCH.c.id.in_(among))
        if open_at is not None:
            unfinished = select(SUBMISSION.c.batch_id).where(
                SUBMISSION.c.state.in_(sorted(LIVE_SUBMISSIONS)) | (SUBMISSION.c.watch_until > open_at)
            )
            query = query.where(BATCH.c.state.not_in(sorted(CLOSED)) | BATCH.c.id.in_(unfinished))
        with self._db.read() as connection:
            rows = connection.execute(query).mappings().all()
            wanted = select(SUBMISSION).where(
                SUBMISSION.c.batch_id.in_(query.with_only_columns(BATCH.c.id).order_by(None))
            )
            tries = connection.execute(wanted.order_by(SUBMISSION.c.batch_id, SUBMISSION.c.n)).mappings().all()
        by_batch: dict[int, list[Submission]] = defaultdict(list)
        for row in tries:
            by_batch[row["batch_id"]].append(_submission(row))
        names = [name for name in Batch.__dataclass_fields__ if name not in ("submissions", "state")]
        return [
            Batch(
                **{name: row[name] for name in names},
                state=BatchState(row["state"]),
                submissions=tuple(by_batch[row["id"]]),
            )
            for row in rows
        ]

    def current(self, batches: Sequence[Batch]) -> Iterator[Batch]:
        """These batches as they stand now, in the order they were planned; read some hundreds at a time."""
        numbers = sorted({batch.id for batch in batches})
        for some in _chunks(numbers):
            yield from self.load(among=some)

    def get(self, batch_id: int) -> Batch:
        """One batch as it stands now."""
        found = self.load(batch_id=batch_id)
        if not found:
            raise StoreError(f"there is no batch {batch_id}")
        return found[0]

    def move(
        self,
        batch_id: int,
        target: BatchState,
        *,
        sources: Collection[BatchState],
        now: float,
        text: str,
        **values: Any,
    ) -> None:
        """One guarded move in its own transaction; see `move`."""
        with self._db.begin() as connection:
            move(connection, batch_id, target, sources=sources, now=now, text=text, **values)

    def touch(self, batch_id: int, *, now: float | None = None, event: str | None = None, **values: Any) -> None:
        """Change a batch's times or notes without moving it; `event` (with `now`) is written down too."""
        with self._db.begin() as connection:
            if values:
                connection.execute(update(BATCH).where(BATCH.c.id == batch_id).values(**values))
            if event and now is not None:
                job_id = connection.execute(select(BATCH.c.job_id).where(BATCH.c.id == batch_id)).scalar()
                add_event(connection, now, "note", event, job_id=job_id, batch_id=batch_id)

    def touch_all(self, batches: Sequence[Batch], **values: Any) -> None:
        """Change times or notes of many batches alike, without moving them; some hundreds in a transaction."""
        for some in _chunks([batch.id for batch in batches]):
            with self._db.begin() as connection:
                connection.execute(update(BATCH).where(BATCH.c.id.in_(some)).values(**values))

    def note_all(self, notes: Sequence[Noted], *, now: float) -> None:
        """Write down what was seen of many submissions; some hundreds in a transaction, each with its events.

        All notes set the same columns.
        """
        for some in _chunks(notes):
            seen = [note.seen | {"files": json.dumps(note.seen["files"]), "_id": note.submission.id} for note in some]
            batches = [note.batch | {"_id": note.submission.batch_id} for note in some]
            told = [note for note in some if note.event]
            with self._db.begin() as connection:
                connection.execute(update(SUBMISSION).where(SUBMISSION.c.id == bindparam("_id")), seen)
                connection.execute(update(BATCH).where(BATCH.c.id == bindparam("_id")), batches)
                if told:
                    connection.execute(insert(EVENT), [_event(note, now) for note in told])

    def begin_upload(self, batch: Batch, *, tag: str, n: int, owner: str, now: float) -> None:
        """planned -> uploading, with the tag that the file and its custom ids will carry."""
        self.move(
            batch.id,
            BatchState.UPLOADING,
            sources={BatchState.PLANNED},
            now=now,
            text=f"uploading as {tag}",
            owner=owner,
            upload_n=n,
            upload_tag=tag,
            upload_id=None,
            note=None,
        )

    def begin_submit(
        self, batch: Batch, *, tag: str, n: int, owner: str, now: float, send_deadline: float
    ) -> Submission:
        """ready -> submitting with its submission row, committed before the call; refused once a cancel is wished.

        Raises IllegalMove where the batch is not ready any more or the job is to be canceled.
        """
        with self._db.begin() as connection:
            move(
                connection,
                batch.id,
                BatchState.SUBMITTING,
                sources={BatchState.READY},
                now=now,
                text=f"creating as {tag}",
                where=not_canceled(),
                owner=owner,
            )
            connection.execute(
                insert(SUBMISSION).values(
                    batch_id=batch.id,
                    account=batch.account,
                    n=n,
                    tag=tag,
                    state=SubmissionState.OPEN,
                    owner=owner,
                    created_at=now,
                    send_deadline=send_deadline,
                    upload_id=batch.upload_id,
                )
            )
        opened = self.get(batch.id).open_submission
        if opened is None:
            raise StoreError(f"batch {batch.id} lost its open submission")
        return opened

    def resolve(
        self,
        batch: Batch,
        submission: Submission,
        *,
        to: BatchState,
        submission_to: SubmissionState,
        now: float,
        text: str,
        submission_values: Mapping[str, Any] | None = None,
        **values: Any,
    ) -> None:
        """Move a batch and its submission together, from where the caller saw the batch."""
        with self._db.begin() as connection:
            move(connection, batch.id, to, sources={batch.state}, now=now, text=text, **values)
            settle(connection, submission.id, submission_to, **dict(submission_values or {}))

    def note_submission(
        self, submission: Submission, *, now: float | None = None, event: str | None = None, **values: Any
    ) -> None:
        """Write down what was observed of a submission, without moving its batch."""
        if "files" in values:
            values["files"] = json.dumps(list(values["files"]))
        with self._db.begin() as connection:
            connection.execute(update(SUBMISSION).where(SUBMISSION.c.id == submission.id).values(**values))
            if event and now is not None:
                job_id = connection.execute(select(BATCH.c.job_id).where(BATCH.c.id == submission.batch_id)).scalar()
                add_event(connection, now, "note", event, job_id=job_id, batch_id=submission.batch_id)

    def known_remote_ids(self, account: str) -> frozenset[str]:
        """Every remote id this store has for the account: none of them can be a lost create."""
        query = select(SUBMISSION.c.remote_id).where(
            SUBMISSION.c.account == account, SUBMISSION.c.remote_id.is_not(None)
        )
        with self._db.read() as connection:
            return frozenset(connection.execute(query).scalars())

    def latest_remote_id(self, account: str, *, besides: str | None = None) -> str | None:
        """A batch of this account that is known to exist, to check a key by; another one than `besides`."""
        query = (
            select(SUBMISSION.c.remote_id)
            .where(
                SUBMISSION.c.account == account,
                SUBMISSION.c.remote_id != (besides or ""),
                SUBMISSION.c.gone_looks == 0,
            )
            .order_by(SUBMISSION.c.created_at.desc())
            .limit(1)
        )
        with self._db.read() as connection:
            return connection.execute(query).scalar()

    def watched(self, account: str, now: float) -> dict[str, Submission]:
        """Submissions proved absent but still watched for, by tag."""
        query = select(SUBMISSION).where(
            SUBMISSION.c.account == account,
            SUBMISSION.c.state == SubmissionState.ABSENT,
            SUBMISSION.c.watch_until > now,
        )
        with self._db.read() as connection:
            return {row["tag"]: _submission(row) for row in connection.execute(query).mappings()}

    def accounts(self) -> dict[str, Account]:
        """Every account something is known about."""
        with self._db.read() as connection:
            rows = connection.execute(select(ACCOUNT)).mappings().all()
        return {row["name"]: Account(**row) for row in rows}

    def pause_account(self, name: str, *, now: float, kind: str, reason: str, not_before: float | None = None) -> None:
        """Nothing more is sent to the account until `not_before`, or until it is resumed where that is None."""
        with self._db.begin() as connection:
            known = connection.execute(select(ACCOUNT.c.name).where(ACCOUNT.c.name == name)).first()
            values = {"paused_at": now, "pause_kind": kind, "pause_reason": reason, "not_before": not_before}
            if known:
                connection.execute(update(ACCOUNT).where(ACCOUNT.c.name == name).values(**values))
            else:
                connection.execute(insert(ACCOUNT).values(name=name, **values))
            add_event(connection, now, "account", f"account {name} paused ({kind}): {reason}")

    def resume_account(self, name: str, *, now: float) -> None:
        """Send to the account again."""
        values = {"paused_at": None, "pause_kind": None, "pause_reason": None, "not_before": None}
        with self._db.begin() as connection:
            if connection.execute(update(ACCOUNT).where(ACCOUNT.c.name == name).values(**values)).rowcount:
                add_event(connection, now, "account", f"account {name} resumed")

    def next_ordinal(self, connection: Connection, job_id: int) -> int:
        """The next batch number within a job, from 1."""
        return (
            int(
                connection.execute(
                    select(func.coalesce(func.max(BATCH.c.ordinal), 0)).where(BATCH.c.job_id == job_id)
                ).scalar_one()
            )
            + 1
        )

    def add(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """Insert planned batches; returns their ids in order."""
        ids = []
        for row in rows:
            key = connection.execute(insert(BATCH).values(state=BatchState.PLANNED, **row)).inserted_primary_key
            ids.append(int(key[0]) if key else 0)
        return ids
