"""Canned answers: valid, plausible, and the same for the same body."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchctl.errors import UsageError
from batchctl.executors.instances import instance
from batchctl.executors.rehearsal import RehearsalExecutor

CHAT = "/v1/chat/completions"
LABELS = ["card_arrival", "card_linking", "exchange_rate"]


def _chat(text: str = "hello", **body: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **body}


def _schema_format(schema: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **spec}}


def _labels() -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {"label": {"type": "string", "enum": LABELS}},
        "required": ["label"],
        "additionalProperties": False,
    }
    return _schema_format(schema, strict=True)


def _choice(executor: RehearsalExecutor, body: dict[str, Any]) -> dict[str, Any]:
    reply = executor.run(CHAT, body)
    assert reply.status == 200, reply.body
    choice: dict[str, Any] = reply.body["choices"][0]
    return choice


def test_a_text_answer_says_that_it_is_canned() -> None:
    executor = RehearsalExecutor()
    assert "canned" in _choice(executor, _chat())["message"]["content"]
    assert "canned" in executor.describe()


def test_labels_follow_from_the_text_alone_and_are_all_used() -> None:
    executor = RehearsalExecutor()
    texts = [f"where is my thing {number}" for number in range(60)]

    def pick(text: str, **body: Any) -> str:
        content = _choice(executor, _chat(text, response_format=_labels(), **body))["message"]["content"]
        label: str = json.loads(content)["label"]
        return label

    picked = [pick(text) for text in texts]
    assert set(picked) == set(LABELS)
    assert picked == [pick(text, temperature=1) for text in texts]


@pytest.mark.parametrize(
    "text",
    [
        "What is the rate? [answer: exchange_rate]",
        f"Labels: {', '.join(LABELS)}. [answer: exchange_rate]",
        "I ask about the exchange_rate, please.",
    ],
)
def test_the_text_can_say_which_label_is_right(text: str) -> None:
    content = _choice(RehearsalExecutor(), _chat(text, response_format=_labels()))["message"]["content"]
    assert json.loads(content) == {"label": "exchange_rate"}


def test_usage_adds_up() -> None:
    usage = RehearsalExecutor().run(CHAT, _chat("x" * 400)).body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens"] >= 100


def test_case_69_answers_are_cut_at_the_limit() -> None:
    choice = _choice(RehearsalExecutor(), _chat(max_completion_tokens=2))
    assert (choice["finish_reason"], len(choice["message"]["content"])) == ("length", 8)


def test_shares_of_odd_answers_are_kept() -> None:
    shares = {"truncated": 0.2, "refused": 0.2, "filtered": 0.1, "empty": 0.1}
    executor = RehearsalExecutor(seed=5, shares=shares)
    choices = [_choice(executor, _chat(f"text {number}")) for number in range(1_000)]
    reasons = [choice["finish_reason"] for choice in choices]
    assert 150 < reasons.count("length") < 250
    assert 60 < reasons.count("content_filter") < 140
    assert 150 < sum(choice["message"]["refusal"] is not None for choice in choices) < 250
    empty = [c for c in choices if c["finish_reason"] == "stop" and c["message"]["content"] == ""]
    assert 60 < len(empty) < 140
    assert choices[:50] == [_choice(executor, _chat(f"text {number}")) for number in range(50)]


@pytest.mark.parametrize("shares", [{"wrong": 0.1}, {"empty": 0.6, "refused": 0.6}, {"empty": -0.1}])
def test_shares_that_make_no_sense_are_refused(shares: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        RehearsalExecutor(shares=shares)


OPEN = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": "m"}, "messages"),
        ({"model": "m", "messages": []}, "messages"),
        ({"messages": []}, None),
        (_chat() | {"messages": ["hi"]}, "messages[0]"),
        (_chat() | {"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        (_chat() | {"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        (_chat(temperature=3), "temperature"),
        (_chat(temperature="hot"), "temperature"),
        (_chat(max_completion_tokens=0), "max_completion_tokens"),
        (_chat(model="gpt-5-nano", max_tokens=5), "max_tokens"),
        (_chat(response_format={"type": "object"}), "response_format.type"),
        (_chat(response_format={"type": "json_schema"}), "response_format.json_schema.name"),
        (_chat(response_format=_schema_format(OPEN, strict=True)), "response_format"),
    ],
)
def test_case_64_67_bodies_that_openai_refuses_are_refused(body: dict[str, Any], param: str | None) -> None:
    reply = RehearsalExecutor().run(CHAT, body)
    assert reply.status == 400
    assert (reply.body["error"]["type"], reply.body["error"]["param"]) == ("invalid_request_error", param)


SCHEMAS: list[dict[str, Any]] = [
    {"type": "integer", "minimum": 3, "multipleOf": 5},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5},
    {"type": "integer", "maximum": -7},
    {"type": "string", "minLength": 10, "maxLength": 12},
    {"type": "string", "maxLength": 3},
    {"type": "string", "format": "date-time"},
    {"type": "string", "pattern": "^[A-Z]{2}[0-9]{2}$"},
    {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 3, "uniqueItems": True},
    {"type": "array", "items": {"type": "string"}, "minItems": 4, "uniqueItems": True},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
    {"type": ["string", "null"]},
    {"anyOf": [{"type": "null"}, {"type": "integer"}]},
    {"const": {"a": 1}},
    {"allOf": [{"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}, {"required": ["b"]}]},
    {
        "type": "object",
        "properties": {"child": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "n": {"type": "integer"}},
        "required": ["child", "n"],
    },
    {
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
                "required": ["kids"],
            }
        },
        "$ref": "#/$defs/tree",
    },
    {"type": "object", "minProperties": 2},
    {},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:40])
def test_instances_are_valid(schema: dict[str, Any]) -> None:
    for seed in range(20):
        made = instance(schema, random.Random(seed))
        jsonschema_rs.Draft202012Validator(schema).validate(made)


_SCALARS = st.one_of(
    st.builds(
        lambda low, span: {"type": "integer", "minimum": low, "maximum": low + span},
        st.integers(-99, 99),
        st.integers(0, 9),
    ),
    st.builds(
        lambda least, span: {"type": "string", "minLength": least, "maxLength": least + span},
        st.integers(0, 20),
        st.integers(0, 5),
    ),
    st.builds(lambda values: {"enum": values}, st.lists(st.text(max_size=5), min_size=1, max_size=4)),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": "number"}]),
)


def _nest(children: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    names = st.text("abcdef", min_size=1, max_size=3)
    return st.one_of(
        st.builds(lambda item, least: {"type": "array", "items": item, "minItems": least}, children, st.integers(0, 3)),
        st.builds(
            lambda parts: {
                "type": "object",
                "properties": parts,
                "required": sorted(parts),
                "additionalProperties": False,
            },
            st.dictionaries(names, children, max_size=4),
        ),
        st.builds(lambda parts: {"anyOf": parts}, st.lists(children, min_size=1, max_size=3)),
    )


@settings(max_examples=150, deadline=None)
@given(schema=st.recursive(_SCALARS, _nest, max_leaves=12), seed=st.integers(0, 99))
def test_any_schema_of_the_common_keywords_gets_a_valid_instance(schema: dict[str, Any], seed: int) -> None:
    made = instance(schema, random.Random(seed))
    jsonschema_rs.Draft202012Validator(schema).validate(made)
    assert made == instance(schema, random.Random(seed))


def test_an_endless_schema_is_a_bad_request() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    reply = RehearsalExecutor().run(CHAT, _chat(response_format=_schema_format(schema)))
    assert (reply.status, reply.body["error"]["param"]) == (400, "response_format")
