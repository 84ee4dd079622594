#!/usr/bin/env python3
"""A provider of OpenAI's Files and Batches wire on the loopback, that answers at once and counts what it was sent.

provider.py FOLDER [--expire-first] [--open N] [--answer-bytes N]

Prints its base URL, serves until its standard input ends. It checks nothing and keeps no promise: it is there to cost
as little as it can, in a process that is not measured. Nothing but the standard library, so that any Python runs it.
GET /counts tells what came in: `requests` are the lines of all batches that were created.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

CHUNK = 1 << 20
EXPIRED = {
    "code": "batch_expired",
    "message": "This request could not be executed before the completion window expired.",
}
Json = dict[str, Any]


@dataclass(slots=True)
class Provider:
    """Files in a folder, batches in memory. `expire_first`: the first batch ends with its last row not run."""

    folder: Path
    expire_first: bool = False
    answer: str = "1"  # a text, and JSON for who wants that
    counts: Counter[str] = field(default_factory=Counter)
    batches: dict[str, Json] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def new_file(self) -> tuple[str, Path]:
        name = f"file-{next(self._numbers)}"
        return name, self.folder / name

    def file(self, name: str) -> Json:
        size = (self.folder / name).stat().st_size
        return {
            "id": name,
            "object": "file",
            "bytes": size,
            "created_at": int(time.time()),
            "filename": f"{name}.jsonl",
            "purpose": "batch",
            "status": "processed",
        }

    def create(self, asked: Json) -> Json:
        with self._lock:
            ids = list(self._ids(asked["input_file_id"]))
            late = 1 if self.expire_first and not self.batches else 0
            self.counts.update(batches=1, requests=len(ids))
            now, name = int(time.time()), f"batch_{next(self._numbers)}"
            answered = len(ids) - late
            self.batches[name] = opened(name, asked) | {
                "status": "expired" if late else "completed",
                "output_file_id": self._answers(ids[:answered]),
                "error_file_id": self._unanswered(ids[answered:]) if late else None,
                "expired_at" if late else "completed_at": now,
                "request_counts": {"total": len(ids), "completed": answered, "failed": late},
            }
            return self.batches[name]

    def page(self, limit: int, after: str | None) -> Json:
        """Newest first, as the real one lists them."""
        names = list(reversed(self.batches))
        start = names.index(after) + 1 if after in self.batches else 0
        found = names[start : start + limit]
        return {
            "object": "list",
            "data": [self.batches[name] for name in found],
            "first_id": found[0] if found else None,
            "last_id": found[-1] if found else None,
            "has_more": start + limit < len(names),
        }

    def _ids(self, file: str) -> Iterator[str]:
        with (self.folder / file).open("rb") as lines:
            for line in lines:
                if line.strip():
                    yield json.loads(line)["custom_id"]

    def _answers(self, ids: list[str]) -> str:
        body = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "usage": {"prompt_tokens": 90, "completion_tokens": 1, "total_tokens": 91},
            "choices": [
                {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": self.answer}}
            ],
        }
        response = json.dumps({"status_code": 200, "request_id": "q", "body": body})
        random.Random(11).shuffle(ids)
        name, path = self.new_file()
        with path.open("w", encoding="utf-8") as out:
            for number, one in enumerate(ids):
                out.write(
                    f'{{"id": "r{number}", "custom_id": {json.dumps(one)}, "response": {response}, "error": null}}\n'
                )
        return name

    def _unanswered(self, ids: list[str]) -> str:
        name, path = self.new_file()
        lines = ({"id": "r", "custom_id": one, "response": None, "error": EXPIRED} for one in ids)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return name


def opened(name: str, asked: Json) -> Json:
    """A batch in progress, in OpenAI's shape."""
    now = int(time.time())
    return {
        "id": name,
        "object": "batch",
        "endpoint": asked["endpoint"],
        "errors": None,
        "input_file_id": asked["input_file_id"],
        "completion_window": asked["completion_window"],
        "status": "in_progress",
        "output_file_id": None,
        "error_file_id": None,
        "created_at": now,
        "in_progress_at": now,
        "expires_at": now + 86_400,
        "completed_at": None,
        "expired_at": None,
        "request_counts": {"total": 1, "completed": 0, "failed": 0},
        "metadata": asked.get("metadata"),
    }


class Handler(BaseHTTPRequestHandler):
    """One connection, kept alive."""

    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: object) -> None: ...

    def do_GET(self) -> None:
        provider, url = self.server.provider, urlsplit(self.path)
        match url.path.removeprefix("/v1").strip("/").split("/"):
            case ["counts"]:
                self._reply(dict(provider.counts))
            case ["batches"]:
                provider.counts["lists"] += 1
                query = parse_qs(url.query)
                self._reply(provider.page(int(query.get("limit", ["20"])[0]), query.get("after", [None])[0]))
            case ["batches", name] if name in provider.batches:
                provider.counts["retrieves"] += 1
                self._reply(provider.batches[name])
            case ["files", name, "content"] if (provider.folder / name).is_file():
                provider.counts["downloads"] += 1
                self._send(provider.folder / name)
            case ["files", name] if (provider.folder / name).is_file():
                self._reply(provider.file(name))
            case _:
                self._missing()

    def do_POST(self) -> None:
        provider = self.server.provider
        match urlsplit(self.path).path.removeprefix("/v1").strip("/").split("/"):
            case ["files"]:
                provider.counts["uploads"] += 1
                self._reply(provider.file(self._take_file()))
            case ["batches"]:
                self._reply(provider.create(json.loads(self._body())))
            case _:
                self._body()
                self._missing()

    def do_DELETE(self) -> None:
        self._reply({"id": self.path.rsplit("/", 1)[-1], "object": "file", "deleted": True})

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["content-length"]))

    def _take_file(self) -> str:
        """Save the part that is a file; the other parts are of no interest."""
        body, boundary = self._body(), re.search(r"boundary=\"?([^\";]+)", self.headers["content-type"])
        assert boundary is not None
        between = b"--" + boundary[1].encode()
        start = body.index(b"\r\n\r\n", body.index(b"filename=")) + 4
        name, path = self.server.provider.new_file()
        path.write_bytes(memoryview(body)[start : body.index(b"\r\n" + between, start)])
        return name

    def _missing(self) -> None:
        self._reply({"error": {"message": "no such thing", "type": "invalid_request_error", "code": None}}, 404)

    def _reply(self, value: Json, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send(self, path: Path) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/octet-stream")
        self.send_header("content-length", str(path.stat().st_size))
        self.end_headers()
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                self.wfile.write(chunk)


class Server(ThreadingHTTPServer):
    """On a port of the system's choice."""

    daemon_threads = True

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        super().__init__(("127.0.0.1", 0), Handler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--expire-first", action="store_true", help="the first batch expires with one row not run")
    parser.add_argument("--open", type=int, default=0, help="so many batches are in progress: batch_open_1 and on")
    parser.add_argument("--answer-bytes", type=int, default=0, help="the length of each answer")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    answer = "x" * options.answer_bytes or "1"
    provider = Provider(options.folder, options.expire_first, answer)
    asked = {"endpoint": "/v1/chat/completions", "input_file_id": "file-0", "completion_window": "24h"}
    provider.batches |= {(name := f"batch_open_{n}"): opened(name, asked) for n in range(1, options.open + 1)}
    server = Server(provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
