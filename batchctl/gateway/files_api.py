"""`/v1/files`."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from batchctl.gateway.faults import Kind
from batchctl.gateway.gateway import Gateway
from batchctl.gateway.options import OPENAI_LIMITS
from batchctl.gateway.state import FILE_LIFE
from batchctl.gateway.upload import Form, receive
from batchctl.gateway.wire import WireError, cut_page, file_json, no_file, page_json

_CHUNK = 256 * 1024
_MAX_PAGE = 10_000


def whole_number(text: str | None, name: str, *, default: int, low: int, high: int) -> int:
    """A query or form number in low..high. Raises WireError 400."""
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
        message = f"Invalid '{name}': expected a whole number from {low} to {high}, got '{text}'."
        raise WireError(400, message, param=name, code="invalid_value")
    return int(text)


def _check_form(form: Form, max_bytes: int) -> float:
    """The file's life in seconds. Raises WireError 400."""
    purpose = form.fields.get("purpose")
    if purpose is None:
        raise WireError(
            400, "Missing required parameter: 'purpose'.", param="purpose", code="missing_required_parameter"
        )
    if purpose != "batch":
        message = f"'{purpose}' is not one of ['batch'] - 'purpose'"
        raise WireError(400, message, param="purpose")
    if form.filename is None:
        raise WireError(400, "Missing required parameter: 'file'.", param="file", code="missing_required_parameter")
    if not form.filename.endswith(".jsonl"):
        message = f"Invalid file format for Batch API. Must be .jsonl, but the file is named '{form.filename}'."
        raise WireError(400, message, param="file")
    if form.size > max_bytes:
        raise WireError(400, "File is too large.", param="file")
    anchor = form.fields.get("expires_after[anchor]")
    seconds = form.fields.get("expires_after[seconds]")
    if anchor is None and seconds is None:
        return FILE_LIFE
    if anchor != "created_at":
        raise WireError(400, "Invalid 'expires_after.anchor': expected 'created_at'.", param="expires_after.anchor")
    return whole_number(seconds, "expires_after.seconds", default=0, low=3_600, high=2_592_000)


def routes(gateway: Gateway) -> list[Route]:
    """The routes of files over this gateway's state."""
    state, clock = gateway.state, gateway.clock
    max_bytes = gateway.options.limits(OPENAI_LIMITS).max_bytes

    async def upload(request: Request) -> Response:
        target = state.parts_dir / f"upload-{secrets.token_hex(8)}"
        try:
            content_type = request.headers.get("content-type", "")
            form = await receive(request.stream(), content_type, target, max_bytes=max_bytes)
            life_s = _check_form(form, max_bytes)
            stored = await run_in_threadpool(
                state.add_file,
                target,
                project=request.state.project,
                filename=form.filename or "",
                purpose="batch",
                now=clock.now(),
                life_s=life_s,
            )
        finally:
            target.unlink(missing_ok=True)
        return JSONResponse(file_json(stored))

    async def list_files(request: Request) -> Response:
        query = request.query_params
        limit = whole_number(query.get("limit"), "limit", default=_MAX_PAGE, low=1, high=_MAX_PAGE)
        if request.state.fault is Kind.LIST_EMPTY:
            return JSONResponse(page_json([], has_more=False))
        if query.get("order", "desc") not in ("asc", "desc"):
            raise WireError(400, "Invalid 'order': expected 'asc' or 'desc'.", param="order", code="invalid_value")
        found = await run_in_threadpool(
            state.files,
            request.state.project,
            clock.now(),
            purpose=query.get("purpose"),
            ascending=query.get("order") == "asc",
        )
        return JSONResponse(cut_page([file_json(stored) for stored in found], after=query.get("after"), limit=limit))

    async def retrieve(request: Request) -> Response:
        file_id = request.path_params["file_id"]
        stored = await run_in_threadpool(state.file, file_id, request.state.project, clock.now())
        if stored is None:
            raise no_file(file_id)
        return JSONResponse(file_json(stored))

    async def delete(request: Request) -> Response:
        file_id = request.path_params["file_id"]
        stored = await run_in_threadpool(state.file, file_id, request.state.project, clock.now())
        if stored is None:
            raise no_file(file_id)
        await run_in_threadpool(state.delete_file, file_id, clock.now())
        return JSONResponse({"object": "file", "deleted": True, "id": file_id})

    async def content(request: Request) -> Response:
        file_id = request.path_params["file_id"]
        stored = await run_in_threadpool(state.file, file_id, request.state.project, clock.now())
        if stored is None:
            raise no_file(file_id)
        headers = {
            "content-length": str(stored.bytes),
            "content-disposition": f'attachment; filename="{stored.filename}"',
        }
        chunks = _read(state.path_of(file_id))
        return StreamingResponse(chunks, media_type="application/octet-stream", headers=headers)

    return [
        Route("/v1/files", upload, methods=["POST"], name="upload"),
        Route("/v1/files", list_files, methods=["GET"], name="list_files"),
        Route("/v1/files/{file_id}", retrieve, methods=["GET"], name="retrieve_file"),
        Route("/v1/files/{file_id}", delete, methods=["DELETE"], name="delete_file"),
        Route("/v1/files/{file_id}/content", content, methods=["GET"], name="content"),
    ]


async def _read(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as source:
        while chunk := source.read(_CHUNK):
            yield chunk
