"""docs/results.md and docs/python.md, word for word: every example is run, and does what it says."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.acceptance.shell import ROOT, Shell

FENCED = r"^```{}\n(.*?)^```"
COMMAND = re.compile(r"^\$ (.+)\n((?:[^$].*\n)*)", flags=re.MULTILINE)


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(FENCED.format(language), text, flags=re.DOTALL | re.MULTILINE)


EXAMPLES = [example for block in blocks("results.md", "console") for example in COMMAND.findall(block)]
FAILING = {"kind": "row_status", "status": 400, "share": 1, "nth": 4, "message": "invalid request"}


@pytest.fixture
def examples(shell: Shell) -> Shell:
    shutil.copytree(ROOT / "examples", shell.folder, dirs_exist_ok=True)
    return shell


def test_the_page_of_results_does_what_it_says(examples: Shell) -> None:
    examples.server.post_faults([FAILING])
    words = ("submit", "reviews.yaml", "reviews.csv", "--provider", "rehearsal", "--max-batch-requests", 20, "--wait")
    assert examples(*words).out == "reviews-1\n"
    assert len(EXAMPLES) >= 13
    for command, said in EXAMPLES:
        done = examples(*shlex.split(command)[1:])
        printed = done.out + done.err
        for line in said.strip().split("\n"):
            assert line == "..." or f"{line}\n" in printed, (command, line, printed)
        assert done.code == (2 if "error: " in said else 0 if command.startswith("batchctl show") else 3), command


def test_the_page_of_python_does_what_it_says(examples: Shell) -> None:
    code = "\n".join(blocks("python.md", "python"))
    exec(compile(code, "python.md", "exec"), {})
    out = examples.capture.readouterr().out
    assert out.startswith("reviews-1\n")
    assert "--again" in out
    assert Path("labelled.csv").exists() and Path("positive.parquet").exists()
