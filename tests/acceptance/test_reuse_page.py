"""docs/reuse.md, word for word: its tables are written, its commands run in order, and they say what the page says."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

from tests.acceptance.shell import ROOT, Shell

PAGE = (ROOT / "docs" / "reuse.md").read_text(encoding="utf-8")
TABLES = re.findall(r"^```csv (\S+)\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
BLOCKS = re.findall(r"^```console\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^\$ batchctl (.+)\n((?:[^$].*\n|\n)*)", flags=re.MULTILINE)
EXAMPLES = [example for block in BLOCKS for example in _COMMAND.findall(block)]


def test_every_command_says_what_the_page_says(shell: Shell) -> None:
    shutil.copytree(ROOT / "examples", shell.folder, dirs_exist_ok=True)
    task = Path("reviews.yaml").read_text(encoding="utf-8")
    Path("reviews.yaml").write_text(re.sub("^expected:.*$", "", task, flags=re.MULTILINE), encoding="utf-8")
    for name, content in TABLES:
        Path(name).write_text(content, encoding="utf-8")
    assert (len(TABLES), len(EXAMPLES)) == (2, 8)
    for words, said in EXAMPLES:
        done = shell.ok(*shlex.split(words))
        lines = [line.rstrip() for line in (done.out + done.err).split("\n")]
        for line in said.rstrip("\n").split("\n"):
            assert any(found.startswith(line) for found in lines), (words, line, lines)
    assert shell.server.ledger()["requests_sent"] == 2 + 1 + 2
