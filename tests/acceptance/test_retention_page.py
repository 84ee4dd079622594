"""docs/retention.md: its commands are run and say what it says, sizes apart; its defaults are those of the code."""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib

from batchctl.config import load_settings
from batchctl.retention import Retention
from tests.acceptance.shell import ROOT, Shell

PAGE = (ROOT / "docs" / "retention.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^\$ batchctl (.+)\n((?:[^$].*\n|\n)*)", flags=re.MULTILINE)
EXAMPLES = [example for block in BLOCKS for example in _COMMAND.findall(block)]
_PROGRESS = re.compile(r"reviews-1: .*\d+ of \d+ rows done|reviews-1: finished")


def plain(text: str) -> list[str]:
    """Its lines, without sizes, accuracies and the width of columns."""
    lines = [re.sub(r"\s+", " ", re.sub(r"[\d.,]+ [kM]?B\b", "N", line)).strip() for line in text.split("\n")]
    return [re.sub(r"accuracy: .*|tokens: .*", "...", line) for line in lines if line and not _PROGRESS.match(line)]


def test_every_command_says_what_the_page_says(shell: Shell) -> None:
    shutil.copytree(ROOT / "examples", shell.folder, dirs_exist_ok=True)
    assert len(EXAMPLES) == 6
    for words, said in EXAMPLES:
        done = shell.ok(*shlex.split(words))
        assert sorted(plain(done.out) + plain(done.err)) == sorted(plain(said)), words


def test_the_settings_on_the_page_are_the_defaults(shell: Shell) -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
    assert set(tomllib.loads(block)["retention"]) == {"auto", "files", "jobs", "keep_remote_files"}
    (shell.folder / "batchctl.toml").write_text(block, encoding="utf-8")
    assert load_settings().retention == Retention()
