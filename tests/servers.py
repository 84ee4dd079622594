"""Rehearsal servers for tests: a child process over real HTTP, or the same server on a thread."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import orjson
from openai import OpenAI

from batchctl.gateway.options import ServeOptions, Timing

QUICK = Timing(validation_s=5, queue_s=10, row_s=0.01, finalizing_s=5, cancelling_s=20)
"""Short on the server's clock too, for tests that move the clock by hand."""

_START_S = 30.0


@dataclass(slots=True)
class RehearsalServer:
    """A running server. `base_url` is the SDK's (it ends in /v1); `root_url` has no path."""

    root_url: str
    process: subprocess.Popen[bytes] | None = None
    _http: httpx2.Client = field(default_factory=lambda: httpx2.Client(verify=False, timeout=60))

    @property
    def base_url(self) -> str:
        return f"{self.root_url}/v1"

    def client(self, api_key: str = "sk-rehearsal", **options: Any) -> OpenAI:
        """The official SDK pointed here, with its own retries off."""
        options.setdefault("http_client", httpx2.Client(verify=False))
        return OpenAI(api_key=api_key, base_url=self.base_url, max_retries=0, **options)

    def post_faults(self, faults: Sequence[Mapping[str, Any]], *, seed: int | None = None) -> dict[str, Any]:
        """Replace the schedule of faults (none: an empty list); returns it as the server understood it."""
        return self._call("POST", "/rehearsal/faults", {"seed": seed, "faults": list(faults)})

    def fired(self) -> list[int]:
        """How often each fault of the schedule has happened."""
        return [entry["fired"] for entry in self._call("GET", "/rehearsal/faults")["faults"]]

    def ledger(self, *, bodies: bool = False) -> dict[str, Any]:
        """What the server counted; with `bodies` each distinct request's counts too."""
        return self._call("GET", f"/rehearsal/ledger?summary={0 if bodies else 1}")

    def now(self) -> float:
        """The server's clock, in epoch seconds."""
        return float(self._call("GET", "/rehearsal/clock")["now"])

    def advance(self, seconds: float) -> float:
        """Jump forward; what falls due by then is done when this returns. Returns the new time."""
        return float(self._call("POST", "/rehearsal/clock", {"advance": seconds})["now"])

    def set_speed(self, speed: float) -> None:
        """Server seconds in one wall second, from now on."""
        self._call("POST", "/rehearsal/clock", {"speed": speed})

    def kill(self) -> None:
        """kill -9; only for a server that is a process."""
        assert self.process is not None, "a server on a thread cannot be killed"
        self.process.kill()
        self.process.wait()

    def _call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        content = None if body is None else orjson.dumps(body)
        answer = self._http.request(method, self.root_url + path, content=content)
        assert answer.status_code == 200, answer.text
        answered: dict[str, Any] = answer.json()
        return answered

    def close(self) -> None:
        """Close this object's own connections; `rehearsal` stops the server."""
        self._http.close()


def _arguments(options: ServeOptions, folder: Path) -> list[str]:
    """The command line that starts a server with these options."""
    faults, keys = folder / "faults.json", folder / "keys"
    faults.write_bytes(orjson.dumps(dict(options.faults)))
    keys.write_text("".join(f"{key} {project}\n" for key, project in options.keys.items()))
    keys.chmod(0o600)
    words = ["--speed", options.speed, "--seed", options.seed, "--port", options.port, "--faults", faults]
    words += ["--ready-file", folder / "ready", "--stop-on-stdin-eof"]
    for name in ("max_file_bytes", "max_requests", "max_queued"):
        value = getattr(options, name)
        words += [] if value is None else [f"--{name.replace('_', '-')}", value]
    words += ["--keys-file", keys] if options.keys else []
    words += ["--state", options.state] if options.state else []
    words += ["--ledger-field", options.ledger_field] if options.ledger_field else []
    for model in options.models:
        words += ["--serves", model]
    for name, limit in options.queue_limits.items():
        words += ["--queue-limit", f"{name}={limit}"]
    for kind, share in options.shares.items():
        words += ["--share", f"{kind}={share}"]
    for name in ("validation_s", "queue_s", "row_s", "finalizing_s", "cancelling_s", "jitter"):
        words += ["--time", f"{name}={getattr(options.timing, name)}"]
    return [str(word) for word in words]


def _await_ready(process: subprocess.Popen[bytes], ready: Path, log: Path) -> str:
    stop = time.monotonic() + _START_S
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > stop:
            process.kill()
            raise RuntimeError(f"the server did not start: {log.read_text()}")
        time.sleep(0.01)
    return ready.read_text().removeprefix("listening on ").strip()


@contextmanager
def _child(options: ServeOptions) -> Iterator[RehearsalServer]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "batchctl.gateway", *_arguments(options, folder)]
        log = folder / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)
        assert process.stdin is not None
        try:
            yield RehearsalServer(_await_ready(process, folder / "ready", log), process)
        finally:
            process.stdin.close()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def _thread(options: ServeOptions) -> Iterator[RehearsalServer]:
    from batchctl.gateway.server import BackgroundServer

    server = BackgroundServer(options)
    try:
        yield RehearsalServer(server.base_url)
    finally:
        server.close()


@contextmanager
def rehearsal(
    *,
    speed: float = 1_000.0,
    seed: int = 0,
    faults: Sequence[Mapping[str, Any]] = (),
    in_process: bool = False,
    **options: Any,
) -> Iterator[RehearsalServer]:
    """A rehearsal server for the length of a `with` block: a child process, or on a thread with `in_process`.

    `options` are further fields of ServeOptions (timing, state, port, keys, models, queue_limits, shares,
    ledger_field, max_file_bytes, max_requests, max_queued).
    """
    served = ServeOptions(speed=speed, seed=seed, faults={"faults": list(faults)}, **options)
    with (_thread if in_process else _child)(served) as server, closing(server):
        yield server
