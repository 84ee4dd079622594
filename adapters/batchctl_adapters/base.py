"""What an adapter is: a small mandatory interface, and everything that differs between providers as data.

Nothing here knows a provider, a store or the engine. Times are UTC epoch seconds, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol

CUSTOM_ID_PATTERN = r"^[A-Za-z0-9_-]{1,64}$"
"""The alphabet every provider takes (PROVIDERS.md 1.4)."""

Kind = Literal["chat", "responses", "embedding", "completion", "moderation"]
"""What a task asks for, in no provider's words; a profile says which endpoint each is."""

ASKED_IN_MESSAGES: frozenset[Kind] = frozenset({"chat", "responses"})
"""Kinds whose requests carry `messages`; the others carry `input` texts."""


class Outcome(StrEnum):
    """What the provider's final word means for the row. Only `succeeded` is success."""

    SUCCEEDED = "succeeded"
    TRUNCATED = "truncated"
    EMPTY = "empty"
    REFUSED = "refused"
    FILTERED = "filtered"
    INVALID = "invalid"
    ERRORED = "errored"  # permanent: the same request would fail the same way
    ERRORED_TRANSIENT = "errored_transient"
    EXPIRED = "expired"
    CANCELED = "canceled"
    MISSING = "missing"  # in no result file: unknown, maybe billed
    GONE = "gone"  # the provider no longer has the batch or its results

    @property
    def is_resent(self) -> bool:
        """True where the engine sends the row again by itself, up to the job's cap (PROVIDERS.md 2.6)."""
        return self in _RESENT


_RESENT = frozenset({Outcome.ERRORED_TRANSIENT, Outcome.EXPIRED, Outcome.CANCELED})


@dataclass(frozen=True, slots=True)
class Output:
    """The shape a task asks the answer to have; `labels` and `schema` belong to their own kinds only."""

    kind: Literal["text", "labels", "json_schema"] = "text"
    labels: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    name: str = "answer"


@dataclass(frozen=True, slots=True)
class Request:
    """One row, rendered, in no provider's words.

    `messages` are `{"role": "system" | "user" | "assistant", "content": ...}` in order; a content is a text or a list
    of parts: `{"type": "text", "text": ...}`, `{"type": "image", "url": ...}` and `{"type": "image", "media_type":
    "image/png", "data": BASE64}`. Kinds that are not asked in messages have `input` instead: one text, or for an
    embedding one or more. `params` are portable settings (temperature, top_p, seed, stop; dimensions of an embedding);
    `provider_params` are merged into the body as they are.
    """

    model: str
    messages: list[dict[str, Any]]
    output: Output = field(default_factory=Output)
    max_output_tokens: int | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    provider_params: Mapping[str, Any] = field(default_factory=dict)
    kind: Kind = "chat"
    input: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a request that the provider would refuse, or that does not do what it seems to.

    `place` is the key in the task file (`provider_params.stream`), `what` and `fix` are for the user. Where `doubtful`,
    it is a warning: the rule is a provider's habit that may change, or the request may be meant like that.
    """

    place: str
    what: str
    fix: str
    doubtful: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.what}; {self.fix}"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a provider promises, as data; the engine branches on these and never on a provider's name."""

    max_requests: int  # in one batch
    max_bytes: int  # of one batch as it is sent
    max_line_bytes: int
    window_s: float  # the provider's completion window
    result_ttl_s: float  # how long results can be fetched after the batch ended
    transport: Literal["file", "inline"]
    mixed_models: bool
    can_find_by_tag: bool
    cancel_keeps_partials: bool
    cancel_p95_s: float
    idempotent_create: bool
    poll_interval_s: float  # the shortest cadence
    create_limit_s: float  # total time of one create, enforced around the SDK
    grace_s: float  # after `create_limit_s`, before anybody looks for the batch
    proof_span_s: float  # absence is proved by looks spread over at least this long
    proof_looks: int
    concurrent_uploads: int
    min_requests: int = 1
    kinds: frozenset[Kind] = frozenset({"chat"})
    max_inputs: int | None = None  # texts of all embedding requests in one batch (CASES.md 43)
    max_request_inputs: int | None = None  # texts of one embedding request
    wire: Literal["openai", "anthropic"] | None = None  # whose ready-made bodies it takes as they are
    discount: float = 0.5
    terms_url: str = ""
    as_of: str = ""


class Phase(StrEnum):
    """Where a remote batch stands; the provider's raw status is kept beside it."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDING = "ending"  # finalizing, cancelling
    ENDED = "ended"  # terminal, whatever became of the rows
    UNKNOWN = "unknown"  # a status nobody told us of: polled on, warned about, never counted as success


@dataclass(frozen=True, slots=True)
class Counts:
    """The provider's own counts: a hint for progress, never the truth (PROVIDERS.md 16.7)."""

    total: int
    succeeded: int
    failed: int


@dataclass(frozen=True, slots=True)
class BatchError:
    """One entry of a failed batch's errors; `line` is 1-based in the file as it was sent."""

    code: str | None
    message: str
    line: int | None = None
    param: str | None = None


@dataclass(frozen=True, slots=True)
class RemoteBatch:
    """A batch as the provider describes it. `files` are handles for `fetch`, in the order they should be read."""

    remote_id: str
    raw_status: str
    phase: Phase
    created_at: float | None = None
    expires_at: float | None = None
    ended_at: float | None = None
    counts: Counts | None = None
    files: tuple[str, ...] = ()
    errors: tuple[BatchError, ...] = ()
    resend: Literal["queue_full", "billing", "file", "transient"] | None = None
    """Why an ended batch that ran nothing may be sent again as it is; None where it may not."""
    tag: str | None = None
    upload_id: str | None = None

    @property
    def ran_nothing(self) -> bool:
        """True only where counts are absent or zero and there is no result file: nothing was answered or billed."""
        counted = self.counts is not None and (self.counts.total or self.counts.succeeded or self.counts.failed)
        return self.phase is Phase.ENDED and not counted and not self.files


@dataclass(frozen=True, slots=True)
class Upload:
    """A file at the provider. `ready` is False while the provider still processes it."""

    upload_id: str
    name: str
    size: int | None = None
    created_at: float | None = None
    ready: bool = True


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer, as the provider counted them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """The provider's final word on one request, judged by its content and not by the file it stood in.

    `text` is the answer: of an embedding its vectors as `vectors.pack` writes them, of a moderation a JSON object with
    `flagged`, `categories` and `category_scores`. Where the answer came in several texts, `text` is all of them joined
    and `parts` is each of them.
    """

    custom_id: str
    outcome: Outcome
    text: str | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    model: str | None = None  # as echoed, with the fingerprint where there is one
    error_code: str | None = None
    error: str | None = None
    parts: tuple[str, ...] = ()


class BadLine(ValueError):
    """A result line that no row can be read from: quarantined by the engine, never guessed at."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A create that may or may not have happened, as `find` needs to know it.

    `since` is when the upload was made (or the create began); `known_ids` are remote ids the store already has;
    `control` names an object of this account that must be visible for a look to count: the upload, or once that is
    deleted (the fence) another upload or batch known to exist; None where the caller has checked the key otherwise.
    """

    tag: str
    upload_id: str | None
    since: float
    known_ids: frozenset[str]
    control: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """The lost batch, there."""

    batch: RemoteBatch


@dataclass(frozen=True, slots=True)
class Absent:
    """One complete look that saw the control and not the batch. Several, spread over time, are the proof."""


@dataclass(frozen=True, slots=True)
class Unsure:
    """A look that proves nothing: the control is not visible (rotated key, other project), or several candidates."""

    reason: str


Sighting = Found | Absent | Unsure


@dataclass(frozen=True, slots=True)
class Observed:
    """What one poll saw: the batches asked for, those the provider says do not exist, and late ones by tag.

    A batch in neither was not seen this time (its call failed): nothing follows from that.
    """

    batches: Mapping[str, RemoteBatch]
    gone: frozenset[str] = frozenset()
    late: Mapping[str, RemoteBatch] = field(default_factory=dict)


class BatchAdapter(Protocol):
    """A provider's protocol. Methods block, raise only what `errors.py` has, and retry nothing by themselves."""

    @property
    def capabilities(self) -> Capabilities: ...

    def encode_body(self, request: Request) -> bytes:
        """The request as JSON bytes without a line end, in this provider's words. Deterministic.

        What requests share is encoded once: the same `output`, `params` and `provider_params` objects mean the same
        content. Raises ValueError for what cannot be sent.
        """
        ...

    def lint(self, request: Request) -> list[Finding]:
        """What can be told of any row's request before a row is sent: from its model, kind and settings."""
        ...

    def encode_line(self, custom_id: str, body: bytes, *, kind: Kind = "chat") -> bytes:
        """One line as it is sent, `\\n` included: sizes are measured on this and not guessed."""
        ...

    def upload(self, lines: Iterable[bytes], *, name: str, size: int) -> Upload | None:
        """Send the lines as one file of exactly `size` bytes, streamed; None where nothing is uploaded (inline).

        A wrapper can try again only with `lines` that can be iterated again: not an iterator or generator.
        """
        ...

    def create(self, upload_id: str | None, lines: Iterable[bytes], *, tag: str, kind: Kind = "chat") -> RemoteBatch:
        """Create the batch once, never retried here; `kind` is that of its lines.

        Raises SubmitUnknown unless it is certain that no batch was created. `lines` is for inline transports.
        """
        ...

    def find(self, doubt: Doubt) -> Sighting:
        """One complete look for a lost create, newest first, to the first item older than `doubt.since`."""
        ...

    def poll(self, remote_ids: Collection[str], *, watch: Collection[str] = ()) -> Observed:
        """Ask for many batches at once, by list where that is fewer calls; `watch` are tags thought absent."""
        ...

    def fetch(self, handle: str) -> Iterator[bytes]:
        """The bytes of one result file in chunks. Raises Transient where it came shorter than announced."""
        ...

    def parse(self, line: bytes, *, kind: Kind = "chat") -> Result:
        """One result line, without its line end. Raises BadLine where it cannot be read or has no id."""
        ...

    def cancel(self, remote_id: str) -> None:
        """Ask for cancellation; a batch that already ended is no error."""
        ...

    def delete_upload(self, upload_id: str) -> None:
        """Delete an uploaded file; one that is not there is no error."""
        ...

    def list_uploads(self, prefix: str) -> Iterator[Upload]:
        """Uploaded files whose name begins with `prefix`."""
        ...

    def close(self) -> None: ...
