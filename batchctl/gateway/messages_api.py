"""`/v1/messages/batches`: Anthropic's Message Batches (PROVIDERS.md 3.2) over the same state, runner and faults."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from batchctl.gateway.faults import Kind
from batchctl.gateway.gateway import Gateway
from batchctl.gateway.lines import ledger_key
from batchctl.gateway.messages_wire import batch_json, check_version, cut_page, has_results, no_batch, page_json
from batchctl.gateway.options import MESSAGES_ENDPOINT, MESSAGES_LIMITS
from batchctl.gateway.state import DAY, TERMINAL, Batch
from batchctl.gateway.wire import WireError, is_listed, is_visible

_PATTERN: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CHUNK: Final = 256 * 1024
_POLL_S: Final = 10  # what the answer to a poll says in `retry-after` as long as the batch runs (PROVIDERS.md 3.4)
_QUEUE_S: Final = 60  # ... and the refusal of a create for which the queue has no room


async def _read(request: Request, max_bytes: int) -> bytes:
    """The whole body. Raises WireError 413, once it was read to its end."""
    held, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= max_bytes:
            held += chunk
        else:
            held.clear()
    if size > max_bytes:
        raise WireError(413, f"Request exceeds the maximum size: {size:,} bytes, at most {max_bytes:,} are allowed")
    return bytes(held)


def _check_request(place: int, one: Any, seen: set[str]) -> None:
    """The envelope of a request; its params are looked at when it runs. Raises WireError 400."""
    where = f"requests.{place}"
    if not isinstance(one, dict):
        raise WireError(400, f"{where}: Input should be a valid dictionary or object to extract fields from")
    for name in ("custom_id", "params"):
        if name not in one:
            raise WireError(400, f"{where}.{name}: Field required")
    extra = next((name for name in one if name not in ("custom_id", "params")), None)
    if extra is not None:
        raise WireError(400, f"{where}.{extra}: Extra inputs are not permitted")
    custom_id = one["custom_id"]
    if not isinstance(custom_id, str):
        raise WireError(400, f"{where}.custom_id: Input should be a valid string")
    if len(custom_id) > 64:
        raise WireError(400, f"{where}.custom_id: String should have at most 64 characters")
    if not _PATTERN.fullmatch(custom_id):
        raise WireError(400, f"{where}.custom_id: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'")
    if not isinstance(one["params"], dict):
        raise WireError(400, f"{where}.params: Input should be a valid dictionary")
    if custom_id in seen:
        message = f"requests: custom_id's must be unique within a batch. Duplicate custom_id found: {custom_id}"
        raise WireError(400, message)
    seen.add(custom_id)


def read_create(raw: bytes, max_requests: int) -> list[dict[str, Any]]:
    """The requests of a create's body. Raises WireError 400 for a wrong envelope, 413 for too many."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise WireError(400, f"The request body is not valid JSON: {error}") from error
    if not isinstance(body, dict):
        raise WireError(400, "The request body should be a JSON object")
    if "requests" not in body:
        raise WireError(400, "requests: Field required")
    extra = next((name for name in body if name != "requests"), None)
    if extra is not None:
        raise WireError(400, f"{extra}: Extra inputs are not permitted")
    requests = body["requests"]
    if not isinstance(requests, list):
        raise WireError(400, "requests: Input should be a valid list")
    if not requests:
        raise WireError(400, "requests: List should have at least 1 item after validation, not 0")
    if len(requests) > max_requests:
        raise WireError(413, f"requests: {len(requests):,} requests, at most {max_requests:,} are allowed in a batch")
    seen: set[str] = set()
    for place, one in enumerate(requests):
        _check_request(place, one, seen)
    return requests


def _keep(path: Path, requests: list[dict[str, Any]], ledger_field: str | None) -> Iterator[tuple[int, str]]:
    """Write the requests down, one a line, as a batch runs them; yields each line's number and ledger key."""
    with path.open("wb") as target:
        for number, one in enumerate(requests, start=1):
            line = {"custom_id": one["custom_id"], "body": one["params"]}
            target.write(orjson.dumps(line) + b"\n")
            yield number, ledger_key(line, ledger_field)


def _create(gateway: Gateway, project: str, raw: bytes, version: str) -> Batch:
    options, state = gateway.options, gateway.state
    requests = read_create(raw, options.limits(MESSAGES_LIMITS).max_requests)
    now = gateway.clock.now()
    batch_id = f"msgbatch_{secrets.token_hex(12)}"
    name = f"{batch_id}.requests"
    keys = list(_keep(state.path_of(name), requests, options.ledger_field))
    with state.exclusive():
        if options.max_queued is not None and state.queued_requests(project) + len(requests) > options.max_queued:
            state.path_of(name).unlink()
            message = f"This would exceed your limit of {options.max_queued:,} requests in the batch processing queue"
            raise WireError(429, message, retry_after=_QUEUE_S)
        struck = gateway.schedule.on_batch([one["custom_id"] for one in requests])
        batch = state.add_batch(
            id=batch_id,
            keys=keys,
            project=project,
            endpoint=MESSAGES_ENDPOINT,
            input_file_id=name,
            metadata={"anthropic-version": version},
            created_at=now,
            expires_at=now + DAY,
            in_progress_at=now,
            status="in_progress",
            total=len(requests),
            faults=[fault.model_dump(mode="json", exclude_defaults=True) | {"op": "batch"} for fault in struck],
        )
    gateway.runner.wake()
    return batch


def _cancel(gateway: Gateway, batch: Batch) -> Batch:
    """Ask for cancellation; one that is being canceled stays so. Raises WireError 400 for one that has ended."""
    state = gateway.state
    state.update_batch(
        batch.id, expect=["in_progress", "finalizing"], status="cancelling", cancelling_at=gateway.clock.now()
    )
    current = state.batch(batch.id)
    if current.status in TERMINAL:
        raise WireError(400, f"Message Batch {batch.id} cannot be canceled: its processing has ended")
    gateway.runner.wake()
    return current


def _delete(gateway: Gateway, batch: Batch) -> dict[str, Any]:
    """Forget a batch that has ended, and its results. Raises WireError 400 for one that runs."""
    if not gateway.state.update_batch(batch.id, expect=TERMINAL, deleted_at=gateway.clock.now()):
        message = f"Message Batch {batch.id} cannot be deleted while it is processing: cancel it first"
        raise WireError(400, message)
    if batch.output_file_id is not None:
        gateway.state.path_of(batch.output_file_id).unlink(missing_ok=True)
    return {"id": batch.id, "type": "message_batch_deleted"}


def _limit(text: str | None) -> int:
    """A page's length, 1 to 1,000. Raises WireError 400."""
    if text is None:
        return 20
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 1_000):
        raise WireError(400, f"limit: Input should be a whole number from 1 to 1000, not '{text}'")
    return int(text)


def _visible(gateway: Gateway, request: Request) -> Batch:
    """The batch that the path names. Raises WireError 404."""
    batch_id = request.path_params["batch_id"]
    try:
        batch = gateway.state.batch(batch_id)
    except KeyError:
        raise no_batch(batch_id) from None
    known = batch.is_messages and batch.project == request.state.project and batch.deleted_at is None
    if not known or not is_visible(batch, gateway.clock.now()):
        raise no_batch(batch_id)
    return batch


def _page(gateway: Gateway, request: Request) -> dict[str, Any]:
    """The page of the list that the query asks for."""
    query = request.query_params
    limit = _limit(query.get("limit"))
    if request.state.fault is Kind.LIST_EMPTY:
        return page_json([], has_more=False)
    now, root_url = gateway.clock.now(), str(request.base_url)
    found = gateway.state.batches(request.state.project, messages=True)
    listed = [batch_json(batch, now, root_url) for batch in found if is_listed(batch, now)]
    return cut_page(listed, after=query.get("after_id"), before=query.get("before_id"), limit=limit)


def routes(gateway: Gateway) -> list[Route]:
    """The routes of Message Batches over this gateway's state."""
    state, clock = gateway.state, gateway.clock

    def visible(request: Request) -> Batch:
        check_version(request.headers.get("anthropic-version"))
        return _visible(gateway, request)

    def shown(request: Request, batch: Batch) -> Response:
        return JSONResponse(batch_json(batch, clock.now(), str(request.base_url)))

    async def create(request: Request) -> Response:
        raw = await _read(request, gateway.options.limits(MESSAGES_LIMITS).max_bytes)
        version = request.headers.get("anthropic-version")
        check_version(version)
        return shown(request, await run_in_threadpool(_create, gateway, request.state.project, raw, version or ""))

    async def retrieve(request: Request) -> Response:
        batch = await run_in_threadpool(visible, request)
        answer = shown(request, batch)
        if batch.status not in TERMINAL:
            answer.headers["retry-after"] = str(_POLL_S)
        return answer

    async def cancel(request: Request) -> Response:
        batch = await run_in_threadpool(visible, request)
        return shown(request, await run_in_threadpool(_cancel, gateway, batch))

    async def delete(request: Request) -> Response:
        batch = await run_in_threadpool(visible, request)
        return JSONResponse(await run_in_threadpool(_delete, gateway, batch))

    async def list_batches(request: Request) -> Response:
        check_version(request.headers.get("anthropic-version"))
        return JSONResponse(await run_in_threadpool(_page, gateway, request))

    async def results(request: Request) -> Response:
        batch = await run_in_threadpool(visible, request)
        if not has_results(batch, clock.now()) or batch.output_file_id is None:
            raise WireError(404, f"The results of Message Batch {batch.id} are not available")
        return StreamingResponse(_chunks(state.path_of(batch.output_file_id)), media_type="application/x-jsonl")

    path = f"{MESSAGES_ENDPOINT}/batches"
    return [
        Route(path, create, methods=["POST"]),
        Route(path, list_batches, methods=["GET"]),
        Route(f"{path}/{{batch_id}}", retrieve, methods=["GET"]),
        Route(f"{path}/{{batch_id}}", delete, methods=["DELETE"]),
        Route(f"{path}/{{batch_id}}/cancel", cancel, methods=["POST"]),
        Route(f"{path}/{{batch_id}}/results", results, methods=["GET"]),
    ]


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as source:
        while chunk := source.read(_CHUNK):
            yield chunk
