"""A folder with a task, a store of its own and a rehearsal server beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.shell import TASK, Shell
from tests.servers import QUICK, RehearsalServer, rehearsal


@pytest.fixture
def server() -> Iterator[RehearsalServer]:
    """On a thread, a thousand times as fast as the world."""
    with rehearsal(in_process=True, speed=1_000.0, timing=QUICK) as running:
        yield running


@pytest.fixture
def shell(
    tmp_path: Path, server: RehearsalServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Shell:
    """Commands run in a folder of their own, with a home of their own and no key in the environment."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "task.yaml").write_text(TASK, encoding="utf-8")
    settings = f'[profiles.rehearsal]\nbase_url = "{server.base_url}"\n'
    (folder / "batchctl.toml").write_text(settings, encoding="utf-8")
    environ = {"BATCHCTL_HOME": str(tmp_path / "home"), "COLUMNS": "80"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    for name in ("OPENAI_API_KEY", "NO_COLOR", "BATCHCTL_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    return Shell(folder, server, capfd, environ)
