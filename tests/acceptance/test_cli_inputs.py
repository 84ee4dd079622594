"""Inputs of every kind from submit to results, over the wire of the rehearsal server."""

from __future__ import annotations

import base64
import io
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.shell import ROOT, Shell
from tests.acceptance.test_cli_refusals import nothing_happened


@pytest.fixture(autouse=True)
def files_are_kept(shell: Shell) -> None:
    """The provider's files are left after a merge, so that they can be looked at."""
    with (shell.folder / "batchctl.toml").open("a", encoding="utf-8") as file:
        file.write("[retention]\nkeep_remote_files = true\n")


def written(name: str, lines: list[Any]) -> None:
    Path(name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def request(custom_id: str, model: str = "m", **body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"hello {custom_id}"}]
    whole = {"model": model, "messages": messages, **body}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": whole}


def output(name: str = "out.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(name).read_bytes().split(b"\n")[:-1]]


def sent(shell: Shell) -> list[dict[str, Any]]:
    """The bodies of all uploaded lines."""
    with shell.server.client() as client:
        files = [file.id for file in client.files.list(order="asc") if file.purpose == "batch"]
        return [
            json.loads(line)["body"] for one in files for line in client.files.content(one).read().split(b"\n")[:-1]
        ]


def test_case_63_ready_made_requests_of_two_models_go_out_apart_and_come_back_in_order(shell: Shell) -> None:
    requests = [request(f"doc/{n}: é", model="ab"[n % 2], temperature=0.5) for n in range(7)]
    written("mine.jsonl", requests)
    done = shell.ok("submit", "--requests", "mine.jsonl", "--provider", "rehearsal", "-o", "out.jsonl", "--wait")
    assert done.out == "mine-1\n"
    found = output()
    assert [row["custom_id"] for row in found] == [one["custom_id"] for one in requests]
    assert [row["batch"] for row in found] == ["b1", "b2"] * 3 + ["b1"]
    assert {row["outcome"] for row in found} == {"succeeded"}
    assert all(one["custom_id"] in row["answer"] for one, row in zip(requests, found, strict=True))
    by_content = {json.dumps(one["body"], sort_keys=True) for one in requests}
    assert {json.dumps(body, sort_keys=True) for body in sent(shell)} == by_content
    assert shell.ok("status", "mine-1", "--json").json["jobs"][0]["model"] == "a, b"
    assert shell.server.ledger()["answered_once"] == 7
    again = shell("submit", "--requests", "mine.jsonl", "--provider", "rehearsal")
    assert (again.code, "already job mine-1" in again.err) == (2, True)


def test_ready_made_embeddings_and_responses_go_to_their_endpoints(shell: Shell) -> None:
    texts: list[Any] = ["one", ["two", "three"], "four"]
    bodies: list[dict[str, Any]] = [{"model": "e", "input": one} for one in texts]
    lines = [request(f"{n}") | {"url": "/v1/embeddings", "body": body} for n, body in enumerate(bodies)]
    written("vectors.jsonl", lines)
    shell.ok("submit", "--requests", "vectors.jsonl", "--provider", "rehearsal", "-o", "out.jsonl", "--wait")
    assert [len(row["embeddings"]) for row in output()] == [1, 2, 1]
    written("asked.jsonl", [request("a") | {"url": "/v1/responses", "body": {"model": "m", "input": "hello a"}}])
    shell.ok("submit", "--requests", "asked.jsonl", "--provider", "rehearsal", "-o", "told.jsonl", "--wait")
    assert [(row["custom_id"], row["outcome"]) for row in output("told.jsonl")] == [("a", "succeeded")]
    assert sent(shell) == [*bodies, {"model": "m", "input": "hello a"}]


def test_case_63_models_stay_apart_when_rows_are_sent_again(shell: Shell) -> None:
    written("mine.jsonl", [request(f"{n}", model="abc"[n % 3]) for n in range(30)])
    shell.server.post_faults([{"kind": "row_status", "status": 500, "share": 0.5, "nth": [1, 2, 3]}], seed=3)
    done = shell.ok("submit", "--requests", "mine.jsonl", "--provider", "rehearsal", "-o", "out.jsonl", "--wait")
    assert done.out == "mine-1\n"
    attempts = Counter(row["attempts"] for row in output())
    assert attempts[1] and attempts[2] and sum(attempts.values()) == 30
    models = {(row["batch"], "abc"[number % 3]) for number, row in enumerate(output())}
    assert len(models) == len({batch for batch, _ in models}) == 6
    assert shell.server.ledger()["answered_once"] == 30


def test_case_57_duplicate_ids_are_refused_with_both_lines_and_nothing_is_sent(shell: Shell) -> None:
    written("mine.jsonl", [request("a"), request("b"), request("a")])
    done = shell("submit", "--requests", "mine.jsonl", "--provider", "rehearsal")
    assert done.code == 2
    assert "mine.jsonl:3: the custom_id is that of line 1 again" in done.err
    assert nothing_happened(shell)


def test_requests_for_anthropic_and_a_missing_task_say_what_to_type(shell: Shell) -> None:
    written("theirs.jsonl", [{"custom_id": "a", "params": {"model": "m", "max_tokens": 5, "messages": []}}])
    done = shell("submit", "--requests", "theirs.jsonl", "--provider", "rehearsal")
    assert done.code == 2
    assert "a ready-made request for Anthropic's batch API" in done.err
    done = shell("submit", "theirs.jsonl", "--provider", "rehearsal")
    assert done.code == 2
    assert "--requests theirs.jsonl" in done.err
    done = shell("submit", "task.yaml", "--provider", "rehearsal")
    assert "no input is named" in done.err
    assert shell("submit", "--requests", "--provider", "rehearsal").code == 2
    done = shell("submit", "task.yaml", "theirs.jsonl", "--requests", "--provider", "rehearsal")
    assert "with --requests there is none" in done.err
    assert nothing_happened(shell)


def test_answers_to_ready_made_requests_are_checked_where_a_task_says_how(shell: Shell) -> None:
    written("mine.jsonl", [request("a"), request("b")])
    Path("check.yaml").write_text("samples: requests\noutput: {labels: [good, bad]}\n", encoding="utf-8")
    done = shell("submit", "check.yaml", "mine.jsonl", "--provider", "rehearsal", "-o", "out.jsonl", "--wait")
    assert done.code == 3  # canned answers are no labels
    assert [(row["label"], row["outcome"]) for row in output()] == [(None, "invalid")] * 2


def test_images_are_read_and_sent_as_parts(shell: Shell) -> None:
    shutil.copytree(ROOT / "examples", "data")
    shell.ok("submit", "data/photos.yaml", "data/photos.csv", "--provider", "rehearsal", "-o", "out.jsonl", "--wait")
    assert [row["thing"] for row in output()] == ["square", "wall"]
    for body, name in zip(sent(shell), ("red", "blue"), strict=True):
        text, image = body["messages"][-1]["content"]
        assert text["type"] == "text"
        data = base64.b64encode(Path(f"data/photos/{name}.png").read_bytes()).decode()
        assert image == {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def test_a_wrong_image_is_found_before_anything_is_sent(shell: Shell) -> None:
    shutil.copytree(ROOT / "examples", "data")
    Path("data/photos/blue.png").write_text("not one", encoding="utf-8")
    done = shell("submit", "data/photos.yaml", "data/photos.csv", "--provider", "rehearsal")
    assert done.code == 2
    assert "photos.csv:3: row 1: column 'photo': 'photos/blue.png' is no image" in done.err
    assert nothing_happened(shell)


def test_a_changed_image_is_another_input(shell: Shell) -> None:
    shutil.copytree(ROOT / "examples", "data")
    words = ("submit", "data/photos.yaml", "data/photos.csv", "--provider", "rehearsal", "--no-tick")
    shell.ok(*words)
    assert shell(*words).code == 2
    Path("data/photos/blue.png").write_bytes(Path("data/photos/red.png").read_bytes())
    shell.ok(*words)


def test_samples_are_sent_and_judged_by_their_targets(shell: Shell) -> None:
    rows = [
        {"input": [{"role": "user", "content": "one"}], "ideal": ["good", "bad"]},
        {"input": "two", "ideal": "neither"},
        {"input": "three"},
    ]
    written("s.jsonl", rows)
    Path("s.yaml").write_text("model: small\nsamples: evals\noutput: {labels: [good, bad]}\n", encoding="utf-8")
    name = shell.ok("submit", "s.yaml", "s.jsonl", "--provider", "rehearsal", "-o", "out.jsonl", "--wait").out.strip()
    assert [body["messages"] for body in sent(shell)] == [
        [{"role": "user", "content": text}] for text in ("one", "two", "three")
    ]
    told = shell.ok("results", name, "-o", "again.jsonl", "--json").json
    assert (told["judged"], told["correct"]) == (2, 1)
    assert [{key: row[key] for key in row if key in ("input", "ideal")} for row in output()] == rows


def test_several_inputs_and_standard_input_become_one_table(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.csv").write_text("text,label\none,x\n", encoding="utf-8")
    Path("b.jsonl").write_text('{"text": "two", "more": 1.10}\n', encoding="utf-8")

    class Stdin:
        buffer = io.BytesIO(b'{"text": "three"}\n')

    words = ("task.yaml", "a.csv", "b.jsonl", "--provider", "rehearsal")
    shell.ok("submit", *words, "-o", "out.csv", "--wait")
    lines = Path("out.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("text,label,more,batchctl_label,outcome")
    assert [line.split(",")[:3] for line in lines[1:]] == [["one", "x", ""], ["two", "", "1.10"]]
    assert shell.ok("status", "moods-1", "--json").json["jobs"][0]["input"] == "a.csv, b.jsonl"
    monkeypatch.setattr("sys.stdin", Stdin())
    shell.ok("submit", "task.yaml", "-", "--format", "jsonl", "--provider", "rehearsal", "-o", "in.jsonl", "--wait")
    assert [row["text"] for row in output("in.jsonl")] == ["three"]


def test_an_output_never_replaces_one_of_several_inputs(shell: Shell) -> None:
    Path("a.csv").write_text("text\none\n", encoding="utf-8")
    Path("b.csv").write_text("text\ntwo\n", encoding="utf-8")
    done = shell("submit", "task.yaml", "*.csv", "--provider", "rehearsal", "-o", "b.csv", "--force")
    assert done.code == 2
    assert "the output would replace the input" in done.err
    assert nothing_happened(shell)
