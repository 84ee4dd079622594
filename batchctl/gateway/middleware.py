"""What stands before the routes: the key, the count of calls, the faults of a request, and the headers.

Written against ASGI itself, because a dropped connection or a download cut short is not an answer that a framework
can give.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from batchctl.gateway.faults import Fault, Kind, Op
from batchctl.gateway.gateway import Gateway
from batchctl.gateway.messages_wire import is_messages
from batchctl.gateway.refusals import refusal
from batchctl.gateway.wire import WireError, wrong_key

_FOREVER_S: Final = 3_600.0
_OPS: Final = (
    ("POST", re.compile(r"/v1/files"), Op.UPLOAD),
    ("GET", re.compile(r"/v1/files"), Op.LIST_FILES),
    ("GET", re.compile(r"/v1/files/[^/]+"), Op.RETRIEVE_FILE),
    ("DELETE", re.compile(r"/v1/files/[^/]+"), Op.DELETE_FILE),
    ("GET", re.compile(r"/v1/files/[^/]+/content"), Op.CONTENT),
    ("POST", re.compile(r"/v1/batches"), Op.CREATE),
    ("GET", re.compile(r"/v1/batches"), Op.LIST),
    ("GET", re.compile(r"/v1/batches/[^/]+"), Op.RETRIEVE),
    ("POST", re.compile(r"/v1/batches/[^/]+/cancel"), Op.CANCEL),
    ("POST", re.compile(r"/v1/messages/batches"), Op.CREATE),
    ("GET", re.compile(r"/v1/messages/batches"), Op.LIST),
    ("GET", re.compile(r"/v1/messages/batches/[^/]+"), Op.RETRIEVE),
    ("DELETE", re.compile(r"/v1/messages/batches/[^/]+"), Op.DELETE),
    ("GET", re.compile(r"/v1/messages/batches/[^/]+/results"), Op.CONTENT),
    ("POST", re.compile(r"/v1/messages/batches/[^/]+/cancel"), Op.CANCEL),
)


class DroppableProtocol(H11Protocol):
    """uvicorn's HTTP protocol, with the connection within reach of the application, which may cut it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the parent
        super().connection_made(transport)
        self.app_state = {**self.app_state, "transport": transport}


def operation(method: str, path: str) -> Op | None:
    """Which operation of the wire a request is."""
    return next((op for verb, pattern, op in _OPS if verb == method and pattern.fullmatch(path)), None)


class Front:
    """The outermost application."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app, self._gateway = app, gateway
        self._request_faults: dict[Kind, Callable[[_Call, Fault], Awaitable[None]]] = {
            Kind.DROP: _drop,
            Kind.DROP_AFTER: _drop_after,
            Kind.ERROR: _error,
            Kind.ERROR_AFTER: _error_after,
            Kind.RATE_LIMIT: _error,
            Kind.SLOW: _slow,
            Kind.HANG: _hang,
            Kind.HANG_BEFORE: _hang_before,
            Kind.TRUNCATE: _truncate,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["state"]["request_id"] = f"req_{secrets.token_hex(12)}"
        call = _Call(self._app, scope, receive, self._with_headers(scope, send))
        if not scope["path"].startswith("/v1/"):
            await call.answer()
            return
        op = operation(scope["method"], scope["path"])
        self._gateway.count_call(op or "other")
        fault = self._gateway.schedule.on_request(op) if op else None
        scope["state"]["fault"] = fault.kind if fault else None
        try:
            scope["state"]["project"] = self._project(scope)
        except WireError as error:
            await call.reply(refusal(scope, error))
            return
        act = self._request_faults.get(fault.kind) if fault else None
        if fault is None or act is None:
            await call.answer()
        else:
            await act(call, fault)

    def _project(self, scope: Scope) -> str:
        """Whose key it is: `Authorization: Bearer KEY`, on Anthropic's wire `x-api-key: KEY` too; else WireError 401.

        Anthropic's SDK from 2.0 on sends its key as a bearer (anthropic/_client.py), plain HTTP the other header.
        """
        keys, headers = self._gateway.options.keys, Headers(scope=scope)
        if not keys:
            return "default"
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        key = bearer if scheme.lower() == "bearer" else ""
        missing = "You didn't provide an API key in the Authorization header (Bearer KEY)."
        if is_messages(scope["path"]):
            key, missing = headers.get("x-api-key", key), "x-api-key header is required"
        if not key:
            raise WireError(401, missing)
        if key not in keys:
            raise WireError(401, "invalid x-api-key") if is_messages(scope["path"]) else wrong_key(key)
        return keys[key]

    def _with_headers(self, scope: Scope, send: Send) -> Send:
        """Date says the server's clock, as every answer of a real provider says its own."""
        name = "request-id" if is_messages(scope["path"]) else "x-request-id"

        async def wrapped(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                headers["date"] = formatdate(self._gateway.clock.now(), usegmt=True)
                headers[name] = scope["state"]["request_id"]
            await send(message)

        return wrapped


class _Call:
    """One request on its way to the routes, and what a fault can do with it."""

    def __init__(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        self.app, self.scope, self.receive, self.send = app, scope, receive, send

    async def answer(self, send: Send | None = None) -> None:
        """Let the routes do it, and answer through `send`."""
        await self.app(self.scope, self.receive, send or self.send)

    async def reply(self, response: Response) -> None:
        """Answer in the routes' place, once the request was read to its end."""
        more = True
        while more:
            message = await self.receive()
            more = message["type"] == "http.request" and message.get("more_body", False)
        await response(self.scope, self.receive, self.send)

    async def drop(self, *, sent: bool = False) -> None:
        """Cut the connection, with no word; with `sent`, only once everything written has left."""
        transport: asyncio.Transport = self.scope["state"]["transport"]
        if sent:
            transport.close()
        else:
            transport.abort()
        while (await self.receive())["type"] != "http.disconnect":
            pass


async def _swallow(_: Message) -> None:
    """An answer that never leaves."""


async def _drop(call: _Call, _: Fault) -> None:
    await call.drop()


async def _drop_after(call: _Call, _: Fault) -> None:
    await call.answer(_swallow)
    await call.drop()


async def _error(call: _Call, fault: Fault) -> None:
    await call.reply(_error_response(call, fault))


async def _error_after(call: _Call, fault: Fault) -> None:
    await call.answer(_swallow)
    response = _error_response(call, fault)
    await response(call.scope, call.receive, call.send)


async def _slow(call: _Call, fault: Fault) -> None:
    await asyncio.sleep(fault.wall_s)
    await call.answer()


async def _hang(call: _Call, fault: Fault) -> None:
    await call.answer(_swallow)
    await _hang_before(call, fault)


async def _hang_before(call: _Call, fault: Fault) -> None:
    await asyncio.sleep(fault.wall_s or _FOREVER_S)
    await call.drop()


def _error_response(call: _Call, fault: Fault) -> Response:
    limited = fault.kind is Kind.RATE_LIMIT
    status = fault.status or (429 if limited else 503)
    after = fault.retry_after if fault.retry_after is not None else (1.0 if limited else None)
    headers = {} if after is None else {"retry-after": f"{after:g}"}
    if fault.body == "html":
        return HTMLResponse(f"<html><head><title>{status}</title></head><body>{status}</body></html>", status, headers)
    if fault.body == "empty":
        return Response(b"", status, headers)
    kind = "requests" if status == 429 else "server_error" if status >= 500 else "invalid_request_error"
    code = fault.code or ("rate_limit_exceeded" if status == 429 else None)
    message = fault.message or f"The rehearsal's schedule of faults answers with {status}."
    error = WireError(status, message, kind=kind, param=fault.param, code=code, retry_after=after)
    return refusal(call.scope, error)


async def _truncate(call: _Call, fault: Fault) -> None:
    """Send only the first `share` of the download (`at_line_end`: back to the last line end in it).

    `length` says how the end looks: `announced` keeps the full Content-Length and cuts the connection, `chunked`
    cuts it inside a chunked answer, `none` ends a chunked answer properly, so that HTTP itself shows nothing.
    """
    start: list[Message] = []
    body = bytearray()

    async def collect(message: Message) -> None:
        if message["type"] == "http.response.start":
            start.append(message)
        else:
            body.extend(message.get("body", b""))

    await call.answer(collect)
    if start[0]["status"] != 200:
        await call.send(start[0])
        await call.send({"type": "http.response.body", "body": bytes(body)})
        return
    kept = bytes(body[: int(len(body) * fault.share)])
    if fault.at_line_end:
        kept = kept[: kept.rfind(b"\n") + 1]
    if fault.length != "announced":
        del MutableHeaders(raw=start[0]["headers"])["content-length"]
    await call.send(start[0])
    await call.send({"type": "http.response.body", "body": kept, "more_body": fault.length != "none"})
    if fault.length != "none":
        await call.drop(sent=True)
