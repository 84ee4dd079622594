"""Build the sdist, the wheel from it, install the wheel alone with the locked dependencies, and run it.

Says what failed and exits 1 where a file of the packages is missing or a command does not end with 0.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "batchctl": ROOT / "batchctl",
    "batchctl_adapters": ROOT / "adapters" / "batchctl_adapters",
    "batchctl_store": ROOT / "store" / "batchctl_store",
}
COMMANDS = [["--version"], ["--help"], ["demo", "--rehearsal"]]


def run(*argv: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Its standard output; a failure ends the script with what it printed."""
    words = [str(word) for word in argv]
    quiet = subprocess.DEVNULL
    done = subprocess.run(words, cwd=cwd, env=env, stdin=quiet, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(work: Path) -> Path:
    """The wheel, built from the unpacked sdist, so that the sdist is known to be whole."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", work, cwd=ROOT)
    [sdist] = work.glob("*.tar.gz")
    shutil.unpack_archive(sdist, work / "sdist")
    [source] = (work / "sdist").iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", work, cwd=source)
    [wheel] = work.glob("*.whl")
    return wheel


def install(wheel: Path, work: Path) -> Path:
    """The Python of a clean environment with the wheel in it."""
    python = work / "env" / "bin" / "python"
    uv = shutil.which("uv")
    if uv:
        run(uv, "venv", "--no-project", "--python", sys.executable, work / "env", cwd=work)
        pip: list[str | Path] = [uv, "pip", "install", "--quiet", "--python", python]
    else:
        run(sys.executable, "-m", "venv", work / "env", cwd=work)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(*pip, "--require-hashes", "-r", ROOT / "requirements" / "base.txt", cwd=work)
    run(*pip, "--no-deps", wheel, cwd=work)
    return python


def missing_files(python: Path, work: Path) -> list[str]:
    """Files of the source packages that the installed ones do not have."""
    names = ", ".join(PACKAGES)
    found = run(python, "-c", f"import {names}\nfor m in ({names}): print(m.__path__[0])", cwd=work).splitlines()
    missing = []
    for source, installed in zip(PACKAGES.values(), found, strict=True):
        if installed == str(source):
            sys.exit(f"{source} was imported instead of the wheel")
        for path in sorted(source.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                relative = path.relative_to(source)
                missing += [] if Path(installed, relative).is_file() else [f"{source.name}/{relative}"]
    return missing


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        wheel = build(work)
        python = install(wheel, work)
        if missing := missing_files(python, work):
            sys.exit("not in the wheel: " + ", ".join(missing))
        env = {**os.environ, "BATCHCTL_HOME": str(work / "home"), "HOME": folder}
        for command in COMMANDS:
            run(python.with_name("batchctl"), *command, cwd=work, env=env)
            print(f"wheel: batchctl {' '.join(command)}: ok")


if __name__ == "__main__":
    main()
