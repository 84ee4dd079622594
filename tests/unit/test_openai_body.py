from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl_adapters.base import Output, Request
from batchctl_adapters.openai_body import BodyEncoder, qualifies_as_strict
from batchctl_adapters.profile import Profile

PROFILE = Profile(name="p")
MESSAGES = [{"role": "user", "content": "Hello"}]
CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": ["integer", "null"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def body(profile: Profile = PROFILE, **fields: Any) -> dict[str, Any]:
    request = Request(**{"model": "m", "messages": MESSAGES, **fields})
    decoded: dict[str, Any] = json.loads(BodyEncoder(profile).body(request))
    return decoded


def test_a_plain_request_is_model_and_messages() -> None:
    assert body() == {"model": "m", "messages": MESSAGES}


def test_params_limit_and_provider_params_are_merged_in_this_order() -> None:
    got = body(params={"temperature": 0, "seed": 1}, max_output_tokens=5, provider_params={"seed": 2, "user": "u"})
    assert got == {
        "model": "m",
        "messages": MESSAGES,
        "temperature": 0,
        "seed": 2,
        "max_completion_tokens": 5,
        "user": "u",
    }


def test_the_profile_names_the_token_limit() -> None:
    assert body(Profile(name="p", max_tokens_param="max_tokens"), max_output_tokens=5)["max_tokens"] == 5


def test_provider_params_may_bring_messages_of_their_own() -> None:
    assert body(provider_params={"messages": []})["messages"] == []
    assert body(provider_params={"messages": [{"x": 1}], "model": "n"}) == {"model": "n", "messages": [{"x": 1}]}


def test_case_68_stream_is_refused() -> None:
    with pytest.raises(ValueError, match="stream"):
        body(provider_params={"stream": True})


def test_labels_become_a_strict_enum() -> None:
    got = body(output=Output("labels", ("pos", "neg")))
    assert got["response_format"] == {
        "type": "json_schema",
        "json_schema": {
            "name": "answer",
            "strict": True,
            "schema": {
                "type": "object",
                "properties": {"label": {"type": "string", "enum": ["pos", "neg"]}},
                "required": ["label"],
                "additionalProperties": False,
            },
        },
    }


@pytest.mark.parametrize("kind", ["labels", "json_schema"])
def test_an_endpoint_without_structured_output_gets_none(kind: Any) -> None:
    output = Output(kind, labels=("a",), schema=CLOSED)
    assert "response_format" not in body(Profile(name="p", structured_output=False), output=output)


def test_case_67_a_schema_stands_in_its_envelope_and_is_strict_only_where_it_may_be() -> None:
    envelope = body(output=Output("json_schema", schema=CLOSED, name="person"))["response_format"]
    assert envelope == {"type": "json_schema", "json_schema": {"name": "person", "schema": CLOSED, "strict": True}}
    loose = body(output=Output("json_schema", schema={"type": "object", "properties": {"a": {}}}))
    assert loose["response_format"]["json_schema"]["strict"] is False


@pytest.mark.parametrize(
    "change",
    [
        {"additionalProperties": True},
        {"required": ["a"]},
        {"anyOf": [CLOSED]},
        {"allOf": [CLOSED]},
        {"type": "array"},
        {"properties": {"a": {"type": "object"}, "b": {}}},
        {"properties": {"a": {"type": "array", "items": {"type": "object", "properties": {"c": {}}}}, "b": {}}},
        {"properties": {"a": {"enum": [str(n) for n in range(1001)]}, "b": {}}},
        {"properties": {"a": {"enum": [f"{n:>60}" for n in range(251)]}, "b": {}}},
        {"$defs": {"d": {"type": "object", "properties": {"x": {}}}}},
    ],
)
def test_schemas_that_strict_would_refuse(change: dict[str, Any]) -> None:
    assert qualifies_as_strict(CLOSED)
    assert not qualifies_as_strict({**CLOSED, **change})


def test_case_46_no_line_separator_stands_in_a_line_unescaped() -> None:
    text = "a\u2028b\u2029c\u0085d\x0b\x0c\x1c\x1d\x1ee\r\nf"
    encoder = BodyEncoder(PROFILE)
    fields: dict[str, Any] = {"model": text, "provider_params": {"user": text}}
    request = Request(messages=[{"role": "user", "content": text}], **fields)
    line = encoder.line("id", encoder.body(request))
    assert line.endswith(b"}\n") and len(line.decode().splitlines()) == 1
    data = json.loads(line)["body"]
    assert (data["messages"][0]["content"], data["model"], data["user"]) == (text, text, text)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text("ab_-Z9", min_size=1, max_size=64))
def test_every_text_comes_back_and_a_line_is_one_line(text: str, custom_id: str) -> None:
    encoder = BodyEncoder(PROFILE)
    encoded = encoder.body(Request("m", [{"role": "user", "content": text}]))
    line = encoder.line(custom_id, encoded)
    assert len(line.decode().splitlines()) == 1
    assert json.loads(line) == {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "m", "messages": [{"role": "user", "content": text}]},
    }


def test_constant_parts_are_not_kept_for_another_task() -> None:
    encoder = BodyEncoder(PROFILE)
    one = Request("m", MESSAGES, params={"seed": 1})
    other = Request("m", MESSAGES, params={"seed": 2})
    assert [json.loads(encoder.body(r))["seed"] for r in (one, other, one)] == [1, 2, 1]
    assert encoder.body(one) == encoder.body(one)
    assert "seed" not in json.loads(encoder.body(Request("m", MESSAGES)))
    assert json.loads(encoder.body(Request("n", MESSAGES)))["model"] == "n"


def test_examples_are_not_kept_for_another_output_or_endpoint() -> None:
    shots = [{"role": "user", "content": "Bad"}, {"role": "assistant", "content": "no"}, *MESSAGES]
    labels = Request("m", shots, Output("labels", labels=("yes", "no")))
    parts: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "Bad"}]}, *MESSAGES]
    chat, responses = Request("m", parts), Request("m", parts, kind="responses")
    encoder = BodyEncoder(PROFILE)
    for request in (labels, Request("m", shots), labels, chat, responses, chat):
        assert encoder.body(request) == BodyEncoder(PROFILE).body(request)


def test_case_62_the_lines_url_is_the_profiles_endpoint() -> None:
    profile = Profile(name="p", endpoints={"chat": "/v4/chat/completions", "embedding": "/v4/embeddings"})
    encoder = BodyEncoder(profile)
    assert json.loads(encoder.line("a", b"{}"))["url"] == "/v4/chat/completions"
    assert json.loads(encoder.line("a", b"{}", "embedding"))["url"] == "/v4/embeddings"
    with pytest.raises(ValueError, match="profile p has no endpoint for moderation"):
        encoder.line("a", b"{}", "moderation")


@pytest.mark.parametrize("custom_id", ["", "a" * 65, "doc/1", "é", "a b", "a\n", '"'])
def test_case_58_ids_that_some_provider_refuses_are_not_written(custom_id: str) -> None:
    with pytest.raises(ValueError, match="custom_id"):
        BodyEncoder(PROFILE).line(custom_id, b"{}")


def test_what_json_cannot_hold_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="JSON"):
        body(params={"seed": 2**70})
    with pytest.raises(ValueError, match="JSON"):
        body(messages=[{"role": "user", "content": "\ud800"}])


def test_few_shot_labels_stand_in_the_shape_the_answer_is_asked_for() -> None:
    shots = [{"role": "user", "content": "Fine."}, {"role": "assistant", "content": "positive"}]
    output = Output("labels", labels=("positive", "negative"))

    def contents(profile: Profile) -> list[list[str]]:
        encoder = BodyEncoder(profile)
        bodies = [encoder.body(Request("m", [*shots, {"role": "user", "content": text}], output)) for text in "ab"]
        return [[message["content"] for message in json.loads(body)["messages"]] for body in bodies]

    structured = Profile(name="p")
    assert contents(structured) == [["Fine.", '{"label":"positive"}', text] for text in "ab"]
    assert contents(structured.model_copy(update={"structured_output": False})) == [
        ["Fine.", "positive", text] for text in "ab"
    ]


def test_each_endpoint_has_a_body_of_its_own() -> None:
    output = Output("labels", ("a", "b"))
    schema = {
        "type": "object",
        "properties": {"label": {"type": "string", "enum": ["a", "b"]}},
        "required": ["label"],
        "additionalProperties": False,
    }
    own = {"text": {"verbosity": "low"}, "reasoning": {"effort": "low"}}
    assert body(kind="responses", max_output_tokens=9, params={"top_p": 1}, output=output, provider_params=own) == {
        "model": "m",
        "input": MESSAGES,
        "top_p": 1,
        "max_output_tokens": 9,
        "text": {
            "format": {"type": "json_schema", "name": "answer", "strict": True, "schema": schema},
            "verbosity": "low",
        },
        "reasoning": {"effort": "low"},
    }
    texts: dict[str, Any] = {"messages": []}
    assert body(kind="embedding", input=["x"], params={"dimensions": 8}, **texts) == {
        "model": "m",
        "input": "x",
        "dimensions": 8,
    }
    assert body(kind="embedding", input=["x", "y"], **texts) == {"model": "m", "input": ["x", "y"]}
    assert body(kind="moderation", input=["x"], **texts) == {"model": "m", "input": "x"}
    assert body(kind="completion", input=["x"], max_output_tokens=9, output=output, **texts) == {
        "model": "m",
        "prompt": "x",
        "max_tokens": 9,
    }


def test_case_46_texts_of_every_endpoint_are_one_line() -> None:
    for kind in ("embedding", "completion", "moderation"):
        request = Request("m", [], kind=kind, input=["a\u2028b\u0085c"])
        encoded = BodyEncoder(PROFILE).body(request)
        assert len(encoded.decode().splitlines()) == 1 and "a\u2028b\u0085c" in json.loads(encoded).values()


def test_one_encoder_serves_all_kinds() -> None:
    encoder = BodyEncoder(PROFILE)
    one, other = Request("m", MESSAGES), Request("m", [], kind="embedding", input=["x"])
    assert [sorted(json.loads(encoder.body(request))) for request in (one, other, one)] == [
        ["messages", "model"],
        ["input", "model"],
        ["messages", "model"],
    ]
