"""The server process: the application under uvicorn, on loopback only."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from batchctl.errors import UsageError
from batchctl.gateway import batches_api, files_api, messages_api, rehearsal_api
from batchctl.gateway.gateway import Gateway
from batchctl.gateway.middleware import DroppableProtocol, Front
from batchctl.gateway.options import LOOPBACK_HOSTS, ServeOptions
from batchctl.gateway.refusals import refusal
from batchctl.gateway.wire import WireError


async def _wire_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, WireError)
    return refusal(request.scope, error)


async def _http_error(request: Request, error: Exception) -> Response:
    """Unknown paths and methods."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    return refusal(request.scope, WireError(status, f"Invalid URL ({request.method} {request.url.path})"))


async def _server_error(request: Request, error: Exception) -> Response:
    message = f"The server had an error while processing your request: {type(error).__name__}"
    return refusal(request.scope, WireError(500, message, kind="server_error"))


def make_app(gateway: Gateway) -> ASGIApp:
    """The ASGI application; its lifespan starts and ends the gateway's thread."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        gateway.runner.start()
        yield

    app = Starlette(
        routes=[
            *files_api.routes(gateway),
            *batches_api.routes(gateway),
            *messages_api.routes(gateway),
            *rehearsal_api.routes(gateway),
        ],
        exception_handlers={WireError: _wire_error, HTTPException: _http_error, Exception: _server_error},
        lifespan=lifespan,
    )
    return Front(app, gateway)


def _listen(options: ServeOptions) -> socket.socket:
    if options.host not in LOOPBACK_HOSTS:
        raise UsageError(
            f"refusing to listen on {options.host}: this server is for this machine only",
            hint="use --host 127.0.0.1",
        )
    family = socket.AF_INET6 if options.host == "::1" else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY only where it is: 40 ms a request otherwise.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
    except OSError as error:
        listener.close()
        message = f"cannot listen on {options.host}:{options.port}: {error.strerror}"
        raise UsageError(message, hint="choose another --port, or 0 for any free one") from error
    listener.listen(128)
    return listener


def _announce(listener: socket.socket, options: ServeOptions, describe: str) -> None:
    """Say where the server listens: on stderr, and in the ready-file, which appears whole or not at all."""
    host = f"[{options.host}]" if ":" in options.host else options.host
    line = f"listening on http://{host}:{listener.getsockname()[1]}"
    sys.stderr.write(f"{line}\n{describe}\n")
    sys.stderr.flush()
    if options.ready_file is not None:
        part = options.ready_file.with_name(options.ready_file.name + ".part")
        part.write_text(line + "\n", encoding="utf-8")
        part.replace(options.ready_file)


def _stop_with_stdin(server: uvicorn.Server) -> None:
    """Stop when whoever holds the other end of standard input is gone, even if it was killed."""

    def watch() -> None:
        while os.read(0, 1_024):
            pass
        server.should_exit = True

    threading.Thread(target=watch, name="stdin", daemon=True).start()


class BackgroundServer:
    """The same server on a thread of this process; `base_url` is set once it listens."""

    def __init__(self, options: ServeOptions) -> None:
        self._listener = _listen(options)
        self.base_url = f"http://{options.host}:{self._listener.getsockname()[1]}"
        self.gateway = Gateway(options)
        self._server = _make_server(self.gateway)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listener]}, name="gateway", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()
        self.gateway.close()


def _make_server(gateway: Gateway) -> uvicorn.Server:
    config = uvicorn.Config(
        make_app(gateway),
        http=DroppableProtocol,
        ws="none",
        loop="asyncio",
        access_log=False,
        log_level="warning",
        date_header=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=30,
    )
    return uvicorn.Server(config)


def run(options: ServeOptions) -> None:
    """Serve until stopped. Raises UsageError for a host that is not loopback or a port that is taken."""
    listener = _listen(options)
    try:
        gateway = Gateway(options)
        try:
            server = _make_server(gateway)
            if options.stop_on_stdin_eof:
                _stop_with_stdin(server)
            _announce(listener, options, gateway.executor.describe())
            server.run(sockets=[listener])
        finally:
            gateway.close()
    finally:
        listener.close()


def read_keys(path: Path) -> dict[str, str]:
    """A keys file: one `KEY` or `KEY PROJECT` a line; a key alone is a project of its own. Raises UsageError."""
    keys: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        words = line.split()
        if len(words) > 2:
            raise UsageError(f"{path}:{number}: expected KEY or KEY PROJECT")
        if words:
            keys[words[0]] = words[1] if len(words) == 2 else f"project-{number}"
    return keys
