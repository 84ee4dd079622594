"""Shells (commands in this process) and desks (commands as processes), each with a rehearsal server beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.desk import Desk, Launcher
from tests.acceptance.forking import Forks
from tests.acceptance.shell import TASK, Shell
from tests.servers import QUICK, RehearsalServer, rehearsal

MakeDesk = Callable[..., Desk]


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


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Starts commands without their imports."""
    running = Forks()
    yield running
    running.close()


@pytest.fixture
def make_server() -> Iterator[Callable[..., RehearsalServer]]:
    """`make_server(**options)`: rehearsal servers that end with the test; their clock is moved by hand."""
    with ExitStack() as stack:

        def make(*, speed: float = 20.0, in_process: bool = True, **options: Any) -> RehearsalServer:
            options.setdefault("timing", QUICK)
            return stack.enter_context(rehearsal(speed=speed, in_process=in_process, **options))

        yield make


@pytest.fixture
def make_desk(tmp_path: Path, forks: Forks, make_server: Callable[..., RehearsalServer]) -> Callable[..., Desk]:
    """`make_desk(server=None, launch=None, profile=None, **server options)`."""

    def make(
        server: RehearsalServer | None = None,
        *,
        launch: Launcher | None = None,
        profile: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        name: str = "desk",
        **options: Any,
    ) -> Desk:
        server = server or make_server(**options)
        return Desk(tmp_path / name, server, launch or forks.launch, profile or {}, env or {})

    return make


@pytest.fixture
def desk(make_desk: MakeDesk) -> Desk:
    """A desk and a server without faults."""
    return make_desk()
