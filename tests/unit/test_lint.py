"""What is told of a task before a row is read. CASES.md G; the knowledge is in rules/openai.toml."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from batchctl.errors import TaskError
from batchctl.lint import lint, refuse, split
from batchctl.task import KINDS, Task
from batchctl_adapters.base import Finding, Kind
from batchctl_adapters.keys import Secret
from batchctl_adapters.openai_lint import rules
from batchctl_adapters.profile import ENDPOINTS, Profile
from batchctl_adapters.registry import open_adapter

PROFILE = Profile(name="p")
CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
OPEN = {"type": "object", "properties": {"a": {"type": "string"}}}


def found(profile: Profile = PROFILE, **fields: Any) -> list[Finding]:
    task = Task.model_validate({"model": "m", "prompt": "{{ text }}", **fields})
    adapter = open_adapter(profile, Secret(""))
    try:
        return lint(task, profile, adapter)
    finally:
        adapter.close()


def places(profile: Profile = PROFILE, *, doubtful: bool = False, **fields: Any) -> list[str]:
    """Where the errors are, or the warnings."""
    return [one.place for one in found(profile, **fields) if one.doubtful is doubtful]


@pytest.mark.parametrize("kind", KINDS)
def test_a_plain_task_of_each_kind_is_fine(kind: Kind) -> None:
    assert found(kind=kind) == []


def test_every_finding_says_what_and_how_to_mend_it() -> None:
    [one] = found(provider_params={"extra_body": {"top_k": 4}})
    assert str(one) == (
        "provider_params.extra_body: is an argument of the Python SDK, the API does not know it;"
        " move what is inside it up into provider_params"
    )


@pytest.mark.parametrize("key", ["extra_body", "extra_headers", "extra_query", "timeout"])
@pytest.mark.parametrize("kind", KINDS)
def test_arguments_of_the_sdk_are_refused(key: str, kind: Kind) -> None:
    assert places(kind=kind, provider_params={key: {}}) == [f"provider_params.{key}"]


# 62: endpoints


def test_case_62_a_kind_that_the_profile_has_no_endpoint_for() -> None:
    profile = Profile(name="moonlike", endpoints={"chat": "/v1/chat/completions"})
    [one] = found(profile, kind="embedding")
    assert (one.place, one.doubtful) == ("kind", False)
    assert "profile moonlike has no endpoint for embedding, it has: chat" in one.what
    assert found(profile) == []


@pytest.mark.parametrize(
    ("kind", "path", "meant"),
    [
        ("chat", "/v1/responses", "responses"),
        ("responses", "/v1/chat/completions", "chat"),
        ("completion", "/v1/chat/completions", "chat"),
        ("chat", "/v1/completions", "completion"),
        ("chat", "/v1/chat/completions", None),
        ("chat", "/v4/chat/completions", None),
        ("chat", "/chat/completions", None),
        ("completion", "/v1/completions", None),
        ("chat", "/v1/chat/ds-test", None),
    ],
)
def test_case_62_a_path_that_is_another_kinds(kind: Kind, path: str, meant: str | None) -> None:
    named = found(Profile(name="p", endpoints={kind: path}), kind=kind)
    assert [one.place for one in named] == (["kind"] if meant else [])
    assert all(f"which takes {meant} requests" in one.what for one in named)


@pytest.mark.parametrize("path", ["v1/chat/completions", "https://x/v1/chat/completions", "/v1/chat/", "/v1 /chat", ""])
def test_case_62_what_is_no_path_is_refused_with_the_profile(path: str) -> None:
    with pytest.raises(ValueError, match="is no path like '/v1/chat/completions'"):
        Profile(name="p", endpoints={"chat": path})


@pytest.mark.parametrize(
    ("kind", "key", "fix"),
    [
        ("chat", "input", "prompt"),
        ("responses", "messages", "prompt"),
        ("embedding", "messages", "prompt"),
        ("completion", "messages", "prompt"),
        ("moderation", "prompt", "prompt"),
        ("chat", "max_output_tokens", "max_output_tokens at the top"),
        ("responses", "max_tokens", "max_output_tokens at the top"),
        ("responses", "max_completion_tokens", "max_output_tokens at the top"),
        ("completion", "max_completion_tokens", "max_output_tokens at the top"),
        ("responses", "response_format", "output"),
        ("chat", "text", "output"),
        ("chat", "reasoning", "reasoning_effort"),
        ("responses", "reasoning_effort", "reasoning: {effort"),
        ("responses", "n", "leave it out"),
    ],
)
def test_case_62_the_body_has_the_shape_of_its_endpoint(kind: Kind, key: str, fix: str) -> None:
    [one] = found(kind=kind, provider_params={key: 5})
    assert (one.place, one.doubtful) == (f"provider_params.{key}", False)
    assert fix in one.fix and ENDPOINTS[kind].endswith(one.what.split()[0])


def test_responses_have_neither_seed_nor_stop() -> None:
    assert places(kind="responses", params={"seed": 1, "stop": "x", "temperature": 0}) == ["params.seed", "params.stop"]
    assert places(params={"seed": 1, "stop": "x"}) == []


@pytest.mark.parametrize(
    ("kind", "key"), [("chat", "messages"), ("responses", "input"), ("embedding", "input"), ("completion", "prompt")]
)
def test_a_content_that_replaces_the_prompt_is_refused(kind: Kind, key: str) -> None:
    [one] = found(kind=kind, provider_params={key: "x"})
    assert "every row would be sent the same" in one.what


# 63 to 65: models


def test_case_63_a_second_model_is_refused() -> None:
    assert places(provider_params={"model": "n"}) == ["provider_params.model"]


REASONING = ["o1", "o3-mini", "o4-mini-2025-04-16", "gpt-5", "gpt-5-mini", "gpt-5.2", "openai/gpt-5-nano", "GPT-5"]


@pytest.mark.parametrize("model", REASONING)
def test_case_64_reasoning_models_refuse_max_tokens(model: str) -> None:
    assert places(model=model, provider_params={"max_tokens": 4_000}) == ["provider_params.max_tokens"]
    old = Profile(name="p", max_tokens_param="max_tokens")
    [one] = found(old, model=model, max_output_tokens=4_000)
    assert one.place == "max_output_tokens" and 'max_tokens_param = "max_completion_tokens"' in one.fix
    assert found(model=model, max_output_tokens=4_000) == []


@pytest.mark.parametrize("model", ["o1", "o3-mini", "o4-mini", "gpt-5", "gpt-5-mini-2025-08-07", "ft:gpt-5-nano"])
@pytest.mark.parametrize(
    "setting", [{"temperature": 0}, {"top_p": 0.5}, {"presence_penalty": 1}, {"logit_bias": {"5": 1}}]
)
def test_case_64_and_a_temperature_of_their_own(model: str, setting: dict[str, Any]) -> None:
    [key] = setting
    assert places(model=model, provider_params=setting) == [f"provider_params.{key}"]
    if key in ("temperature", "top_p"):
        assert places(model=model, params=setting) == [f"params.{key}"]
    [one] = found(model=model, provider_params=setting)
    assert rules().as_of in one.what


def test_case_64_what_they_do_take_is_not_refused() -> None:
    assert found(model="o3", params={"temperature": 1, "top_p": 1}) == []
    assert found(model="gpt-5-chat-latest", params={"temperature": 0}) == []
    assert found(model="gpt-4.1-mini", params={"temperature": 0}, provider_params={"max_tokens": 5}) == [
        Finding(
            "provider_params.max_tokens",
            "profile p says that its endpoint calls this max_completion_tokens",
            "write max_output_tokens at the top of the task",
            doubtful=True,
        )
    ]


@pytest.mark.parametrize("model", ["gpt-5.1", "gpt-5.2-2026-01-01", "gpt-6-luna"])
def test_case_64_where_it_depends_it_is_a_warning(model: str) -> None:
    assert places(model=model, params={"temperature": 0}) == []
    assert places(model=model, params={"temperature": 0}, doubtful=True) == ["params.temperature"]


@pytest.mark.parametrize(
    ("model", "kind", "fits"),
    [
        ("text-embedding-3-small", "chat", "embedding"),
        ("gpt-4.1-mini", "embedding", "chat"),
        ("omni-moderation-latest", "chat", "moderation"),
        ("gpt-4.1-mini", "completion", "chat"),
        ("gpt-3.5-turbo-instruct", "chat", "completion"),
    ],
)
def test_case_65_a_model_of_another_endpoint(model: str, kind: Kind, fits: Kind) -> None:
    [one] = found(model=model, kind=kind)
    assert (one.place, one.doubtful) == ("model", False) and f"kind: {fits}" in one.fix
    assert found(model=model, kind=fits) == []


def test_case_65_a_model_that_may_be_on_responses_only_is_a_warning() -> None:
    assert places(model="gpt-5-pro") == []
    assert places(model="gpt-5-pro", doubtful=True) == ["model"]
    assert found(model="gpt-5-pro", kind="responses") == []


# 67: schemas


@pytest.mark.parametrize(
    "form",
    [
        CLOSED,
        {"schema": CLOSED, "name": "a"},
        {"type": "json_schema", "schema": CLOSED, "name": "a"},
        {"type": "json_schema", "json_schema": CLOSED},
        {"type": "json_schema", "json_schema": {"schema": CLOSED}},
        {"type": "json_schema"},
        "json_object",
        {"type": "json_schema", "json_schema": {"name": "a", "schema": OPEN, "strict": True}},
    ],
)
def test_case_67_a_schema_without_its_envelope(form: Any) -> None:
    [one] = found(provider_params={"response_format": form})
    assert (one.place, one.doubtful) == ("provider_params.response_format", False)


@pytest.mark.parametrize(
    "form",
    [
        {"type": "text"},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": CLOSED, "strict": True}},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": OPEN}},
    ],
)
def test_case_67_an_envelope_as_it_should_be(form: Any) -> None:
    assert found(provider_params={"response_format": form}) == []


@pytest.mark.parametrize(
    ("form", "wrong"),
    [
        (CLOSED, True),
        ({"type": "json_schema", "json_schema": {"name": "a", "schema": CLOSED}}, True),
        ({"type": "json_schema", "name": "a", "schema": OPEN, "strict": True}, True),
        ({"type": "json_schema", "name": "a", "schema": CLOSED, "strict": True}, False),
    ],
)
def test_case_67_responses_have_another_envelope(form: Any, wrong: bool) -> None:
    text = {"format": form, "verbosity": "low"}
    assert places(kind="responses", provider_params={"text": text}) == ["provider_params.text.format"] * wrong


def test_case_67_json_object_wants_the_word() -> None:
    form = {"response_format": {"type": "json_object"}}
    assert places(provider_params=form) == ["provider_params.response_format"]
    assert found(provider_params=form, prompt="As JSON: {{ text }}") == []
    assert found(provider_params=form, system="Write json.") == []


def test_case_67_two_schemas_for_one_answer() -> None:
    form = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": CLOSED}}}
    assert places(provider_params=form, output={"labels": ["a", "b"]}) == ["provider_params.response_format"]


def test_case_67_a_schema_that_cannot_be_strict_is_a_warning() -> None:
    assert places(output={"json_schema": OPEN}, doubtful=True) == ["output.json_schema"]
    assert found(output={"json_schema": CLOSED}) == []


# 68 and the rest


@pytest.mark.parametrize("kind", KINDS)
def test_case_68_no_streaming_and_no_envelope_of_ones_own(kind: Kind) -> None:
    assert places(kind=kind, provider_params={"stream": True}) == ["provider_params.stream"]
    assert places(kind=kind, provider_params={"stream_options": {"a": 1}}) == ["provider_params.stream_options"]
    assert found(kind=kind, provider_params={"stream": False}) == []
    for key in ("custom_id", "method", "url", "body", "params"):
        assert places(kind=kind, provider_params={key: "x"}) == [f"provider_params.{key}"]


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_choices_that_the_merge_would_drop(kind: Kind) -> None:
    [one] = found(kind=kind, provider_params={"n": 3})
    assert (one.place, one.doubtful) == ("provider_params.n", False) and "3 answers" in one.what
    assert found(kind=kind, provider_params={"n": 1}) == []
    assert places(kind="completion", provider_params={"best_of": 2}, doubtful=True) == ["provider_params.best_of"]


def test_two_limits_for_one_answer() -> None:
    both = {"max_tokens": 5, "max_completion_tokens": 5}
    assert places(provider_params=both) == ["provider_params.max_completion_tokens"]
    assert places(provider_params={"max_completion_tokens": 5}, max_output_tokens=5) == [
        "provider_params.max_completion_tokens"
    ]
    assert found(provider_params={"max_completion_tokens": 5}) == []


def test_case_70_a_small_budget_of_a_reasoning_model_is_a_warning() -> None:
    assert places(model="gpt-5-nano", max_output_tokens=16, doubtful=True) == ["max_output_tokens"]
    assert found(model="gpt-5-nano", max_output_tokens=4_000) == found(model="gpt-4.1", max_output_tokens=16) == []


def test_all_is_told_at_once_by_the_line_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text("model: gpt-5\nprompt: x\nmax_output_tokens: 9\nprovider_params:\n  n: 2\n  stream: true\n")
    findings = found(model="gpt-5", max_output_tokens=9, provider_params={"n": 2, "stream": True})
    errors, warnings = split(findings, file)
    assert [one.split(": ")[:2] for one in errors] == [
        [f"{file}:5", "provider_params.n"],
        [f"{file}:6", "provider_params.stream"],
    ]
    assert [one.split(": ")[:2] for one in warnings] == [[f"{file}:3", "max_output_tokens"]]
    with pytest.raises(TaskError) as caught:
        refuse(findings, file)
    assert caught.value.problems == tuple(errors)
    assert refuse([one for one in findings if one.doubtful]) == [str(findings[-1])]


def test_the_rules_are_dated_data() -> None:
    known = rules()
    assert dt.date.fromisoformat(known.as_of) <= dt.date(2100, 1, 1)
    assert set(known.kinds) == set(KINDS)
    assert {kind: one.path for kind, one in known.kinds.items()} == {
        kind: path.removeprefix("/v1") for kind, path in ENDPOINTS.items()
    }
