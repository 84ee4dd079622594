"""A loopback HTTP server that says what a test tells it to: odd, cut, hanging and false answers included.

It keeps each request's method, path, query and body; of bodies over a megabyte only their size.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

KEPT_BYTES = 1_000_000


@dataclass(frozen=True)
class Seen:
    """A request as it arrived; `size` counts the body's bytes that came."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    size: int

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """`cut`: send only so many bytes of the body; `drop`: none at all; `hang_s`: wait first; `drip_s`: between bytes.

    `length` says whether Content-Length is announced; the connection is closed after each answer.
    """

    status: int = 200
    body: Any = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None
    drop: bool = False
    hang_s: float = 0
    drip_s: float = 0
    length: bool = True


Answer = Reply | Callable[[Seen], Reply]


class Scripted:
    """Replies by method and path: each in turn, the last one again and again; anything unscripted is a 404."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.url = ""
        self.released = threading.Event()  # ends hanging at the end of the test
        self._answers: dict[tuple[str, str], deque[Answer]] = {}
        self._lock = threading.Lock()

    def on(self, method: str, path: str, *answers: Answer) -> None:
        self._answers[method, path] = deque(answers)

    def calls(self, method: str, path: str) -> list[Seen]:
        return [seen for seen in self.seen if (seen.method, seen.path) == (method, path)]

    def answer(self, seen: Seen) -> Reply:
        with self._lock:
            self.seen.append(seen)
            answers = self._answers.get((seen.method, seen.path))
            if not answers:
                return Reply(404, error("Not Found in this script"))
            found = answers.popleft() if len(answers) > 1 else answers[0]
        return found if isinstance(found, Reply) else found(seen)


def error(message: str, code: str | int | None = None, kind: str = "invalid_request_error") -> dict[str, Any]:
    """OpenAI's own error body."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, format: str, *args: object) -> None: ...

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # the client went away, as some tests want
            self.close_connection = True

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        body, size = self._read()
        headers = {key.lower(): value for key, value in self.headers.items()}
        self._send(self.server.script.answer(Seen(self.command, url.path, query, headers, body, size)))

    do_POST = do_DELETE = do_GET

    def _read(self) -> tuple[bytes, int]:
        left, size, kept = int(self.headers.get("content-length", 0)), 0, bytearray()
        while left and (data := self.rfile.read(min(left, 4_096))):
            left, size = left - len(data), size + len(data)
            kept += data if len(kept) < KEPT_BYTES else b""
        return bytes(kept), size

    def _send(self, reply: Reply) -> None:
        released = self.server.script.released
        self.close_connection = True
        if reply.hang_s:
            released.wait(reply.hang_s)
        if reply.drop:
            return
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for key, value in {"content-type": "application/json", **reply.headers}.items():
            self.send_header(key, value)
        if reply.length:
            self.send_header("content-length", str(len(body)))
        self.send_header("connection", "close")
        self.end_headers()
        body = body if reply.cut is None else body[: reply.cut]
        step = 1 if reply.drip_s else len(body) or 1
        for start in range(0, len(body), step):
            self.wfile.write(body[start : start + step])
            if reply.drip_s and released.wait(reply.drip_s):
                return


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, script: Scripted) -> None:
        self.script = script
        super().__init__(("127.0.0.1", 0), _Handler)


@contextmanager
def scripted() -> Iterator[Scripted]:
    """A server for the length of a `with` block."""
    script = Scripted()
    server = _Server(script)
    script.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield script
    finally:
        script.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
