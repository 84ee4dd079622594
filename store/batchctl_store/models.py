"""The tables. Alembic's migrations create them; a test holds the two against each other.

The two big tables are clustered by (job, row), which is the order merge reads them in.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Index, MetaData, UniqueConstraint, text
from sqlmodel import Field, SQLModel

metadata: MetaData = SQLModel.metadata


def _count() -> Any:
    return Field(default=0, sa_column_kwargs={"server_default": text("0")})


class Setting(SQLModel, table=True):
    """Facts about the store itself: its id, the clock it follows."""

    __tablename__ = "setting"
    key: str = Field(primary_key=True)
    value: str


class Account(SQLModel, table=True):
    """A provider account and why nothing is sent to it at the moment."""

    __tablename__ = "account"
    name: str = Field(primary_key=True)
    paused_at: float | None = None
    pause_kind: str | None = None
    pause_reason: str | None = None
    not_before: float | None = None


class Job(SQLModel, table=True):
    """One submission of a table."""

    __tablename__ = "job"
    __table_args__ = (Index("job_same", "input_hash", "task_hash", "route_hash"),)
    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(unique=True)
    created_at: float
    task: str
    task_hash: str
    input_name: str
    input_hash: str
    input_format: str
    route_hash: str
    profile: str
    account: str
    model: str
    columns: str
    rows: int
    output_path: str | None = None
    output_known: str | None = None
    max_batch_requests: int | None = None
    max_batch_bytes: int | None = None
    max_attempts: int
    spool: str
    owner: str | None = None
    deadline: float | None = None
    ready_at: float | None = None
    cancel_requested_at: float | None = None
    paused_at: float | None = None
    replan_at: float | None = None
    finished_at: float | None = None
    merged_at: float | None = None
    merge_error: str | None = None
    keep_remote: bool = Field(default=False, sa_column_kwargs={"server_default": text("0")})
    written_at: float | None = None  # `results` wrote all of it to a file
    trimmed_at: float | None = None  # what retention lets go is gone
    repeated: int = _count()  # rows whose request is that of another row of the job
    reused: int = _count()  # rows with the answer of an earlier job
    following: int = _count()  # repeated rows that wait for their answer


class Batch(SQLModel, table=True):
    """A shard of a job's requests."""

    __tablename__ = "batch"
    __table_args__ = (
        UniqueConstraint("job_id", "ordinal"),
        Index("batch_state", "state"),
        {"sqlite_autoincrement": True},  # an id is part of tags at the provider: never used again
    )
    id: int | None = Field(default=None, primary_key=True)
    job_id: int = Field(foreign_key="job.id")
    ordinal: int
    profile: str
    account: str
    state: str
    first_row: int
    last_row: int
    requests: int
    bytes: int
    created_at: float
    updated_at: float
    owner: str | None = None
    upload_n: int = 0
    upload_tag: str | None = None
    upload_id: str | None = None
    uploaded_at: float | None = None
    raw_status: str | None = None
    not_before: float | None = None
    next_poll_at: float | None = None
    window_ends_at: float | None = None
    refusals: int = 0
    note: str | None = None
    cleaned_at: float | None = None  # its files at the provider are deleted, or left for good
    clean_at: float | None = None  # not tried again before
    clean_tries: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})


class Submission(SQLModel, table=True):
    """One try at sending a batch; a batch has one open try at most."""

    __tablename__ = "submission"
    __table_args__ = (
        UniqueConstraint("batch_id", "n"),
        Index(
            "submission_open",
            "batch_id",
            unique=True,
            sqlite_where=text("state = 'open'"),
            postgresql_where=text("state = 'open'"),
        ),
        Index("submission_remote", "account", "remote_id", unique=True),
        Index("submission_state", "state"),
    )
    id: int | None = Field(default=None, primary_key=True)
    batch_id: int = Field(foreign_key="batch.id", index=True)
    account: str
    n: int
    tag: str = Field(unique=True)
    state: str
    owner: str
    created_at: float
    send_deadline: float
    upload_id: str | None = None
    remote_id: str | None = None
    raw_status: str | None = None
    expires_at: float | None = None
    ended_at: float | None = None
    counted: int | None = None
    files: str = "[]"
    looks: int = 0
    first_look_at: float | None = None
    fenced_at: float | None = None
    watch_until: float | None = None
    short_since: float | None = None
    gone_looks: int = 0
    cancel_sent_at: float | None = None


class Request(SQLModel, table=True):
    """One row of a job: where it stands, and which batch holds it or had the last word on it.

    A batch holds rows of one `group_key` only (such as a model's name); null is a group, too. A row with a source is
    not sent: its answer is that of the source, whose request is the same.
    """

    __tablename__ = "request"
    __table_args__ = (
        Index(
            "request_source",
            "source_job",
            "source_row",
            sqlite_where=text("source_row IS NOT NULL"),
            postgresql_where=text("source_row IS NOT NULL"),
        ),
        {"sqlite_with_rowid": False},
    )
    job_id: int = Field(primary_key=True, foreign_key="job.id")
    row: int = Field(primary_key=True)
    state: str
    outcome: str | None = None
    batch_id: int | None = None
    attempts: int = 0
    size: int
    group_key: str | None = None
    source_job: int | None = None
    source_row: int | None = None


class Result(SQLModel, table=True):
    """The provider's final word on a row in one batch; batch 0 is for rows that were never sent."""

    __tablename__ = "result"
    __table_args__ = {"sqlite_with_rowid": False}
    job_id: int = Field(primary_key=True, foreign_key="job.id")
    row: int = Field(primary_key=True)
    batch_id: int = Field(primary_key=True)
    outcome: str
    answer: str | None = None
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    model: str | None = None
    error_code: str | None = None
    error: str | None = None


class Tally(SQLModel, table=True):
    """How many rows of a batch have which final outcome, kept in the transactions that give it to them."""

    __tablename__ = "tally"
    job_id: int = Field(primary_key=True, foreign_key="job.id")
    batch_id: int = Field(primary_key=True)
    outcome: str = Field(primary_key=True)
    code: str = Field(primary_key=True)
    count: int
    sample: str | None = None


class Event(SQLModel, table=True):
    """The history: each move of a batch, each wish, each decision worth a sentence."""

    __tablename__ = "event"
    __table_args__ = (Index("event_job", "job_id", "id"),)
    id: int | None = Field(default=None, primary_key=True)
    at: float
    job_id: int | None = None
    batch_id: int | None = None
    kind: str
    source: str | None = None
    target: str | None = None
    count: int | None = None
    text: str
