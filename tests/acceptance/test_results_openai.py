"""`results --format openai`: the provider's own lines, in input order, under the user's ids."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from batchctl_adapters.openai_results import parse_result
from tests.acceptance.shell import Shell


def lines(shell: Shell, name: str, *options: object) -> list[dict[str, Any]]:
    done = shell("results", name, "--format", "openai", *options)
    assert done.code in (0, 3), done
    return [json.loads(line) for line in done.out.split("\n")[:-1]]


def answers(found: list[dict[str, Any]]) -> list[str]:
    return [line["response"]["body"]["choices"][0]["message"]["content"] for line in found]


def drop_raw(shell: Shell) -> None:
    """What `gc` does: the received files go."""
    for folder in (Path(shell.environ["BATCHCTL_HOME"]) / "spool" / "jobs").glob("*/results"):
        shutil.rmtree(folder)


@pytest.fixture
def table(shell: Shell) -> Path:
    path = Path("rows.jsonl")
    ids = ["seven", 8, "", None, "a b\u2028", "seven"]
    rows = [{"id": one, "text": f"row number {place}"} for place, one in enumerate(ids)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def submitted(shell: Shell, table: Path, *more: object) -> str:
    words = ("submit", "task.yaml", table, "--provider", "rehearsal", "--wait", *more)
    done = shell(*words)
    assert done.code in (0, 3), done
    return done.out.strip()


def test_lines_are_in_input_order_under_the_users_ids(shell: Shell, table: Path) -> None:
    shell.server.post_faults([{"kind": "duplicate_rows", "share": 0.5}])
    name = submitted(shell, table, "--max-batch-requests", 2)
    done = shell.ok("results", name, "--format", "openai")
    found = [json.loads(line) for line in done.out.split("\n")[:-1]]
    assert [line["custom_id"] for line in found] == ["seven", "8", "3", "4", "a b\u2028", "seven"]
    assert "id repeats: 1 line with the custom_id of another" in done.err
    assert len(done.out.splitlines()) == 6, "no line is cut by any reader"
    merged = [json.loads(line)["label"] for line in shell.ok("results", name).out.split("\n")[:-1]]
    assert [json.loads(answer)["label"] for answer in answers(found)] == merged
    assert [parse_result(json.dumps(line).encode()).custom_id for line in found] == [one["custom_id"] for one in found]


def test_the_received_lines_are_not_changed(shell: Shell, table: Path) -> None:
    name = submitted(shell, table)
    [raw] = (Path(shell.environ["BATCHCTL_HOME"]) / "spool" / "jobs").glob("*/results/*")
    from batchctl_store.spool import Spool

    spool = Spool(raw.parents[3])
    with spool.reader(str(raw.relative_to(spool.root))) as reader:
        received = [json.loads(line) for line in reader.lines()]
    found = lines(shell, name)
    assert sorted(line["id"] for line in found) == sorted(line["id"] for line in received)
    mine = {line["id"]: line for line in found}
    assert all({**line, "custom_id": mine[line["id"]]["custom_id"]} == mine[line["id"]] for line in received)


def test_another_column_may_be_the_id_and_without_one_it_is_the_rows_number(shell: Shell, table: Path) -> None:
    name = submitted(shell, table)
    assert lines(shell, name, "--id", "text")[2]["custom_id"] == "row number 2"
    assert [line["custom_id"] for line in lines(shell, name, "--where", "text~number 4")] == ["a b\u2028"]
    other = shell.submit("--wait", rows=2)
    assert [line["custom_id"] for line in lines(shell, other)] == ["1", "2"]
    refused = shell("results", name, "-o", "x.csv", "--id", "text")
    assert (refused.code, "--format openai" in refused.err) == (2, True)


def test_rows_without_a_line_say_why(shell: Shell, table: Path) -> None:
    shell.server.post_faults([{"kind": "missing_rows", "share": 0.5, "nth": 1}])
    name = submitted(shell, table)
    rows = [json.loads(line) for line in shell("results", name).out.split("\n")[:-1]]
    assert {row["outcome"] for row in rows} == {"succeeded", "missing"}
    for line, row in zip(lines(shell, name), rows, strict=True):
        missing = row["outcome"] == "missing"
        assert (line["response"] is None) is missing
        assert line["error"] == ({"code": "missing", "message": row["error"]} if missing else None)


def test_case_13_rows_that_failed_have_the_providers_own_words(shell: Shell, table: Path) -> None:
    shell.server.post_faults([{"kind": "row_status", "status": 400, "share": 1, "message": "no such luck"}])
    found = lines(shell, submitted(shell, table))
    assert [line["response"]["status_code"] for line in found] == [400] * 6
    assert {line["response"]["body"]["error"]["message"] for line in found} == {"no such luck"}


def test_rows_that_were_never_sent_and_rows_still_out(shell: Shell, table: Path) -> None:
    shell.ok("submit", "task.yaml", table, "--provider", "rehearsal", "--no-tick")
    found = lines(shell, "moods-1", "--partial")
    assert {line["error"]["code"] for line in found} == {"assigned"}
    shell.ok("cancel", "moods-1")
    shell("wait", "moods-1")
    assert {line["error"]["code"] for line in lines(shell, "moods-1")} == {"canceled"}


def test_without_the_received_files_lines_are_put_together_from_the_store(shell: Shell, table: Path) -> None:
    name = submitted(shell, table)
    before = lines(shell, name)
    drop_raw(shell)
    done = shell.ok("results", name, "--format", "openai", "-o", "lines.jsonl", "--json")
    assert "6 lines were put together from the store" in done.err
    after = [json.loads(line) for line in Path("lines.jsonl").read_bytes().split(b"\n")[:-1]]
    assert [line["custom_id"] for line in after] == [line["custom_id"] for line in before]
    for old, new in zip(before, after, strict=True):
        body, kept = old["response"]["body"], new["response"]["body"]
        assert json.loads(body["choices"][0]["message"]["content"])["label"] == kept["choices"][0]["message"]["content"]
        assert kept["choices"][0]["finish_reason"] == "stop"
        assert kept["model"] == body["model"]
        assert kept["usage"] == {key: body["usage"][key] for key in kept["usage"]}


def test_ready_made_requests_get_their_ids_back(shell: Shell) -> None:
    requests = [
        {
            "custom_id": f"my request / {number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "rehearsal", "messages": [{"role": "user", "content": f"row {number}"}]},
        }
        for number in range(3)
    ]
    text = "".join(json.dumps(request) + "\n" for request in requests)
    Path("requests.jsonl").write_text(text, encoding="utf-8")
    shell.ok("submit", "--requests", "requests.jsonl", "--provider", "rehearsal", "-o", "out.jsonl", "--wait")
    found = lines(shell, "1")
    assert [line["custom_id"] for line in found] == [request["custom_id"] for request in requests]
    assert all(answers(found))
    shown = shell.ok("show", "1", "--where", "custom_id=my request / 1").out
    assert "row 1" in shown


@pytest.mark.parametrize(
    ("name", "format", "said"),
    [
        ("x.csv", "jsonl", "the name says csv, --format says jsonl"),
        ("x.csv", "openai", "the name says csv, --format says openai"),
        ("x.txt", None, "cannot tell the output's format"),
    ],
)
def test_a_name_and_a_format_that_disagree_are_refused(
    shell: Shell, table: Path, name: str, format: str | None, said: str
) -> None:
    job = submitted(shell, table)
    done = shell("results", job, "-o", name, *(("--format", format) if format else ()))
    assert (done.code, said in done.err) == (2, True), done
    assert not Path(name).exists()


def test_any_name_will_do_where_the_format_is_said(shell: Shell, table: Path) -> None:
    name = submitted(shell, table)
    shell.ok("results", name, "-o", "x.txt", "--format", "tsv")
    assert Path("x.txt").read_bytes().startswith(b"id\ttext\tlabel\toutcome")
    piped = shell.ok("results", name, "--format", "csv")
    shell.ok("results", name, "-o", "x.csv")
    assert piped.out.encode() == Path("x.csv").read_bytes()
