"""The command line for tests: `main` in this process, or the real command as a child, with a store of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from batchctl.cli import main
from tests.servers import RehearsalServer

ROOT = Path(__file__).resolve().parents[2]
TASK = """\
name: moods
model: small
prompt: "Is this good or bad? {{ text }}"
output: {labels: [good, bad]}
max_output_tokens: 5
"""


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout, checked against docs/json.md."""
        [line] = self.out.split("\n")[:-1]
        found: dict[str, Any] = json.loads(line)
        check_schema(found)
        return found


@dataclass(slots=True)
class Shell:
    """Runs commands in `folder` against a rehearsal server."""

    folder: Path
    server: RehearsalServer
    capture: pytest.CaptureFixture[str]
    environ: dict[str, str] = field(default_factory=dict)

    def __call__(self, *words: object) -> Done:
        """In this process."""
        self.capture.readouterr()
        code = main([str(word) for word in words])
        said = self.capture.readouterr()
        return Done(code, said.out, said.err)

    def ok(self, *words: object) -> Done:
        """The same, where nothing but 0 will do."""
        done = self(*words)
        assert done.code == 0, done
        return done

    def start(self, *words: object, **settings: Any) -> subprocess.Popen[str]:
        """As a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "batchctl", *(str(word) for word in words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.environ},
            **settings,
        )

    def spawn(self, *words: object, **settings: Any) -> Done:
        """The same, to its end."""
        with self.start(*words, **settings) as process:
            out, err = process.communicate(timeout=60)
        return Done(process.returncode, out, err)

    def submit(self, *more: object, rows: int = 6) -> str:
        """A job of `rows` rows, by its name."""
        write_rows(self.folder / "rows.csv", rows)
        return self.ok("submit", "task.yaml", "rows.csv", "--provider", "rehearsal", *more).out.strip()


def write_rows(path: Path, count: int) -> None:
    """A table with the columns text and label."""
    lines = ["text,label", *(f"row number {n},good" for n in range(count))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def interrupt(process: subprocess.Popen[str], number: int = signal.SIGINT) -> Done:
    """Send a signal and wait for the end."""
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return Done(process.returncode, out, err)


def documented() -> dict[str, Any]:
    """The JSON Schema in docs/json.md, tightened: every key there, no other one."""
    text = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```json\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    schema: dict[str, Any] = json.loads(blocks[-1])
    _tighten(schema)
    schema["$defs"]["status"]["required"] = ["schema", "jobs"]
    return schema


def _tighten(part: Any) -> None:
    if isinstance(part, dict):
        if isinstance(part.get("properties"), dict) and part.get("type") == "object":
            part["additionalProperties"] = False
            part["required"] = sorted(part["properties"])
        for inner in part.values():
            _tighten(inner)
    elif isinstance(part, list):
        for inner in part:
            _tighten(inner)


def check_schema(payload: dict[str, Any]) -> None:
    """Raises where a `--json` answer is not what docs/json.md says of its command."""
    name = payload["schema"].split("/")[1]
    schema = {**documented(), "$ref": f"#/$defs/{name}"}
    jsonschema_rs.validator_for(schema).validate(payload)
