"""`/v1/batches`."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from batchctl.gateway.faults import Kind
from batchctl.gateway.files_api import whole_number
from batchctl.gateway.gateway import Gateway
from batchctl.gateway.options import ENDPOINTS
from batchctl.gateway.state import DAY, TERMINAL, Batch
from batchctl.gateway.wire import (
    WireError,
    batch_json,
    cut_page,
    file_not_visible,
    is_listed,
    is_visible,
    no_batch,
    page_json,
)

_KNOWN = {"input_file_id", "endpoint", "completion_window", "metadata", "output_expires_after"}


def _required(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if value is None:
        raise WireError(400, f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter")
    if not isinstance(value, str):
        raise WireError(400, f"Invalid type for '{name}': expected a string.", param=name, code="invalid_type")
    return value


def _metadata(value: Any) -> dict[str, str] | None:
    """At most 16 pairs, keys to 64 and values to 512 characters (PROVIDERS.md 2.1)."""
    if value is None:
        return None
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        message = "Invalid type for 'metadata': expected an object whose values are strings."
        raise WireError(400, message, param="metadata", code="invalid_type")
    if len(value) > 16:
        message = f"Invalid 'metadata': too many properties. Expected at most 16, got {len(value)}."
        raise WireError(400, message, param="metadata", code="object_above_max_properties")
    for name, text in value.items():
        if len(name) > 64 or len(text) > 512:
            message = f"Invalid 'metadata.{name}': string too long. Keys have at most 64 characters, values 512."
            raise WireError(400, message, param=f"metadata.{name}", code="string_above_max_length")
    return value


def _output_life(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, dict) or value.get("anchor") != "created_at":
        message = "Invalid 'output_expires_after.anchor': expected 'created_at'."
        raise WireError(400, message, param="output_expires_after.anchor", code="invalid_value")
    return whole_number(str(value.get("seconds")), "output_expires_after.seconds", default=0, low=3_600, high=2_592_000)


def read_create(raw: bytes) -> dict[str, Any]:
    """The values of a new batch from a create's body. Raises WireError 400."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise WireError(400, f"We could not parse the JSON body of your request: {error}") from error
    if not isinstance(body, dict):
        raise WireError(400, "The body of the request must be a JSON object.")
    for name in body:
        if name not in _KNOWN:
            raise WireError(400, f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
    window = _required(body, "completion_window")
    if window != "24h":
        message = f"Invalid value: '{window}'. Supported values are: '24h'."
        raise WireError(400, message, param="completion_window", code="invalid_value")
    endpoint = _required(body, "endpoint")
    if endpoint not in ENDPOINTS:
        names = ", ".join(f"'{name}'" for name in ENDPOINTS)
        message = f"Invalid value: '{endpoint}'. Supported values are: {names}."
        raise WireError(400, message, param="endpoint", code="invalid_value")
    return {
        "input_file_id": _required(body, "input_file_id"),
        "endpoint": endpoint,
        "metadata": _metadata(body.get("metadata")),
        "output_expires_s": _output_life(body.get("output_expires_after")),
    }


def _create(gateway: Gateway, project: str, values: dict[str, Any]) -> Batch:
    now = gateway.clock.now()
    stored = gateway.state.file(values["input_file_id"], project, now)
    texts = [*(values["metadata"] or {}).values(), stored.filename if stored else ""]
    faults = [
        fault.model_dump(mode="json", exclude_defaults=True) | {"op": "batch"}
        for fault in gateway.schedule.on_batch(texts)
    ]
    batch = gateway.state.add_batch(
        project=project, created_at=now, expires_at=now + DAY, status="validating", faults=faults, **values
    )
    gateway.runner.wake()
    return batch


def _cancel(gateway: Gateway, batch: Batch) -> Batch:
    """Ask for cancellation; one that is being cancelled stays so, one that has ended is a 409."""
    state = gateway.state
    asked = state.update_batch(
        batch.id,
        expect=["validating", "in_progress", "finalizing"],
        status="cancelling",
        cancelling_at=gateway.clock.now(),
    )
    current = state.batch(batch.id)
    if not asked and current.status in TERMINAL:
        raise WireError(409, f"Cannot cancel a batch with status '{current.status}'.")
    gateway.runner.wake()
    return current


def routes(gateway: Gateway) -> list[Route]:
    """The routes of batches over this gateway's state."""
    state, clock = gateway.state, gateway.clock

    def visible(request: Request) -> Batch:
        batch_id = request.path_params["batch_id"]
        try:
            batch = state.batch(batch_id)
        except KeyError:
            raise no_batch(batch_id) from None
        if batch.is_messages or batch.project != request.state.project or not is_visible(batch, clock.now()):
            raise no_batch(batch_id)
        return batch

    async def create(request: Request) -> Response:
        values = read_create(await request.body())
        if request.state.fault is Kind.FILE_NOT_VISIBLE:
            raise file_not_visible(values["input_file_id"])
        batch = await run_in_threadpool(_create, gateway, request.state.project, values)
        return JSONResponse(batch_json(batch, clock.now()))

    async def retrieve(request: Request) -> Response:
        return JSONResponse(batch_json(await run_in_threadpool(visible, request), clock.now()))

    async def cancel(request: Request) -> Response:
        batch = await run_in_threadpool(visible, request)
        return JSONResponse(batch_json(await run_in_threadpool(_cancel, gateway, batch), clock.now()))

    async def list_batches(request: Request) -> Response:
        query = request.query_params
        limit = whole_number(query.get("limit"), "limit", default=20, low=1, high=100)
        if request.state.fault is Kind.LIST_EMPTY:
            return JSONResponse(page_json([], has_more=False))
        found = await run_in_threadpool(state.batches, request.state.project)
        now = clock.now()
        shown = [batch_json(batch, now) for batch in found if is_listed(batch, now)]
        return JSONResponse(cut_page(shown, after=query.get("after"), limit=limit))

    return [
        Route("/v1/batches", create, methods=["POST"], name="create"),
        Route("/v1/batches", list_batches, methods=["GET"], name="list"),
        Route("/v1/batches/{batch_id}", retrieve, methods=["GET"], name="retrieve"),
        Route("/v1/batches/{batch_id}/cancel", cancel, methods=["POST"], name="cancel"),
    ]
