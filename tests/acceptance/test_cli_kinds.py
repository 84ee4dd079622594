"""Every kind of task through the command line, each documented example among them, and what is refused beforehand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.shell import ROOT, Shell, write_rows
from tests.acceptance.test_cli_refusals import nothing_happened
from tests.servers import QUICK, rehearsal

pq = pytest.importorskip("pyarrow.parquet")

REHEARSAL = ("--provider", "rehearsal")
PAIRS = re.findall(
    r"^```yaml\n(.*?)^```\n```jsonl\n(.*?)^```",
    (ROOT / "docs" / "task.md").read_text("utf-8"),
    re.DOTALL | re.MULTILINE,
)
KIND = re.compile(r"^kind: (\w+)", re.MULTILINE)


def add_profile(shell: Shell, name: str, settings: str) -> None:
    """One that extends the rehearsal's."""
    with (shell.folder / "batchctl.toml").open("a", encoding="utf-8") as file:
        file.write(f'[profiles.{name}]\nextends = "rehearsal"\n{settings}\n')


def rows_of(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_bytes().split(b"\n")[:-1]]


def test_the_page_has_an_example_of_each_kind_besides_chat() -> None:
    assert sorted(kind for task, _ in PAIRS for kind in KIND.findall(task)) == [
        "completion",
        "embedding",
        "moderation",
        "responses",
    ]


@pytest.mark.parametrize(("task", "rows"), PAIRS, ids=[KIND.findall(task)[0] for task, _ in PAIRS])
def test_a_documented_example_runs(shell: Shell, task: str, rows: str) -> None:
    Path("task.yaml").write_text(task, encoding="utf-8")
    Path("rows.jsonl").write_text(rows, encoding="utf-8")
    assert shell.ok("validate", "task.yaml", "rows.jsonl", "--provider", "rehearsal", "--json").json["warnings"] == []
    shell.ok("submit", "task.yaml", "rows.jsonl", *REHEARSAL, "-o", "out.parquet", "--wait")
    table = pq.read_table("out.parquet")
    assert set(table.column("outcome").to_pylist()) == {"succeeded"}
    assert table.num_rows == rows.count("\n")
    answer = {
        "completion": ("answer", str),
        "embedding": ("embeddings", list),
        "moderation": ("flagged", bool),
        "responses": ("city", str),
    }
    name, kind = answer[KIND.findall(task)[0]]
    assert all(type(value) is kind for value in table.column(name).to_pylist())


def test_the_documented_task_that_would_be_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "task.md").read_text("utf-8")
    pattern = r"^```yaml\n([^`]*)^```\n```console\n\$ batchctl (validate wrong[^\n]*)\n([^`]*)^```"
    found = re.search(pattern, page, re.MULTILINE)
    assert found is not None
    Path("wrong.yaml").write_text(found[1], encoding="utf-8")
    Path("rows.jsonl").write_text('{"text": "a"}\n', encoding="utf-8")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    done = shell(*found[2].split())
    assert (done.code, done.out) == (2, found[3])


def test_the_example_of_embeddings_in_every_format(shell: Shell) -> None:
    examples = ROOT / "examples"
    shell.ok("submit", examples / "embed.yaml", examples / "embed.csv", *REHEARSAL, "-o", "v.parquet", "--wait")
    shell.ok("results", "embed-1", "-o", "v.jsonl")
    shell.ok("results", "embed-1", "-o", "v.csv")
    table = pq.read_table("v.parquet")
    assert table.schema.field("embedding").type.list_size == 256
    assert table.column("id").to_pylist() == ["001", "002", "003", "004", "005", "006"]
    vectors = table.column("embedding").to_pylist()
    assert [row["embedding"] for row in rows_of("v.jsonl")] == vectors
    assert json.dumps(vectors[5], separators=(",", ":")) in Path("v.csv").read_text(encoding="utf-8")
    assert table.schema.field("input_tokens").type == "int64" and table.schema.field("text").type == "string"


def test_chat_in_parquet_has_its_types_and_its_failures(shell: Shell) -> None:
    schema = "{type: object, properties: {n: {type: integer}, s: {type: string}}, required: [n, s]}"
    Path("task.yaml").write_text(f"model: small\nprompt: '{{{{ text }}}}'\noutput: {{json_schema: {schema}}}\n")
    write_rows(Path("rows.csv"), 12)
    shell.server.post_faults([{"kind": "row_status", "status": 400, "share": 0.5}])
    assert shell("submit", "task.yaml", "rows.csv", *REHEARSAL, "-o", "out.parquet", "--wait").code == 3
    table = pq.read_table("out.parquet")
    assert {name: str(table.schema.field(name).type) for name in ("label", "n", "s", "attempts")} == {
        "label": "string",
        "n": "int64",
        "s": "string",
        "attempts": "int64",
    }
    outcomes = table.column("outcome").to_pylist()
    assert sorted(set(outcomes)) == ["errored", "succeeded"] and len(outcomes) == 12
    assert [value is None for value in table.column("n").to_pylist()] == [one == "errored" for one in outcomes]


CHUNKS = 'kind: embedding\nmodel: embedder\neach: chunks\nprompt: "{{ item }}"\n'


def chunk_rows(*counts: int) -> None:
    Path("task.yaml").write_text(CHUNKS, encoding="utf-8")
    lines = [json.dumps({"chunks": [f"text {n} of {row}" for n in range(count)]}) for row, count in enumerate(counts)]
    Path("rows.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_case_43_batches_are_cut_by_their_texts(shell: Shell) -> None:
    add_profile(shell, "small_files", "max_inputs = 10\nmax_request_inputs = 5")
    chunk_rows(*[2] * 30)
    estimate = shell.ok("estimate", "task.yaml", "rows.jsonl", "--provider", "small_files", "--json").json
    assert (estimate["rows"], estimate["batches"], estimate["max_output_tokens"]) == (30, 6, 0)
    shell.ok("submit", "task.yaml", "rows.jsonl", "--provider", "small_files", "-o", "out.jsonl", "--wait")
    assert shell.server.ledger()["creates"] == 6
    assert [len(row["embeddings"]) for row in rows_of("out.jsonl")] == [2] * 30


def test_case_43_a_row_with_too_many_texts_fails_alone_and_a_retry_counts_too(shell: Shell) -> None:
    add_profile(shell, "small_files", "max_inputs = 10\nmax_request_inputs = 5")
    chunk_rows(6, 5, 5, 5, 1)
    done = shell("validate", "task.yaml", "rows.jsonl", "--provider", "small_files")
    assert done.code == 2 and "rows.jsonl:1: the row has 6 texts, the limit is 5" in done.out
    shell.server.post_faults([{"kind": "row_status", "status": 400, "share": 1, "nth": [1, 2]}])
    submit = ("submit", "task.yaml", "rows.jsonl", "--provider", "small_files", "-o", "out.jsonl", "--wait")
    assert shell(*submit).code == 3
    assert [row["outcome"] for row in rows_of("out.jsonl")] == ["errored"] * 5
    assert "too_many_inputs: the row has more texts than the limit of 5" in rows_of("out.jsonl")[0]["error"]
    shell.server.post_faults([])
    shell.ok("retry", "rows-1", "--where", "errored")
    shell("wait", "rows-1")
    assert [row["outcome"] for row in rows_of("out.jsonl")] == ["errored", *["succeeded"] * 4]
    assert shell.server.ledger()["creates"] == 4  # 5 + 5 and 5 + 1 texts, twice


def test_case_62_a_kind_that_the_provider_does_not_have(shell: Shell) -> None:
    add_profile(shell, "chat_only", 'endpoints = { chat = "/v1/chat/completions" }')
    chunk_rows(1)
    for command in ("validate", "estimate", "submit"):
        done = shell(command, "task.yaml", "rows.jsonl", "--provider", "chat_only")
        assert done.code == 2
        assert "task.yaml:1: kind: profile chat_only has no endpoint for embedding, it has: chat" in done.out + done.err
    assert nothing_happened(shell)


@pytest.mark.parametrize("command", ["validate", "estimate", "submit"])
def test_case_64_67_68_every_finding_is_told_by_its_line_and_nothing_is_stored(shell: Shell, command: str) -> None:
    write_rows(Path("rows.csv"), 3)
    Path("task.yaml").write_text(
        "model: gpt-5-mini\nprompt: '{{ text }}'\nmax_output_tokens: 50\nparams: {temperature: 0}\n"
        "provider_params:\n  stream: true\n  extra_body: {top_k: 5}\n  response_format: {type: object}\n  n: 2\n",
        encoding="utf-8",
    )
    done = shell(command, "task.yaml", "rows.csv", *REHEARSAL)
    assert done.code == 2
    said = done.out + done.err
    wanted = {
        4: "params.temperature",
        6: "provider_params.stream",
        7: "provider_params.extra_body",
        8: "provider_params.response_format",
        9: "provider_params.n",
    }
    assert [line for line, place in wanted.items() if f"task.yaml:{line}: {place}: " in said] == list(wanted)
    assert nothing_happened(shell)


def test_a_warning_stops_nothing(shell: Shell) -> None:
    write_rows(Path("rows.csv"), 2)
    Path("task.yaml").write_text("model: gpt-5-mini\nprompt: '{{ text }}'\nmax_output_tokens: 99\n", encoding="utf-8")
    for command in ("validate", "estimate", "submit"):
        done = shell.ok(command, "task.yaml", "rows.csv", *REHEARSAL)
        assert "warning: task.yaml:3: max_output_tokens: gpt-5-mini reasons out of the same 99 tokens" in done.err
        assert "warning" not in done.out
    found = shell.ok("validate", "task.yaml", "rows.csv", *REHEARSAL, "--json").json
    assert found["ok"] is True and len(found["warnings"]) == 1


def test_empty_texts_of_embeddings_are_counted_and_fail_alone(shell: Shell) -> None:
    Path("task.yaml").write_text("kind: embedding\nmodel: m\nprompt: '{{ text }}'\n", encoding="utf-8")
    Path("rows.csv").write_text("id,text\n1,one\n2,\n3,three\n", encoding="utf-8")
    done = shell.ok("validate", "task.yaml", "rows.csv", *REHEARSAL)
    assert "warning: rows.csv: 1 rows have an empty text" in done.err
    assert shell("submit", "task.yaml", "rows.csv", *REHEARSAL, "-o", "out.parquet", "--wait").code == 3
    table = pq.read_table("out.parquet")
    assert table.column("outcome").to_pylist() == ["succeeded", "errored", "succeeded"]
    assert [value is None for value in table.column("embedding").to_pylist()] == [False, True, False]


def test_case_24_the_whole_text_counts_and_the_log_says_so(
    shell: Shell,
) -> None:
    write_rows(Path("rows.csv"), 20)
    Path("task.yaml").write_text(
        "kind: responses\nmodel: small\nprompt: '{{ text }}'\noutput: {labels: [good, bad]}\n", encoding="utf-8"
    )
    with rehearsal(in_process=True, speed=1_000.0, timing=QUICK, shares={"restarted": 0.5}) as server:
        add_profile(shell, "restless", f'base_url = "{server.base_url}"')
        shell.ok("submit", "task.yaml", "rows.csv", "--provider", "restless", "-o", "out.jsonl", "--wait")
    assert {row["batchctl_label"] in ("good", "bad") and row["error"] is None for row in rows_of("out.jsonl")} == {True}
    several = re.search(r"collected 20 lines \((\d+) answers in several texts\)", shell.ok("logs", "rows-1").out)
    assert several and 3 < int(several[1]) < 17
