"""What the server can be told at its start. Plain data: importing this costs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")

ENDPOINTS = (
    "/v1/responses",
    "/v1/chat/completions",
    "/v1/embeddings",
    "/v1/completions",
    "/v1/moderations",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/videos",
)
"""What create takes (PROVIDERS.md 2.1). An executor need not be able to run them all."""

MESSAGES_ENDPOINT = "/v1/messages"
"""Where the requests of Anthropic's batches go: it tells such a batch from one of OpenAI's."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest create of one wire: `max_bytes` of the upload (or of the body with its requests), and requests."""

    max_bytes: int
    max_requests: int


OPENAI_LIMITS = Limits(200_000_000, 50_000)  # measured (PROVIDERS.md 2.1)
MESSAGES_LIMITS = Limits(256_000_000, 100_000)  # PROVIDERS.md 3.4


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a batch takes, in seconds of the server's clock.

    `row_s` is the time between two answers of one batch; 0 means as fast as the executor really is. `jitter` varies
    each duration by up to that share, from the seed. `cancelling_s` is how long a cancel takes; rows keep finishing
    during its first half.
    """

    validation_s: float = 30
    queue_s: float = 300
    row_s: float = 0.05
    finalizing_s: float = 20
    cancelling_s: float = 300
    jitter: float = 0.0


INSTANT = Timing(validation_s=0, queue_s=0, row_s=0, finalizing_s=0, cancelling_s=0)
"""No time but the executor's own: for real models."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Everything `serve` needs.

    `state` None keeps the state in a temporary directory that goes away with the server. `keys` maps each accepted
    API key to a project; files and batches belong to a project; empty: any key, one project. `models` empty: any
    model name is known. `queue_limits` are enqueued prompt tokens by model, `*` for all others. `shares` are the
    rehearsal executor's (executors/rehearsal.py, each 0..1). `ledger_field` is a dotted path in
    the request line whose value identifies a row in the ledger instead of the body's hash (Anthropic's `params` are
    its `body` there). `max_file_bytes` and `max_requests` None: each wire's own (OPENAI_LIMITS, MESSAGES_LIMITS).
    `max_queued`: the most requests in Anthropic's queue at once; a create beyond is answered with 429.
    """

    executor: Literal["rehearsal", "llamacpp"] = "rehearsal"
    model: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    speed: float = 1.0
    seed: int = 0
    state: Path | None = None
    ready_file: Path | None = None
    faults: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    queue_limits: Mapping[str, int] = field(default_factory=dict)
    timing: Timing = field(default_factory=Timing)
    shares: Mapping[str, float] = field(default_factory=dict)
    ledger_field: str | None = None
    max_file_bytes: int | None = None
    max_requests: int | None = None
    max_queued: int | None = None
    stop_on_stdin_eof: bool = False

    def limits(self, own: Limits) -> Limits:
        """A wire's `own` limits, changed to what was asked for."""
        return Limits(self.max_file_bytes or own.max_bytes, self.max_requests or own.max_requests)
