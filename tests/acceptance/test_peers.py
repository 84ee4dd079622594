"""The comparison with other tools, without the other tools: what is measured, and what stands in the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.peers.__main__ import Line, cost_table, expiry_table, measure
from bench.peers.tools import TOOLS, Tool
from bench.processes import Spent

OURS = {tool.name: tool for tool in TOOLS}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"id": f"row-{n}", "text": f"text {n}"}) + "\n" for n in range(10)))
    return path


@pytest.mark.long
def test_of_ten_rows_the_one_that_expired_is_sent_again_and_no_other(rows: Path, tmp_path: Path) -> None:
    line = measure(OURS["batchctl"], rows, tmp_path / "work", given=10, options=["--expire-first"])
    assert line.remark == ""
    assert (line.sent, line.answered) == (11, 10)
    assert line.spent is not None and line.spent.cpu_s > 0


def test_the_plain_script_sends_all_rows_once(rows: Path, tmp_path: Path) -> None:
    line = measure(OURS["plain script"], rows, tmp_path / "work", given=10)
    assert (line.sent, line.answered, line.remark) == (10, 10, "")


def test_a_tool_that_ends_in_an_error_is_a_line_that_says_so(rows: Path, tmp_path: Path) -> None:
    line = measure(OURS["plain script"], rows, tmp_path / "work", given=10, options=["--expire-first"])
    assert line.remark.startswith("ended with 1: KeyError")
    assert "| plain script | 10 | 0 of 10 | ended with 1: KeyError" in expiry_table([line])


def test_a_tool_that_cannot_be_installed_is_a_line_that_says_why(rows: Path, tmp_path: Path) -> None:
    tool = Tool("future", "with_plain.py", ("nothing==0",), "nothing", least_python=(9, 0))
    line = measure(tool, rows, tmp_path / "work", given=10)
    ours = Line("batchctl", "1.0", Spent(0, 2.0, 3.0, 99.0), sent=10, answered=10, given=10)
    too_old = "needs Python 9.0 or newer, and none was found; name one with PEERS_PYTHON"
    assert cost_table([ours, line], [ours, line]).split("\n")[2:] == [
        "| batchctl | 1.0 | 2.0 | 2.0 | 3.0 | 99 | 10 | 10 of 10 |  |",
        f"| future | - | - | - | - | - | - | - | {too_old} |",
    ]
