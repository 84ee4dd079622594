"""The one place that waits: a wrapper that tries an adapter's calls again. Nothing else imports tenacity.

Only `Transient` is tried again, and of that neither a full queue nor a full file storage: these end when other batches
end, hours later, so the engine comes back for them. `create` is never tried again: it might make a second, paid batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeVar

import tenacity

from .base import (
    BatchAdapter,
    Capabilities,
    Doubt,
    Finding,
    Kind,
    Observed,
    RemoteBatch,
    Request,
    Result,
    Sighting,
    Upload,
)
from .errors import QueueFull, Transient

T = TypeVar("T")


class Waiting:
    """Any adapter, patient: exponential backoff with jitter, never shorter than the `retry_after` the provider asked.

    A call is given up, and its last error raised as it is, after `attempts` tries or where the next wait would bring
    the seconds waited over `budget_s`: a long `retry_after` is the engine's to keep. Uploads are tried again only where
    `lines` can be iterated again (a list, a reader's object; not a generator); downloads only until their first chunk.
    """

    def __init__(
        self,
        adapter: BatchAdapter,
        *,
        attempts: int = 5,
        budget_s: float = 60.0,
        first_s: float = 0.5,
        longest_s: float = 20.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._adapter = adapter
        self._attempts = attempts
        self._budget_s = budget_s
        self._backoff = tenacity.wait_random_exponential(multiplier=first_s, max=longest_s, min=first_s)
        self._sleep = sleep

    @property
    def capabilities(self) -> Capabilities:
        return self._adapter.capabilities

    def encode_body(self, request: Request) -> bytes:
        return self._adapter.encode_body(request)

    def lint(self, request: Request) -> list[Finding]:
        return self._adapter.lint(request)

    def encode_line(self, custom_id: str, body: bytes, *, kind: Kind = "chat") -> bytes:
        return self._adapter.encode_line(custom_id, body, kind=kind)

    def upload(self, lines: Iterable[bytes], *, name: str, size: int) -> Upload | None:
        once = iter(lines) is lines
        return self._patiently(lambda: self._adapter.upload(lines, name=name, size=size), attempts=1 if once else None)

    def create(self, upload_id: str | None, lines: Iterable[bytes], *, tag: str, kind: Kind = "chat") -> RemoteBatch:
        """Passed on as it is, once."""
        return self._adapter.create(upload_id, lines, tag=tag, kind=kind)

    def find(self, doubt: Doubt) -> Sighting:
        return self._patiently(lambda: self._adapter.find(doubt))

    def poll(self, remote_ids: Collection[str], *, watch: Collection[str] = ()) -> Observed:
        return self._patiently(lambda: self._adapter.poll(remote_ids, watch=watch))

    def fetch(self, handle: str) -> Iterator[bytes]:
        """A download that breaks off later is the caller's to start again: its first chunks are already out."""

        def begin() -> tuple[bytes | None, Iterator[bytes]]:
            chunks = self._adapter.fetch(handle)
            return next(chunks, None), chunks

        first, rest = self._patiently(begin)
        if first is not None:
            yield first
            yield from rest

    def parse(self, line: bytes, *, kind: Kind = "chat") -> Result:
        return self._adapter.parse(line, kind=kind)

    def cancel(self, remote_id: str) -> None:
        self._patiently(lambda: self._adapter.cancel(remote_id))

    def delete_upload(self, upload_id: str) -> None:
        self._patiently(lambda: self._adapter.delete_upload(upload_id))

    def list_uploads(self, prefix: str) -> Iterator[Upload]:
        yield from self._patiently(lambda: list(self._adapter.list_uploads(prefix)))

    def close(self) -> None:
        self._adapter.close()

    def _patiently(self, call: Callable[[], T], *, attempts: int | None = None) -> T:
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_worth_waiting),
            wait=self._wait,
            stop=lambda state: state.attempt_number >= (attempts or self._attempts) or self._over_budget(state),
            sleep=self._sleep,
            reraise=True,
        )
        return retrying(call)

    def _wait(self, state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        asked = error.retry_after if isinstance(error, Transient) else None
        return max(self._backoff(state), asked or 0.0)

    def _over_budget(self, state: tenacity.RetryCallState) -> bool:
        return state.idle_for + state.upcoming_sleep > self._budget_s


def _is_worth_waiting(error: BaseException) -> bool:
    return isinstance(error, Transient) and not isinstance(error, QueueFull) and error.code != "storage_full"
