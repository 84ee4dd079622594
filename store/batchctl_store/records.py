"""The store's words and the plain records it hands out. No database library is imported here.

Times are UTC epoch seconds, sizes bytes. A state moves only along `BATCH_MOVES`; the database enforces the source.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class BatchState(StrEnum):
    """Where a batch stands here; the provider's raw status is a column of its own."""

    PLANNED = "planned"
    UPLOADING = "uploading"
    READY = "ready"  # what has to be uploaded is there; nothing was created
    SUBMITTING = "submitting"  # a create may be under way
    IN_DOUBT = "in_doubt"  # a create may have happened
    SUBMITTED = "submitted"
    ENDED = "ended"  # terminal at the provider, results not taken in yet
    COLLECTED = "collected"
    REJECTED = "rejected"
    CANCELED = "canceled"
    GONE = "gone"


CLOSED = frozenset({BatchState.COLLECTED, BatchState.REJECTED, BatchState.CANCELED, BatchState.GONE})
"""States in which a batch holds no rows any more."""

_S = BatchState
BATCH_MOVES: frozenset[tuple[BatchState, BatchState]] = frozenset(
    {
        (_S.PLANNED, _S.UPLOADING),
        (_S.PLANNED, _S.READY),  # nothing is uploaded (inline transports)
        (_S.PLANNED, _S.SUBMITTED),  # a create thought absent was found before the next one was sent
        (_S.PLANNED, _S.CANCELED),
        (_S.UPLOADING, _S.READY),
        (_S.UPLOADING, _S.PLANNED),  # its owner died, or the upload failed
        (_S.UPLOADING, _S.REJECTED),
        (_S.UPLOADING, _S.CANCELED),
        (_S.READY, _S.SUBMITTING),
        (_S.READY, _S.PLANNED),  # the uploaded file is no longer there
        (_S.READY, _S.SUBMITTED),  # likewise
        (_S.READY, _S.CANCELED),
        (_S.SUBMITTING, _S.SUBMITTED),
        (_S.SUBMITTING, _S.IN_DOUBT),
        (_S.SUBMITTING, _S.READY),  # refused for queue, file, key, money or 429: no attempt is used up
        (_S.SUBMITTING, _S.REJECTED),
        (_S.IN_DOUBT, _S.SUBMITTED),  # found
        (_S.IN_DOUBT, _S.READY),  # proved absent, the upload still there
        (_S.IN_DOUBT, _S.PLANNED),  # proved absent, the upload deleted as a fence
        (_S.SUBMITTED, _S.READY),  # ended without having run anything: queue full
        (_S.SUBMITTED, _S.PLANNED),  # the same, and its file has to be sent again
        (_S.SUBMITTED, _S.REJECTED),  # failed validation at the provider
        (_S.SUBMITTED, _S.ENDED),
        (_S.SUBMITTED, _S.IN_DOUBT),
        (_S.SUBMITTED, _S.GONE),
        (_S.ENDED, _S.COLLECTED),
        (_S.ENDED, _S.IN_DOUBT),
        (_S.ENDED, _S.GONE),
    }
)


class RequestState(StrEnum):
    """Where a row stands. While `assigned` it has exactly one batch."""

    PENDING = "pending"
    ASSIGNED = "assigned"
    FOLLOWING = "following"  # never sent: ends as the row of the job whose request is the same
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


class SubmissionState(StrEnum):
    """One try at sending a batch. At most one is `open` for a batch."""

    OPEN = "open"  # the create may be under way or in doubt
    ACCEPTED = "accepted"  # the remote id is known
    LATE = "late"  # thought absent, seen after all: it is collected too, the first answer wins
    REFUSED = "refused"  # the provider said no, or ended it without running anything
    ABSENT = "absent"  # proved absent; watched for until `watch_until`
    ABANDONED = "abandoned"  # never sent, certainly
    DONE = "done"  # terminal and taken in


LIVE_SUBMISSIONS = frozenset({SubmissionState.ACCEPTED, SubmissionState.LATE})


class StoreError(Exception):
    """The store refused or failed; the message says what to do."""


class IllegalMove(StoreError):
    """A guarded update changed no row: somebody else moved it first, or the move is not allowed."""


class DuplicateJob(StoreError):
    """The same input, task and route are already a job, open or finished lately."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the same input, task and route are already job {name}")
        self.name = name


@dataclass(frozen=True, slots=True)
class NewJob:
    """What intake knows about a job before its rows are stored."""

    stem: str  # the job's name is `<stem>-<id>`
    task: str  # canonical JSON
    task_hash: str
    input_name: str
    input_hash: str
    input_format: str
    route_hash: str
    profile: str
    account: str
    model: str
    columns: tuple[str, ...]
    rows: int
    output_path: str | None
    max_batch_requests: int | None
    max_batch_bytes: int | None
    max_attempts: int
    spool: str  # the spool folder of this job's objects
    deadline: float | None = None
    output_known: str | None = None  # states of the files that a merge may replace at `output_path`
    keep_remote: bool = False  # its files at the provider are left to their expiry


@dataclass(frozen=True, slots=True)
class Job:
    """One submission of a table, as stored, with the counts derived from its batches."""

    id: int
    name: str
    created_at: float
    task: str
    profile: str
    account: str
    model: str
    input_name: str
    input_format: str
    columns: tuple[str, ...]
    rows: int
    output_path: str | None
    output_known: str | None
    max_batch_requests: int | None
    max_batch_bytes: int | None
    max_attempts: int
    spool: str
    deadline: float | None
    ready_at: float | None
    cancel_requested_at: float | None
    paused_at: float | None
    replan_at: float | None
    finished_at: float | None
    merged_at: float | None
    merge_error: str | None
    repeated: int  # rows whose request is that of another row of the job: sent once
    reused: int  # rows with the answer of an earlier job
    following: int  # repeated rows that wait for their answer
    final_rows: int  # rows with a final outcome
    open_rows: int  # rows held by open batches

    @property
    def pending_rows(self) -> int:
        """Rows to be sent that no batch holds: without a final outcome, and none that waits for another row's."""
        return self.rows - self.final_rows - self.open_rows - self.following

    @property
    def open(self) -> bool:
        """True until every row is final and the merge, where one is asked for, is written."""
        return self.finished_at is None or (self.output_path is not None and self.merged_at is None)


@dataclass(frozen=True, slots=True)
class Submission:
    """One try at sending a batch."""

    id: int
    batch_id: int
    n: int
    tag: str
    state: SubmissionState
    owner: str
    created_at: float
    send_deadline: float
    upload_id: str | None = None
    remote_id: str | None = None
    raw_status: str | None = None
    expires_at: float | None = None
    ended_at: float | None = None
    counted: int | None = None  # rows that the provider says it finished
    files: tuple[str, ...] = ()
    looks: int = 0
    first_look_at: float | None = None
    fenced_at: float | None = None
    watch_until: float | None = None
    short_since: float | None = None
    gone_looks: int = 0
    cancel_sent_at: float | None = None

    def watched(self, now: float) -> bool:
        """Proved absent, but still looked for."""
        return self.state is SubmissionState.ABSENT and (self.watch_until or 0) > now


@dataclass(frozen=True, slots=True)
class Batch:
    """A shard of a job's requests: planned, sent, polled and collected as one."""

    id: int
    job_id: int
    ordinal: int
    profile: str
    account: str
    state: BatchState
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
    submissions: tuple[Submission, ...] = ()

    @property
    def open_submission(self) -> Submission | None:
        """The one try that is under way or in doubt."""
        return next((s for s in self.submissions if s.state is SubmissionState.OPEN), None)

    @property
    def live(self) -> tuple[Submission, ...]:
        """Tries that exist at the provider and are not taken in yet."""
        return tuple(s for s in self.submissions if s.state in LIVE_SUBMISSIONS)


class Shard(NamedTuple):
    """Rows that become one batch: the `requests` pending ones of `group` from `first` to `last`."""

    first: int
    last: int
    requests: int
    bytes: int
    group: str | None = None


class Mark(NamedTuple):
    """A row that is not sent: its answer is that of `source_row` of `job`, its own or an earlier one."""

    row: int
    job: int
    source_row: int


@dataclass(frozen=True, slots=True)
class Noted:
    """What was seen of a submission, and what that says of its batch: columns to set, and the event that tells it."""

    submission: Submission
    job_id: int
    seen: dict[str, Any]
    batch: dict[str, Any]
    event: str | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """Whose key, credit and queue it is; paused while one of them is wanting."""

    name: str
    paused_at: float | None = None
    pause_reason: str | None = None
    pause_kind: str | None = None  # auth, billing
    not_before: float | None = None


@dataclass(frozen=True, slots=True)
class RowResult:
    """The final word on one row of one batch, as merge needs it."""

    row: int
    outcome: str
    answer: str | None = None
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    model: str | None = None
    error_code: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a job's history."""

    at: float
    kind: str
    text: str
    batch: int | None = None
    source: str | None = None
    target: str | None = None
    count: int | None = None
    detail: dict[str, Any] = field(default_factory=dict)
