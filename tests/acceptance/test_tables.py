"""docs/tables.md, word for word: every command in it is run, and prints what it says."""

from __future__ import annotations

import csv
import gzip
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard
from openpyxl import Workbook

from tests.acceptance.shell import ROOT, Done, Shell

PAGE = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^\$ (.+)\n((?:[^$].*\n)*)", flags=re.MULTILINE)
EXAMPLES = [(command, said.strip()) for block in BLOCKS for command, said in _COMMAND.findall(block)]
INPUTS = ".tsv .parquet .gz .zst *.csv | hf: .xlsx --sheet --encoding --format --requests photos samples".split()


@pytest.fixture(autouse=True)
def files(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples, and the same reviews in every format."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.setenv("HF_HOME", str(shell.folder / "cache"))
    shutil.copytree(ROOT / "examples", shell.folder, dirs_exist_ok=True)
    data = Path("reviews.csv").read_bytes()
    with Path("reviews.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    Path("reviews.csv.gz").write_bytes(gzip.compress(data))
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    Path("reviews.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(lines.encode()))
    with Path("reviews.tsv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t").writerows([list(rows[0]), *(row.values() for row in rows)])
    pq.write_table(pa.Table.from_pylist(rows), "reviews.parquet")
    book = Workbook()
    assert book.active is not None
    book.active.title = "reviews"
    for line in (list(rows[0]), *(list(row.values()) for row in rows)):
        book.active.append(line)
    book.create_sheet("notes")
    book.save("reviews.xlsx")
    Path("parts").mkdir()
    for number, part in enumerate((rows[:40], rows[40:]), 1):
        with Path(f"parts/{number}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([list(rows[0]), *(row.values() for row in part)])
    Path("windows.csv").write_bytes("text,label\nCafé noir,positive\n".encode("cp1252"))


def run(shell: Shell, command: str) -> Done:
    """As a shell would: with a pipe in a process of its own, else in this one."""
    words = shlex.split(command)
    if "|" not in words:
        return shell(*words[1:])
    here = command.replace("batchctl", shlex.join([sys.executable, "-m", "batchctl"]))
    done = subprocess.run(here, shell=True, capture_output=True, text=True, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


def test_the_page_has_an_example_of_every_input() -> None:
    assert len(EXAMPLES) >= 14
    for word in INPUTS:
        assert any(word in command for command, _ in EXAMPLES), word


@pytest.mark.parametrize(("command", "said"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_an_example_prints_what_the_page_says(shell: Shell, command: str, said: str) -> None:
    done = run(shell, command)
    assert said in (done.out + done.err), done
    assert done.code == (0 if " fine" in said or said.startswith("rows ") else 2)
