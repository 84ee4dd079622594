"""Samples of Inspect and of OpenAI's evals: their `input` is what is asked, their target the right answer."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.errors import InputError, TaskError
from batchctl.inputs import Row
from batchctl.render import Renderer
from batchctl.task import Task, load_task

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["user", "system", "text", "image", "", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "image", "name"]), inner, max_size=4)
    ),
    max_leaves=12,
)


def task(samples: str = "inspect", **fields: Any) -> Task:
    return Task.model_validate({"model": "m", "samples": samples, **fields})


def row(value: Any, **more: Any) -> Row:
    values = {"input": value, **more}
    return Row(4, 6, json.dumps(values).encode(), values, "s.jsonl")


def messages(value: Any, **fields: Any) -> list[dict[str, Any]]:
    return Renderer(task(**fields), "m").request(row(value)).messages


def refusal(value: Any, **more: Any) -> str:
    with pytest.raises(InputError) as caught:
        Renderer(task(), "m").request(row(value, **more))
    return f"{caught.value.message} ({caught.value.hint})"


def test_a_text_is_the_users_message() -> None:
    assert messages("What is 2+2?") == [{"role": "user", "content": "What is 2+2?"}]
    assert messages("q", system="Be brief.", few_shot=[{"user": "a", "assistant": "b"}]) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "q"},
    ]


def test_messages_are_sent_as_they_are_without_what_nobody_is_asked() -> None:
    value = [
        {"role": "system", "content": "S", "name": "example_user"},
        {"role": "user", "content": "U", "id": "1", "source": "input", "metadata": {}, "tool_calls": None},
        {"role": "assistant", "content": "A", "model": "m"},
        {"role": "user", "content": [{"type": "text", "text": "T"}]},
    ]
    assert messages(value) == [
        {"role": "system", "content": "S", "name": "example_user"},
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": [{"type": "text", "text": "T"}]},
    ]
    shots = [{"user": "a", "assistant": "b"}]
    assert [one["content"] for one in messages(value[:2], system="first", few_shot=shots)] == [
        "first",
        "S",
        "a",
        "b",
        "U",
    ]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "image": "a.png"},
        {"type": "image_url", "image_url": {"url": "a.png"}},
        {"type": "input_image", "image_url": "a.png"},
    ],
)
def test_images_in_messages_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: dict[str, Any]) -> None:
    monkeypatch.chdir(tmp_path)
    data = b"\x89PNG\r\n\x1a\n"
    value = [{"role": "user", "content": [part]}]
    assert "s.jsonl:6: row 4: 'a.png': there is no such file" in refusal(value)
    Path("a.png").write_bytes(data)
    found = messages(value)[0]["content"]
    assert found == [{"type": "image", "media_type": "image/png", "data": base64.b64encode(data).decode()}]


def test_an_images_column_belongs_to_the_users_last_message() -> None:
    renderer = Renderer(task(images=["photo"]), "m")
    found = renderer.request(row("q", photo="https://x.org/i")).messages
    assert found[-1]["content"][1] == {"type": "image", "url": "https://x.org/i"}
    with pytest.raises(InputError, match="the last message is the assistant's"):
        renderer.request(row([{"role": "assistant", "content": "x"}], photo="https://x.org/i"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (" ", "`input` is empty"),
        ([], "`input` is empty"),
        (7, "`input` is a number (write a text, or messages"),
        (True, "`input` is true or false"),
        ({"role": "user"}, "`input` is an object"),
        (["x"], "`input[0]` is a text"),
        ([{"role": "bot", "content": "x"}], "`input[0].role` is 'bot' (it is one of: system"),
        ([{"role": "user"}], "`input[0].content` is missing"),
        ([{"role": "user", "content": "x", "tool_calls": [1]}], "`input[0].tool_calls` cannot be sent"),
        ([{"role": "user", "content": [{"type": "audio"}]}], "`input[0].content[0]` is neither a text nor an image"),
        ([{"role": "user", "content": ["x"]}], "`input[0].content[0]` is neither a text nor an image"),
    ],
)
def test_samples_that_cannot_be_sent_are_refused_by_row(value: Any, expected: str) -> None:
    assert f"s.jsonl:6: row 4: {expected}" in refusal(value)


def test_choices_are_not_left_out_in_silence() -> None:
    assert "the sample has `choices`, which nobody would be shown (write a `prompt`" in refusal("q", choices=["a", "b"])
    assert messages("q", samples="auto") == [{"role": "user", "content": "q"}]
    no_input = Row(4, 6, b"{}", {"question": "q"}, "s.jsonl")
    with pytest.raises(InputError, match="the sample has no `input`"):
        Renderer(task(), "m").request(no_input)


@given(value=JSON)
def test_any_json_is_messages_or_a_named_error(value: Any) -> None:
    try:
        found = messages(value)
    except InputError as error:
        assert error.message.startswith("s.jsonl:6: row 4: ")
    else:
        assert all(one["role"] in ("user", "system") and isinstance(one["content"], str | list) for one in found)


@pytest.mark.parametrize(
    ("samples", "columns", "expected", "gold"),
    [
        ("inspect", ("input", "target"), None, "target"),
        ("evals", ("input", "ideal"), None, "ideal"),
        ("evals", ("input", "target"), None, None),
        ("auto", ("input", "ideal"), None, "ideal"),
        ("auto", ("input", "ideal", "target"), None, "target"),
        ("inspect", ("input", "target", "mine"), "mine", "mine"),
        (None, ("target",), None, None),
    ],
)
def test_the_right_answers_stand_in_the_samples(
    samples: str | None, columns: tuple[str, ...], expected: str | None, gold: str | None
) -> None:
    fields = {"model": "m", "expected": expected, **({"samples": samples} if samples else {"prompt": "x"})}
    assert Task.model_validate(fields).gold(columns) == gold


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("samples: inspect", "t.yaml:1: model: is missing"),
        ("model: m", "t.yaml:1: prompt: is missing"),
        ("model: m\nsamples: inspect\nprompt: x", "t.yaml:3: prompt: each sample's own input is sent"),
        ("model: m\nsamples: cooked", "t.yaml:2: samples: should be 'inspect', 'evals', 'auto' or 'requests'"),
        ("model: m\nsamples: evals\nfew_shot: [{input: {a: 1}, assistant: b}]", "few_shot[0].input: fills in a prompt"),
        ("samples: requests\nmodel: m", "t.yaml:2: model: ready-made requests are sent as they are; remove it"),
        ("samples: requests\nsystem: x", "t.yaml:2: system: ready-made requests are sent as they are"),
        ("model: m\nsamples: inspect\nimages: [a, a]", "t.yaml:3: images: the same column twice"),
        ("model: m\nprompt:\nsamples: inspect", "t.yaml:2: prompt: is empty"),
    ],
)
def test_a_task_of_samples_is_checked(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "t.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(TaskError) as caught:
        load_task(tmp_path / "t.yaml")
    assert expected in "\n".join(caught.value.problems)


def test_tasks_of_samples_and_of_requests_are_read(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("model: m\nsamples: inspect\noutput: {labels: [a, b]}\n", encoding="utf-8")
    found = load_task(tmp_path / "t.yaml")
    assert (found.samples, found.prompt, found.columns) == ("inspect", None, ("input",))
    assert Task.model_validate_json(found.model_dump_json()) == found
    (tmp_path / "t.yaml").write_text("samples: requests\noutput: {labels: [a, b]}\n", encoding="utf-8")
    found = load_task(tmp_path / "t.yaml")
    assert (found.samples, found.model, found.prompt) == ("requests", None, None)
    assert Task.model_validate_json(found.model_dump_json()).digest == found.digest


def test_tasks_without_the_new_keys_keep_their_digest() -> None:
    plain = Task.model_validate({"model": "m", "prompt": "x"})
    assert plain.digest == "81f6468c39f5e99e8dfebf5967e2f23fac4fd692542f5c189118d7d2268f2adf"
