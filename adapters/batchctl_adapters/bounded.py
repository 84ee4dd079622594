"""One HTTP request with a limit on its total time, and the certainty whether any of it left this machine.

HTTP clients limit single operations (connect, each read), not the whole call, and name resolution not at all; after
giving up on such a call nothing may be sent any more, or a batch could appear that nobody waits for. So the call runs
in a thread of its own and passes a gate right before its first byte; giving up shuts that gate, and the socket.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

_GATES = (".send_request_headers.started", ".send_request_body.started")
_CONNECTED = (".connect_tcp.complete", ".start_tls.complete")


class OutOfTime(Exception):
    """The limit passed first."""


class _GivenUp(BaseException):
    """Raised in the call's own thread to stop it at the gate; not an Exception, so that no client maps it."""


class _Request(Protocol):
    @property
    def method(self) -> str: ...

    @property
    def extensions(self) -> Any: ...


class BoundedCall:
    """Runs one call that makes one request; use once. `hook` goes into the HTTP client's request hooks.

    `begun` says, after `run` returned or raised, whether any byte of the request may have been sent: exact, as the
    HTTP client's trace events tell it (httpx2 and httpcore2, extension "trace").
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given_up = False
        self._socket: socket.socket | None = None
        self.begun = False

    def hook(self, request: _Request) -> None:
        """Attach to the request that is about to be sent."""
        request.extensions["trace"] = self._trace

    def run(self, call: Callable[[], T], limit_s: float) -> T:
        """The call's result; its own exception; or OutOfTime after `limit_s` seconds."""
        outcome: list[T] = []
        failure: list[BaseException] = []
        done = threading.Event()

        def target() -> None:
            try:
                outcome.append(call())
            except BaseException as err:
                failure.append(err)
            finally:
                done.set()

        thread = threading.Thread(target=target, name="bounded-call", daemon=True)
        try:
            thread.start()
            finished = done.wait(limit_s)
        except BaseException:  # Ctrl-C: what was not begun must not begin afterwards
            self._give_up()
            raise
        if not finished:
            self._give_up()
            raise OutOfTime(f"no answer within {limit_s:g} s")
        if failure:
            raise failure[0]
        return outcome[0]

    def _give_up(self) -> None:
        with self._lock:
            self._given_up = True
            sock = self._socket
        if sock is not None:
            with contextlib.suppress(OSError, ValueError):
                # The plain shutdown, also on a TLS socket: it wakes the thread that reads without touching TLS state.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(_CONNECTED):
            sock: socket.socket = info["return_value"].get_extra_info("socket")
            with self._lock:
                self._socket = sock
                if self._given_up:
                    sock.close()
                self._stop_if_given_up()
        elif event.endswith(_GATES) and info["request"].method != b"CONNECT":  # a proxy's tunnel is not the request
            with self._lock:
                self._stop_if_given_up()
                self.begun = True

    def _stop_if_given_up(self) -> None:
        if self._given_up:
            raise _GivenUp
