"""A user's desk: a folder with a task and a table, a store of its own, and a rehearsal server to send to.

Commands are processes. The server's clock moves by hand (`advance`) between them, so that cron's five minutes take
none; `speed` says how fast it runs meanwhile.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from batchctl_store.views import Views
from tests.servers import RehearsalServer

PROFILE = "night"
TIMEOUT_S = 120.0
KILLED = -signal.SIGKILL


class Process(Protocol):
    """A command that was started."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, number: int, /) -> None: ...


class Launcher(Protocol):
    """Starts `batchctl ARGS` with its output in the files `out` and `err`."""

    def __call__(self, args: Sequence[str], *, cwd: Path, env: Mapping[str, str], out: Path, err: Path) -> Process: ...


def interpreter(
    args: Sequence[str], *, cwd: Path, env: Mapping[str, str], out: Path, err: Path
) -> subprocess.Popen[bytes]:
    """The launcher that everybody has: `python -m batchctl`."""
    with out.open("wb") as stdout, err.open("wb") as stderr:
        command = [sys.executable, "-m", "batchctl", *args]
        return subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)


@dataclass(frozen=True, slots=True)
class Done:
    """A command that ended. `code` is negative where a signal ended it."""

    words: str
    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Its stdout as the one JSON object that `--json` prints."""
        return json.loads(self.out)


@dataclass(slots=True)
class Command:
    """A command that is running."""

    words: str
    process: Process
    out: Path
    err: Path

    def running(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        """Send a signal; nothing happens where it has ended."""
        self.process.send_signal(number)

    def wait(self, *codes: int, timeout: float = TIMEOUT_S) -> Done:
        """Wait for its end. With `codes` any other exit code fails the test, and so does a traceback always."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            raise AssertionError(f"batchctl {self.words} did not end: {self.err.read_text()}") from None
        done = Done(self.words, code, self.out.read_text(), self.err.read_text())
        assert "Traceback" not in done.err, f"batchctl {self.words}: {done.err}"
        assert not codes or code in codes, f"batchctl {self.words} exited with {code}: {done.out}{done.err}"
        return done

    def kill(self) -> Done:
        """kill -9, wherever it is."""
        self.process.send_signal(signal.SIGKILL)
        return self.wait()


@dataclass(slots=True)
class Desk:
    """`profile` changes the profile `night`; `server` may be replaced by another one at the same port."""

    folder: Path
    server: RehearsalServer
    launch: Launcher
    profile: Mapping[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    elsewhere: Path | None = None  # where the home is, if not in the folder
    _count: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log").mkdir(exist_ok=True)
        self.write_profile()

    @property
    def home(self) -> Path:
        """BATCHCTL_HOME."""
        return self.elsewhere or self.folder / "home"

    @property
    def views(self) -> Views:
        """What `status` reads, without the process."""
        return Views(self.home / "store.db")

    def write_profile(self, **changes: Any) -> None:
        """batchctl.toml, pointing at the server."""
        settings: dict[str, Any] = {
            "base_url": self.server.base_url,
            "follow_clock": True,
            "poll_interval_s": 60,
            "create_limit_s": 4,
            "grace_s": 1,
            **self.profile,
            **changes,
        }
        lines = [f'provider = "{PROFILE}"', f"[profiles.{PROFILE}]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        lines += [f"[profiles.{PROFILE}.models]", 'small = "rehearsal"']
        (self.folder / "batchctl.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def task(self, prompt: str = "{{ text }}", name: str = "task.yaml", **fields: Any) -> Path:
        """A task file; `fields` are further keys of it (JSON is YAML)."""
        path = self.folder / name
        path.write_text(json.dumps({"model": "small", "prompt": prompt, **fields}), encoding="utf-8")
        return path

    def table(self, rows: Iterable[Mapping[str, Any]], name: str = "input.csv") -> Path:
        """An input file, .csv or .jsonl."""
        path, found = self.folder / name, list(rows)
        with path.open("w", encoding="utf-8", newline="") as file:
            if path.suffix == ".jsonl":
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in found)
            else:
                writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(found)
        return path

    def start(self, *words: object) -> Command:
        """Start a command and return at once."""
        self._count += 1
        args = [str(word) for word in words]
        out, err = (self.folder / "log" / f"{self._count:04d}.{kind}" for kind in ("out", "err"))
        out.touch()  # a command may be killed before it can
        err.touch()
        env = {**os.environ, "BATCHCTL_HOME": str(self.home), "NO_COLOR": "1", **self.env}
        return Command(" ".join(args), self.launch(args, cwd=self.folder, env=env, out=out, err=err), out, err)

    def run(self, *words: object, codes: Sequence[int] = (0,)) -> Done:
        """Run a command to its end; an exit code that is not in `codes` fails the test."""
        return self.start(*words).wait(*codes)

    def submit(self, task: Path, table: Path, *options: object) -> str:
        """Submit, and return the job's name."""
        return self.run("submit", task, table, "--provider", PROFILE, *options).out.split()[0]

    def tick(self, *options: object, codes: Sequence[int] = (0,)) -> Done:
        return self.run("tick", *options, codes=codes)

    def job(self, name: str) -> dict[str, Any]:
        """The job's row of `job_status`."""
        return self.views.jobs(name)[0]

    def batches(self, name: str) -> list[dict[str, Any]]:
        """The rows of `batch_status` of a job."""
        return self.views.batches(self.job(name)["id"])

    def events(self, name: str) -> str:
        """The job's history, as one text."""
        return "\n".join(event["text"] for event in self.views.events(self.job(name)["id"]))

    def settle(self, name: str, *, every_s: float = 300, ticks: int = 400) -> int:
        """Ticks until the job is finished, every `every_s` seconds of the server's clock. Returns how many.

        Where nothing is due by then, the next one comes when something is.
        """
        for count in range(1, ticks + 1):
            self.tick()
            job = self.job(name)
            if job["state"] == "finished":
                return count
            due = (job["next_action_at"] or 0) - self.server.now()
            self.server.advance(max(every_s, due + 1))
        raise AssertionError(f"job {name} is not finished after {ticks} ticks: {self.job(name)}\n{self.events(name)}")

    def results(
        self, name: str, *options: str, codes: Sequence[int] = (0, 3), suffix: str = "jsonl"
    ) -> list[dict[str, Any]]:
        """The merged rows."""
        path = self.folder / f"{name}-{self._count}.{suffix}"
        self.run("results", name, "-o", path, *options, codes=codes)
        return read_rows(path)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a .csv or .jsonl file."""
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def numbered(count: int, **more: Any) -> list[dict[str, Any]]:
    """Rows `{"id": "0001", "text": "row 1 ..."}`, each with a text of its own."""
    return [{"id": f"{number:04d}", "text": f"row {number} says hello", **more} for number in range(1, count + 1)]


def outcomes(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many rows have which outcome."""
    found: dict[str, int] = {}
    for row in rows:
        found[row["outcome"]] = found.get(row["outcome"], 0) + 1
    return found
