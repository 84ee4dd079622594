"""Error answers, each in the words of the wire that the request came over."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from batchctl.gateway import messages_wire
from batchctl.gateway.wire import WireError, error_body


def refusal(scope: Scope, error: WireError) -> Response:
    """The answer to the request of `scope`."""
    headers = {} if error.retry_after is None else {"retry-after": f"{error.retry_after:g}"}
    if messages_wire.is_messages(scope["path"]):
        kind = messages_wire.error_kind(error.status, error.code)
        body = messages_wire.error_json(kind, error.message, scope["state"].get("request_id"))
    else:
        body = error_body(error.message, kind=error.kind or "invalid_request_error", param=error.param, code=error.code)
    return JSONResponse(body, error.status, headers)
