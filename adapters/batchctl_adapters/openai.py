"""OpenAI and endpoints that speak its Files and Batches wire, over the official SDK. The only file that imports it.

The SDK's own retries are off everywhere: it would send a create again that may have worked (PROVIDERS.md 2.8).
Answers are read as JSON and judged in `openai_wire.py`; the SDK's models are not used, because they pass anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

import orjson

from . import openai_wire as wire
from .base import (
    Absent,
    Capabilities,
    Doubt,
    Finding,
    Kind,
    Observed,
    Phase,
    RemoteBatch,
    Request,
    Result,
    Sighting,
    Unsure,
    Upload,
)
from .bounded import BoundedCall, OutOfTime
from .errors import AdapterError, Billing, Permanent, RemoteGone, SubmitUnknown, Transient
from .keys import Secret, is_loopback
from .openai_body import BodyEncoder
from .openai_lint import lint
from .openai_listing import Listing, match, sweep
from .openai_results import parse_result
from .profile import Profile
from .streaming import FileOfLines, SizeMismatch

if TYPE_CHECKING:
    import ssl

    import httpx2
    from openai import OpenAI

T = TypeVar("T")

_CONNECT_S, _IO_S, _UPLOAD_READ_S = 15.0, 60.0, 600.0
_CHUNK_BYTES = 256 * 1024
_PAGE = 100  # batches.list takes 1..100 (PROVIDERS.md 2.1)
_REFUSALS = frozenset({400, 401, 402, 403, 404, 413, 422, 429})
_WATCH_MARGIN_S = 48 * 3600
"""An absent tag is watched for the window and this long (DESIGN.md 4)."""
_FAILED_RETRIEVES = 3
"""After this many failures in a row one poll asks for no more."""


class OpenAIAdapter:
    """The adapter for `profile`; `key` may be empty where the endpoint wants none. Connects on first use."""

    def __init__(self, profile: Profile, key: Secret) -> None:
        self._profile = profile
        self._key = key
        self._encoder = BodyEncoder(profile)
        self._client: OpenAI | None = None
        self._tls: ssl.SSLContext | None = None
        self._closed = False
        self._lock = threading.Lock()

    @property
    def capabilities(self) -> Capabilities:
        profile = self._profile
        return Capabilities(
            max_requests=profile.max_requests,
            max_bytes=profile.max_bytes,
            max_line_bytes=profile.max_line_bytes,
            window_s=profile.window_s,
            result_ttl_s=profile.result_ttl_s,
            transport="file",
            mixed_models=False,
            can_find_by_tag=profile.metadata,
            cancel_keeps_partials=True,
            cancel_p95_s=profile.cancel_p95_s,
            idempotent_create=False,
            poll_interval_s=profile.poll_interval_s,
            create_limit_s=profile.create_limit_s,
            grace_s=profile.grace_s,
            proof_span_s=profile.proof_span_s,
            proof_looks=profile.proof_looks,
            concurrent_uploads=profile.concurrent_uploads,
            kinds=frozenset(profile.endpoints),
            max_inputs=profile.max_inputs,
            max_request_inputs=profile.max_request_inputs,
            wire="openai",
            discount=profile.discount,
            terms_url=profile.terms_url,
            as_of=profile.as_of,
        )

    def encode_body(self, request: Request) -> bytes:
        """As `BodyEncoder.body`: `output`, `params` and `provider_params` are taken as constant objects."""
        return self._encoder.body(request)

    def lint(self, request: Request) -> list[Finding]:
        """As `openai_lint.lint`."""
        return lint(request, self._profile)

    def encode_line(self, custom_id: str, body: bytes, *, kind: Kind = "chat") -> bytes:
        """As `BodyEncoder.line`."""
        return self._encoder.line(custom_id, body, kind)

    def upload(self, lines: Iterable[bytes], *, name: str, size: int) -> Upload:
        """Stream the lines as `<name>.jsonl` of exactly `size` bytes; a name without that ending is refused (case 53).

        Raises Permanent (code `size_mismatch`) before the request is complete where the lines are not `size` bytes.
        """
        file = FileOfLines(lines, size)
        extra: dict[str, Any] = {}
        if (seconds := self._profile.upload_expires_after_s) is not None:
            extra["expires_after"] = {"anchor": "created_at", "seconds": seconds}
        client = self._open()
        try:
            data = self._json(
                lambda: client.files.with_raw_response.create(
                    file=(name if name.endswith(".jsonl") else f"{name}.jsonl", cast("IO[bytes]", file)),
                    purpose="batch",
                    timeout=self._timeout(read=_UPLOAD_READ_S),
                    **extra,
                ),
                what="upload",
            )
        except SizeMismatch as err:
            raise Permanent(f"upload of {name}: {err}; the file was not sent", code="size_mismatch") from None
        except AdapterError as err:
            if isinstance(err, Billing) or not wire.is_storage_full(err.status or 0, err.code, err.message):
                raise
            hint = f"{err.message}; delete files at the provider that are no longer needed"
            raise Transient(hint, code="storage_full", status=err.status) from None
        upload = self._parsed(wire.parse_upload, data, "upload")
        if str(data.get("status", "")).lower() in ("error", "failed"):
            raise Permanent(self._key.scrub(f"upload of {name} was not accepted: {data.get('status_details')}"))
        return upload

    def create(self, upload_id: str | None, lines: Iterable[bytes], *, tag: str, kind: Kind = "chat") -> RemoteBatch:
        """One POST on a connection of its own, within `create_limit_s` in all; afterwards nothing more can be sent.

        Raises SubmitUnknown once a byte may have left without a trustworthy answer; Transient where none left, and
        with code `file_not_visible` where the uploaded file is not ready yet; else what the refusal says.
        """
        if upload_id is None:
            raise ValueError("this provider takes batches as uploaded files only")
        if (endpoint := self._profile.endpoints.get(kind)) is None:
            what = f"create: profile {self._profile.name} has no endpoint for {kind} any more; nothing was sent"
            raise Transient(what, code="not_sent")
        limit = self._profile.create_limit_s
        call = BoundedCall()
        client = self._open()
        http = self._http(call.hook, reuse=False)
        # The total is what counts; a time-out of a single read is only there in case the thread is left behind.
        once = client.with_options(http_client=http, max_retries=0, timeout=self._timeout(read=limit + _IO_S))
        try:
            raw = call.run(lambda: self._post_batch(once, upload_id, tag, endpoint), limit)
        except OutOfTime as err:
            raise self._no_answer(call, str(err)) from None
        except Exception as err:
            raise self._refused(call, err) from None
        finally:
            http.close()
        try:
            return wire.parse_batch(orjson.loads(raw))
        except ValueError:
            raise self._no_answer(call, "the answer is not a batch") from None

    def _post_batch(self, client: OpenAI, upload_id: str, tag: str, endpoint: str) -> bytes:
        profile = self._profile
        extra: dict[str, Any] = {"metadata": {wire.TAG_KEY: tag}} if profile.metadata else {}
        if (seconds := profile.output_expires_after_s) is not None:
            extra["output_expires_after"] = {"anchor": "created_at", "seconds": seconds}
        # The SDK's types know OpenAI's own window and endpoints only; at run time any are passed on.
        extra |= {"completion_window": profile.completion_window, "endpoint": endpoint}
        return client.batches.with_raw_response.create(input_file_id=upload_id, **extra).http_response.content

    def _no_answer(self, call: BoundedCall, why: str) -> AdapterError:
        if not call.begun:
            return Transient(f"create: {why}; nothing was sent", code="not_sent")
        return SubmitUnknown(f"create: {why}; the batch may exist, and is looked for before anything is sent again")

    def _refused(self, call: BoundedCall, err: Exception) -> BaseException:
        """What a failed create means. Anything that is not the provider's own refusal is doubt once a byte has left."""
        from openai import APIConnectionError, APIStatusError

        if isinstance(err, APIConnectionError):
            return self._no_answer(call, self._why(err))
        if not isinstance(err, APIStatusError):
            return self._no_answer(call, type(err).__name__) if call.begun else err
        status, body = err.status_code, err.response.content
        if status not in _REFUSALS or wire.own_error(body) is None:
            return self._no_answer(call, f"HTTP {status}")
        refusal = self._classify(err, "create")
        if wire.is_missing_file(status, refusal.message) and not isinstance(refusal, Transient):
            return Transient(refusal.message, code="file_not_visible", status=status)
        return refusal

    def find(self, doubt: Doubt) -> Sighting:
        """One complete look: the control first, then the list, newest first, until older than `doubt.since`.

        A batch that matches is Found even if the control is not visible. A batch that matches in one half only (the
        file but no tag, the tag but another file), several matches, an unreadable list, or a control that was named and
        is not visible: Unsure.
        """
        control_seen = self._sees(doubt)
        listing = Listing()
        sweep(self._pages, listing, until=doubt.since, stop=lambda: False)
        sighting = match(listing, doubt, by_tag=self._profile.metadata)
        if isinstance(sighting, Absent) and not control_seen:
            return Unsure(f"{doubt.control} is not visible with this key: another project's key, or it was deleted")
        return sighting

    def _sees(self, doubt: Doubt) -> bool:
        control = doubt.control
        if control is None:
            return True
        client = self._open()
        is_file = control == doubt.upload_id or not control.startswith("batch")
        resource = client.files.with_raw_response if is_file else client.batches.with_raw_response
        try:
            data = self._json(lambda: resource.retrieve(control), what=f"look at {control}", gone=True)
        except RemoteGone:
            return False
        return data.get("id") == control

    def poll(self, remote_ids: Collection[str], *, watch: Collection[str] = ()) -> Observed:
        """As `base.py` says. The list is read until a page brings less than two of the batches asked for (one such page
        in a row for each hundred still missing), the rest is retrieved; with `watch` the list is read back over the
        window and 48 hours.

        Failures of single batches do not hide the others: they are left out of the answer, and raised only where
        nothing at all was seen.
        """
        wanted, tags = set(remote_ids), frozenset(watch)
        listing = Listing()
        first: Transient | None = None
        if len(wanted) > 1 or tags:
            try:
                self._poll_list(wanted, tags, listing)
            except Transient as err:
                first = err
        batches = {key: batch for key, batch in listing.batches.items() if key in wanted}
        late = {batch.tag: batch for batch in reversed(listing.batches.values()) if batch.tag and batch.tag in tags}
        gone: set[str] = set()
        if first is None or first.status != 429:
            first = self._retrieve(wanted - batches.keys(), batches, gone) or first
        if first is not None and not batches and not gone and not late:
            raise first
        return Observed(batches, frozenset(gone), late)

    def _poll_list(self, wanted: Collection[str], tags: frozenset[str], listing: Listing) -> None:
        left, unseen, barren = set(wanted), set(tags), 0

        def enough() -> bool:
            nonlocal barren
            before = len(left)
            left.difference_update(listing.batches)
            if tags:
                unseen.difference_update(batch.tag for batch in listing.batches.values())
                return not left and not unseen
            barren = barren + 1 if before - len(left) < 2 else 0
            return not left or barren * _PAGE >= len(left)

        # No clock is asked: the newest batch was created before now, so counting from it looks back far enough.
        back = self._profile.window_s + _WATCH_MARGIN_S if tags else None
        sweep(self._pages, listing, back=back, stop=enough)

    def _retrieve(self, remote_ids: Iterable[str], batches: dict[str, RemoteBatch], gone: set[str]) -> Transient | None:
        """Ask for single batches; the first failure, if any, after trying the others."""
        first: Transient | None = None
        in_a_row = 0
        for remote_id in sorted(remote_ids):
            try:
                batches[remote_id] = self._batch(remote_id)
                in_a_row = 0
            except RemoteGone:
                gone.add(remote_id)
                in_a_row = 0
            except Transient as err:
                first, in_a_row = first or err, in_a_row + 1
                if err.status == 429 or in_a_row == _FAILED_RETRIEVES:
                    break
        return first

    def _batch(self, remote_id: str) -> RemoteBatch:
        client, what = self._open(), f"look at {remote_id}"
        data = self._json(lambda: client.batches.with_raw_response.retrieve(remote_id), what=what, gone=True)
        batch = self._parsed(wire.parse_batch, data, what)
        if batch.remote_id != remote_id:
            raise Transient(f"{what}: the answer is about {batch.remote_id}")
        return batch

    def fetch(self, handle: str) -> Iterator[bytes]:
        """The file's bytes in chunks. A body shorter than its Content-Length, or a chunked one cut off, is Transient.

        A server that announces no length may close in the middle and look as if it were done: the file's own record
        is asked for its size then. Where that says nothing, the caller compares the last line end and the number of
        lines. Redirects to another host are refused.
        """
        client, what, received = self._open(), f"download of {handle}", 0
        content = client.files.with_streaming_response.content
        with self._translated(what, gone=True), content(handle) as response:
            announced = "content-length" in response.headers
            for chunk in response.iter_bytes(_CHUNK_BYTES):
                received += len(chunk)
                yield chunk
        if not announced and received < (size := self._size_of(handle)):
            raise Transient(f"{what}: it ended after {received} of {size} bytes")

    def _size_of(self, handle: str) -> int:
        """How large the provider says that a file is, in bytes; 0 where it does not say."""
        client, what = self._open(), f"look at {handle}"
        try:
            data = self._json(lambda: client.files.with_raw_response.retrieve(handle), what=what, gone=True)
        except (RemoteGone, Permanent):
            return 0
        return self._parsed(wire.parse_upload, data, what).size or 0

    def parse(self, line: bytes, *, kind: Kind = "chat") -> Result:
        """As `openai_results.parse_result`."""
        return parse_result(line, kind)

    def cancel(self, remote_id: str) -> None:
        """Ask for cancellation. A refusal is fine where the batch ended or is ending (CASES.md 5)."""
        client, what = self._open(), f"cancel of {remote_id}"
        try:
            self._json(lambda: client.batches.with_raw_response.cancel(remote_id), what=what, gone=True)
        except AdapterError as err:
            if err.status not in (400, 409) or self._batch(remote_id).phase not in (Phase.ENDED, Phase.ENDING):
                raise

    def delete_upload(self, upload_id: str) -> None:
        """Delete an uploaded file; one that is not there is no error."""
        client = self._open()
        try:
            self._json(lambda: client.files.with_raw_response.delete(upload_id), what=f"delete {upload_id}", gone=True)
        except RemoteGone:
            return

    def list_uploads(self, prefix: str) -> Iterator[Upload]:
        """Batch input files whose name begins with `prefix`, in the provider's order, without unreadable entries."""
        client = self._open()

        def page(after: str | None) -> Mapping[str, Any]:
            cursor: dict[str, Any] = {} if after is None else {"after": after}
            call = client.files.with_raw_response.list
            return self._json(lambda: call(purpose="batch", limit=1000, **cursor), what="list of files")

        seen: set[str] = set()
        after: str | None = None
        while True:
            data = page(after)
            fresh = [item for item in wire.entries(data) if item["id"] not in seen]
            for item in fresh:
                seen.add(item["id"])
                if (upload := wire.parse_upload(item)).name.startswith(prefix):
                    yield upload
            if not fresh or data.get("has_more") is False:
                return
            after = fresh[-1]["id"]

    def close(self) -> None:
        """Close the connections; the adapter is not used afterwards."""
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _pages(self, after: str | None) -> Mapping[str, Any]:
        client = self._open()
        cursor: dict[str, Any] = {} if after is None else {"after": after}
        return self._json(lambda: client.batches.with_raw_response.list(limit=_PAGE, **cursor), what="list of batches")

    def _open(self) -> OpenAI:
        """The client, opened on first use: importing the SDK takes a second."""
        with self._lock:
            if self._closed:
                raise RuntimeError("this adapter is closed")
            if self._client is None:
                from openai import OpenAI

                self._client = OpenAI(
                    api_key=self._key.reveal() or "none",  # never the environment's own key
                    base_url=self._profile.base_url,
                    max_retries=0,
                    timeout=self._timeout(),
                    http_client=self._http(),
                )
            return self._client

    def _http(self, *hooks: Callable[[httpx2.Request], None], reuse: bool = True) -> httpx2.Client:
        import httpx2

        local = is_loopback(self._profile.base_url)
        if self._tls is None:  # loading the certificates takes longer than a call
            self._tls = httpx2.create_ssl_context(trust_env=not local)
        limits = httpx2.Limits(max_connections=100, max_keepalive_connections=20 if reuse else 0)
        return httpx2.Client(
            follow_redirects=True,
            limits=limits,
            timeout=self._timeout(),
            trust_env=not local,  # no proxy between this machine and itself
            verify=self._tls,
            event_hooks={"request": list(hooks), "response": [_refuse_redirect]},
        )

    def _timeout(self, read: float = _IO_S) -> httpx2.Timeout:
        import httpx2

        return httpx2.Timeout(connect=_CONNECT_S, read=read, write=_IO_S, pool=_IO_S)

    def _json(self, call: Callable[[], Any], *, what: str, gone: bool = False) -> Mapping[str, Any]:
        """The answer as a JSON object; everything else is one of `errors.py`."""
        with self._translated(what, gone=gone):
            content: bytes = call().http_response.content
        try:
            data = orjson.loads(content)
        except ValueError:
            raise Transient(f"{what}: the answer is not JSON") from None
        if not isinstance(data, dict):
            raise Transient(f"{what}: the answer is not a JSON object")
        if data.get("id") is None and isinstance(error := data.get("error"), dict):  # CASES.md 9
            message = self._key.scrub(f"{what}: {error.get('message')}")
            raise (RemoteGone if gone and wire.says_absent(error) else Transient)(message, status=200)
        return data

    def _parsed(self, parse: Callable[[object], T], data: object, what: str) -> T:
        try:
            return parse(data)
        except ValueError as err:
            raise Transient(f"{what}: {err}") from None

    @contextmanager
    def _translated(self, what: str, *, gone: bool = False) -> Iterator[None]:
        """Turn the SDK's and the HTTP client's exceptions into ours, without their text: it may echo the key."""
        import httpx2
        from openai import APIConnectionError, APIStatusError

        try:
            yield
        except APIStatusError as err:
            raise self._classify(err, what, gone=gone) from None
        except (APIConnectionError, httpx2.HTTPError, httpx2.StreamError) as err:
            raise Transient(f"{what}: {self._why(err)}") from None

    def _classify(self, err: Any, what: str, *, gone: bool = False) -> AdapterError:
        response = err.response
        return wire.classify(
            err.status_code, response.content, response.headers, what=what, clean=self._key.scrub, gone=gone
        )

    def _why(self, err: BaseException) -> str:
        """The reason behind the SDK's "Connection error.", in one line."""
        cause = err.__cause__ or err
        return self._key.scrub(f"{type(cause).__name__}: {cause}".rstrip(": "))


def _refuse_redirect(response: httpx2.Response) -> None:
    """Follow redirects of a GET within the host only: a create is sent once, and results come from the provider."""
    if not response.has_redirect_location:
        return
    import httpx2

    target = response.url.join(response.headers["location"])
    if response.request.method != "GET" or (target.scheme, target.netloc) != (response.url.scheme, response.url.netloc):
        raise httpx2.RemoteProtocolError(f"redirect to {target.host} refused")
