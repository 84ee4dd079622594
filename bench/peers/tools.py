"""The tools beside batchctl, each in a virtual environment of its own under `bench/out/peers`, kept between runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parent / "out" / "peers"
ASK = "import sys; print('%d.%d' % sys.version_info[:2])"
INSTALL_LIMIT_S = 900.0


class NotInstalled(Exception):
    """A tool cannot be had here; says why."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: what it is called where packages are had, and the script that does the job with it."""

    name: str
    script: str
    packages: tuple[str, ...] = ()  # none: it runs under this Python
    distribution: str = ""
    least_python: tuple[int, int] = (3, 10)

    @property
    def path(self) -> Path:
        """The script that does the job with it: SCRIPT ROWS OUT BASE_URL WORK."""
        return HERE / self.script


TOOLS = (
    Tool("plain script", "with_plain.py"),
    Tool("batchctl", "with_batchctl.py", distribution="batchctl"),
    Tool("batchor", "with_batchor.py", ("batchor==0.0.7",), "batchor", least_python=(3, 12)),
    Tool("steadybatch", "with_steadybatch.py", ("steadybatch[openai]==0.2.1",), "steadybatch"),
    Tool("curator", "with_curator.py", ("bespokelabs-curator==0.1.31",), "bespokelabs-curator"),
)


def python_of(tool: Tool) -> str:
    """The interpreter that has the tool; installs it where that was not done yet. Raises NotInstalled."""
    if not tool.packages:
        return sys.executable
    home = CACHE / tool.name
    python, done = home / "bin" / "python", home / ".installed"
    if done.is_file() and done.read_text(encoding="utf-8").split() == list(tool.packages):
        return str(python)
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    _run(tool, [_suitable(tool), "-m", "venv", str(home)])
    if uv := shutil.which("uv"):
        install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    else:
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run(tool, [*install, *tool.packages])
    done.write_text("\n".join(tool.packages), encoding="utf-8")
    return str(python)


def version_of(tool: Tool, python: str) -> str:
    """Of the installed package; nothing for a script."""
    if not tool.distribution:
        return "-"
    ask = f"import importlib.metadata as m; print(m.version({tool.distribution!r}))"
    return subprocess.run([python, "-c", ask], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _suitable(tool: Tool) -> str:
    for candidate in _pythons():
        if (version := _version(candidate)) is not None and version >= tool.least_python:
            return candidate
    least = ".".join(map(str, tool.least_python))
    raise NotInstalled(f"needs Python {least} or newer, and none was found; name one with PEERS_PYTHON")


def _pythons() -> Iterator[str]:
    """This one first, so that all run under the same where they can."""
    yield sys.executable
    if named := os.environ.get("PEERS_PYTHON"):
        yield named
    yield from (found for minor in range(12, 16) if (found := shutil.which(f"python3.{minor}")))
    yield from map(str, sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3")))


def _version(python: str) -> tuple[int, int] | None:
    try:
        told = subprocess.run([python, "-c", ASK], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return None
    major, minor = told.stdout.decode().split(".")
    return int(major), int(minor)


def _run(tool: Tool, command: list[str]) -> None:
    try:
        subprocess.run(
            command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=INSTALL_LIMIT_S
        )
    except subprocess.CalledProcessError as error:
        last = [line for line in error.stdout.split("\n") if line.strip()][-1:]
        raise NotInstalled(f"does not install: {' '.join(last)[:160]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"does not install: {error}") from None
