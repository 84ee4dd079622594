"""Ready-made requests: kept as they are but for the id, models apart, wrong lines refused by number."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.config import Settings
from batchctl.engine.prepare import Prepared, preparer
from batchctl.engine.preview import Preview, Target, preview
from batchctl.engine.readymade import ReadyMade
from batchctl.errors import InputError
from batchctl.inputs import Row, open_table
from batchctl.rowjson import parse_object
from batchctl.task import Task
from batchctl_adapters.base import BatchAdapter

TASK = Task.model_validate({"samples": "requests"})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abmodel", max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    from batchctl.composition import find_profile, open_encoder

    settings = Settings(tmp_path_factory.mktemp("home"))
    profile = find_profile(settings, "openai")
    with closing(open_encoder(settings, profile)) as adapter:
        yield Target(profile, adapter)


def line(custom_id: object = "a", **changes: Any) -> dict[str, Any]:
    """One of OpenAI's lines."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body, **changes}


def row(raw: str, number: int = 0) -> Row:
    return Row(number, number + 1, raw.encode(), parse_object(raw.encode()), "r.jsonl")


def looked_at(folder: Path, lines: list[Any], target: Target | None) -> Preview:
    path = folder / "r.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
    return preview(TASK, path, target=target)


def problems(folder: Path, lines: list[Any], target: Target | None = None) -> list[str]:
    return [text.replace(f"{folder}/", "") for text in looked_at(folder, lines, target).problems]


def test_the_body_is_kept_as_it_is_spelled(target: Target) -> None:
    body = '{"model":"m","messages":[],"temperature":1.10,"x":[1e5,-0,"é\\u2028"]}'
    text = f'{{"custom_id":"ü 1/2","method":"POST","url":"/v1/chat/completions","body":{body}}}'
    made = preparer(TASK, target.profile, target.adapter)(row(text))
    assert made.body == body.encode()
    assert made.raw == '{"custom_id":"ü 1/2"}'.encode()
    assert made.group == "m"
    sent = target.adapter.encode_line("b1-2-3", made.body)
    assert json.loads(sent) == {**json.loads(text), "custom_id": "b1-2-3"}
    assert "\u2028" not in sent.decode()
    large = text.replace("-0", "123456789012345678901234567890")
    assert b"[1e5,123456789012345678901234567890," in preparer(TASK, target.profile, target.adapter)(row(large)).body


def test_case_63_several_models_are_apart_and_counted_apart(tmp_path: Path, target: Target) -> None:
    asked = [[{"role": "user", "content": f"{n}"}] for n in range(7)]
    lines = [line(f"id {n}", body={"model": "ABA"[n % 3], "messages": asked[n]}) for n in range(7)]
    found = looked_at(tmp_path, lines, target)
    assert (found.problems, found.rows, found.columns) == ([], 7, ("custom_id",))
    assert sorted(count for count, _ in found.batches) == [2, 5]


def test_models_may_share_a_batch_where_the_provider_takes_that(target: Target) -> None:
    class Mixing:
        capabilities = dataclasses.replace(target.adapter.capabilities, mixed_models=True)
        lint = target.adapter.lint

    adapter: Any = Mixing()
    assert preparer(TASK, target.profile, adapter)(row(json.dumps(line()))).group is None


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["a", "b", "a"], ["r.jsonl:3: the custom_id is that of line 1 again"]),
        (["a", "a", "a"], ["r.jsonl:2: the custom_id is that of line 1", "r.jsonl:3: the custom_id is that of line 1"]),
        (["a", "A", "a ", " a", "\u00e1", "a\u0301"], []),
        (["1", 1], ['r.jsonl:2: the custom_id is no text; write it in quotes: "1"']),
        ([None, ""], ["r.jsonl:1: the custom_id is no text", "r.jsonl:2: the custom_id is empty"]),
    ],
)
def test_case_57_ids_are_told_apart_exactly(tmp_path: Path, lines: list[object], expected: list[str]) -> None:
    found = problems(tmp_path, [line(one) for one in lines])
    assert len(found) == len(expected)
    assert all(text.startswith(begin) for text, begin in zip(found, expected, strict=True))


def test_case_57_an_id_of_another_file_is_named_with_both_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text(json.dumps(line("x")) + "\n\n" + json.dumps(line("y")), encoding="utf-8")
    Path("b.jsonl").write_text(json.dumps(line("z")) + "\n" + json.dumps(line("y")), encoding="utf-8")
    (found,) = preview(TASK, ["a.jsonl", "b.jsonl"]).problems
    assert found.startswith("b.jsonl:2: the custom_id is that of line 3 of a.jsonl again; give every request an id")


@given(ids=st.lists(st.text("ab", max_size=2).filter(bool), max_size=12))
def test_case_57_every_repeated_id_is_found(ids: list[str]) -> None:
    made = ReadyMade(None, None, Prepared)
    for number, one in enumerate(ids):
        made(row(json.dumps(line(one)), number))
    first = {one: number for number, one in reversed(list(enumerate(ids)))}
    expected = [(n + 1, first[one] + 1) for n, one in enumerate(ids) if first[one] != n]
    assert [
        (problem.line, int(problem.message.split("line ")[1].split()[0])) for problem in made.problems()
    ] == expected


@pytest.mark.parametrize(
    "custom_id",
    ["x" * 64, "x" * 65, "doc/1:2.txt", "é", " ", "https://x.org/?q=1", "C:\\x", "a\u2028b", "\U0001f600" * 100],
)
def test_case_58_ids_of_any_length_and_characters_come_back(target: Target, custom_id: str) -> None:
    made = preparer(TASK, target.profile, target.adapter)(row(json.dumps(line(custom_id))))
    assert json.loads(made.raw) == {"custom_id": custom_id}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"method": "GET"}, "the method is 'GET'; batch APIs take \"POST\" only"),
        ({"url": "/v1/embeddings"}, "the url is '/v1/embeddings', that of earlier lines '/v1/chat/completions'"),
        ({"url": None}, "the url is None"),
        ({"body": [1]}, "the body is no JSON object"),
        ({"body": {}}, "the body names no model"),
        ({"body": {"model": " "}}, "the body names no model"),
        ({"body": {"model": "m", "input": "x"}}, "the body has no 'messages', which /v1/chat/completions asks for"),
        ({"body": {"model": "m", "stream": True}}, "the body asks for a stream"),
        ({"extra": 1}, "'extra' is no part of a ready-made request"),
    ],
)
def test_case_68_lines_that_no_provider_would_take_are_refused(
    tmp_path: Path, target: Target, changes: dict[str, Any], expected: str
) -> None:
    (found,) = problems(tmp_path, [line("a"), line("b", **changes)], target)
    assert found.startswith(f"r.jsonl:2: {expected}")


@pytest.mark.parametrize("key", ["custom_id", "method", "url", "body"])
def test_case_68_a_line_without_a_part_is_refused(tmp_path: Path, key: str) -> None:
    (found,) = problems(tmp_path, [{name: value for name, value in line().items() if name != key}])
    assert found.startswith(f"r.jsonl:1: this is no ready-made request: it has no {key!r}")


def test_case_62_urls_that_disagree_are_found_without_a_provider(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, [line("a"), line("b", url="/v1/responses")])
    assert found.startswith("r.jsonl:2: the url is '/v1/responses', that of earlier lines '/v1/chat/completions'")


@pytest.mark.parametrize("url", ["/v1/chat", "/v2/chat/completions", "", None, [], {}])
def test_case_62_a_url_that_the_provider_does_not_have(tmp_path: Path, target: Target, url: Any) -> None:
    (found,) = problems(tmp_path, [line("a", url=url)], target)
    assert found.startswith(f"r.jsonl:1: the url is {url!r}, openai is asked at '/v1/chat/completions' or '/v1/resp")


def test_the_url_of_the_first_request_says_what_kind_all_are(tmp_path: Path, target: Target) -> None:
    def embedding(n: int, texts: Any) -> dict[str, Any]:
        return line(f"{n}", url="/v1/embeddings", body={"model": "text-embedding-3-small", "input": texts})

    most = target.adapter.capabilities.max_request_inputs
    assert most is not None
    lines = [embedding(n, [f"x{n}"] * most) for n in range(25)]
    found = looked_at(tmp_path, lines, target)
    assert (found.problems, [count for count, _ in found.batches]) == ([], [13, 12])
    (found_problem,) = problems(tmp_path, [embedding(0, "one text"), embedding(1, ["x"] * (most + 1))], target)
    assert found_problem.startswith(f"r.jsonl:2: the row has {most + 1:,} texts, the limit is {most:,}")
    (found_problem,) = problems(tmp_path, [embedding(0, [1, 2, 3]), line("a")], target)
    assert found_problem.startswith("r.jsonl:2: the url is '/v1/chat/completions', that of earlier lines '/v1/embed")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"extra_body": {"a": 1}}, "body.extra_body: is an argument of the Python SDK"),
        ({"custom_id": "x"}, "body.custom_id: is a part of the batch line"),
        ({"response_format": {"type": "object"}}, "body.response_format: is a bare schema"),
        ({"model": "o4-mini", "temperature": 0.5}, "body.temperature: o4-mini is one of the"),
        ({"input": "x"}, "body.input: /chat/completions does not take it"),
        ({"n": 3}, "body.n: 3 answers to each row would be paid for and one kept"),
    ],
)
def test_case_64_67_bodies_that_the_provider_would_refuse_are_told_by_line(
    tmp_path: Path, target: Target, body: dict[str, Any], expected: str
) -> None:
    good = line("a")
    (found,) = problems(tmp_path, [good, line("b", body={**good["body"], **body})], target)
    assert found.startswith(f"r.jsonl:2: {expected}")


def test_requests_of_anthropic_are_recognised_and_refused_once(tmp_path: Path, target: Target) -> None:
    lines = [{"custom_id": f"{n}", "params": {"model": "m"}} for n in range(5)]
    for where, aim in ((", which the provider openai does not take", target), ("", None)):
        (found,) = problems(tmp_path, lines, aim)
        assert found.startswith(
            f"r.jsonl:1: this is a ready-made request for Anthropic's batch API{where}; this version"
        )


def test_a_provider_of_another_wire_does_not_take_them(target: Target) -> None:
    class Other:
        capabilities = dataclasses.replace(target.adapter.capabilities, wire="anthropic")

    adapter: Any = Other()
    with pytest.raises(InputError, match="OpenAI's batch API, which the provider openai does not take") as caught:
        preparer(TASK, target.profile, adapter)(row(json.dumps(line())))
    assert caught.value.fatal


@given(value=st.dictionaries(st.sampled_from(["custom_id", "method", "url", "body", "params", "x"]), JSON) | JSON)
def test_any_json_is_a_request_or_a_named_error(target: Target, value: Any) -> None:
    whole = {**line(), **value} if isinstance(value, dict) else line(body=value)
    adapter: BatchAdapter = target.adapter
    for one in (value, whole):
        if isinstance(one, dict):
            try:
                made = preparer(TASK, target.profile, adapter)(row(json.dumps(one)))
            except InputError as error:
                assert error.message.startswith("r.jsonl:1: ")
            else:
                assert json.loads(made.body) == one["body"]


def test_tokens_of_bodies_are_estimated(tmp_path: Path, target: Target) -> None:
    parts = [
        {"type": "text", "text": "hello"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]
    odd = [None, 3, {"role": "user"}, {"role": "user", "content": None}, {"role": "user", "content": [7]}]
    bodies = [{"model": "m", "messages": messages} for messages in ([{"role": "user", "content": parts}], odd, 7)]
    found = looked_at(tmp_path, [line(f"{n}", body=body) for n, body in enumerate(bodies)], target)
    assert 2_500 < found.input_tokens < 2_600


def test_a_table_is_opened_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("custom_id,method,url,body\na,POST,/v1/x,{}\n", encoding="utf-8")
    assert "r.csv:2: the body is no JSON object" in preview(TASK, tmp_path / "r.csv").problems[0]
    assert list(open_table(tmp_path / "r.csv").rows())
