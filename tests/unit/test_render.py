"""Rows into requests: exact text, and errors that name row, line and column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.errors import InputError
from batchctl.inputs import Row, open_table
from batchctl.render import Renderer
from batchctl.rowjson import parse_object
from batchctl.task import Task, load_task
from batchctl.templates import PromptTemplate, TemplateProblem

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def row(raw: str | dict[str, Any], number: int = 6) -> Row:
    line = (raw if isinstance(raw, str) else json.dumps(raw)).encode()
    return Row(number, number + 2, line, parse_object(line), "t.jsonl")


def task(prompt: str, **fields: Any) -> Task:
    return Task.model_validate({"model": "small", "prompt": prompt, **fields})


def prompt_of(prompt: str, raw: str | dict[str, Any]) -> str:
    content = Renderer(task(prompt), "m").request(row(raw)).messages[-1]["content"]
    assert isinstance(content, str)
    return content


def refusal(prompt: str, raw: str | dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        Renderer(task(prompt), "m").request(row(raw))
    return f"{caught.value.message} ({caught.value.hint})"


def test_a_whole_request() -> None:
    it = task(
        "Review: {{ text }}\n",
        system="Be brief.",
        few_shot=[{"input": {"text": "fine"}, "assistant": "good"}, {"user": "{{ text }}", "assistant": "bad"}],
        output={"labels": ["good", "bad"]},
        max_output_tokens=8,
        params={"temperature": 0},
        provider_params={"x": 1},
    )
    request = Renderer(it, "gpt-x").request(row({"text": "so so"}))
    assert request.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Review: fine\n"},
        {"role": "assistant", "content": "good"},
        {"role": "user", "content": "{{ text }}"},
        {"role": "assistant", "content": "bad"},
        {"role": "user", "content": "Review: so so\n"},
    ]
    assert (request.model, request.max_output_tokens) == ("gpt-x", 8)
    assert (request.params, request.provider_params) == ({"temperature": 0}, {"x": 1})
    assert request.output.labels == ("good", "bad")


def test_a_system_text_with_columns_is_filled_in_for_each_row() -> None:
    renderer = Renderer(task("{{ q }}", system="Speak {{ lang }}."), "m")
    for lang in ("French", "Welsh"):
        assert renderer.request(row({"q": "?", "lang": lang})).messages[0]["content"] == f"Speak {lang}."


@given(text=TEXT, around=st.text(st.sampled_from("ab%{s }\n<&'\"")))
def test_text_goes_in_as_it_is_both_ways(text: str, around: str) -> None:
    around = around.replace("{", "")
    plain, logic = f"{around}{{{{ text }}}}{around}", f"{around}{{{{ row['text'] }}}}{around}"
    assert prompt_of(plain, {"text": text}) == prompt_of(logic, {"text": text}) == f"{around}{text}{around}"


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ("1.10", "1.10"),
        ("1e5", "1e5"),
        ("-0", "-0"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("true", "true"),
        ("null", "null"),
        ('"007"', "007"),
        ('{"a": [1.50, "é", null]}', '{"a":[1.50,"é",null]}'),
        ('"<b> & \\u2028"', "<b> & \u2028"),
        ('"{{ other }}"', "{{ other }}"),
    ],
)
@pytest.mark.parametrize("prompt", ["{{ v }}", "{% if true %}{{ v }}{% endif %}", "{{ row.v }}"])
def test_values_print_as_they_are_spelled(prompt: str, value: str, printed: str) -> None:
    assert prompt_of(prompt, f'{{"v": {value}}}') == printed


def test_tojson_is_plain_json() -> None:
    assert prompt_of("{{ v|tojson }}", '{"v": {"a": "<é>", "n": 1.10}}') == '{"a":"<é>","n":1.10}'
    assert json.loads(prompt_of("{{ row }}", '{"v": 1.10, "w": "x"}')) == {"v": 1.1, "w": "x"}


def test_logic_and_names_with_spaces() -> None:
    prompt = "{% for one in tags %}{{ loop.index }}.{{ one }} {% endfor %}"
    prompt += "{{ row['a b'] }}{% if note is defined %}!{% endif %}"
    assert prompt_of(prompt, {"tags": ["x", "y"], "a b": "z"}) == "1.x 2.y z"
    assert PromptTemplate(prompt).columns == ("tags", "a b", "note")


@pytest.mark.parametrize("prompt", ["{{ txet }}", "{% if true %}{{ txet }}{% endif %}", "{{ row['txet'] }}"])
def test_a_missing_column_is_named_with_row_and_line(prompt: str) -> None:
    message = refusal(prompt, {"text": "a", "label": "b"})
    assert message.startswith("t.jsonl:8: row 6: ")
    assert "'txet', this row has: text, label" in message
    assert "did you mean 'text'?" in message


def test_a_missing_inner_key_is_not_taken_for_a_missing_column() -> None:
    message = refusal("{% if note is defined %}{% endif %}{{ meta.source }}", {"meta": {}})
    assert "'source'" in message
    assert "column 'note'" not in message


@pytest.mark.parametrize(
    ("prompt", "what"),
    [
        ("{{ v.__class__.__mro__ }}", "not allowed"),
        ("{{ (v|attr('__class__')).x }}", "not allowed"),
        ("{{ v * 10 ** 9 }}", "not allowed"),
        ("{{ 9 ** 99999999 }}{{ v }}", "not allowed"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{{ v }}", "1,000,000 steps"),
        ("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(v) }}", "does not end"),
        ("{{ v / 0 }}", "fails on this row"),
        ("{{ v.nothing() }}", "'nothing'"),
        ("{{ lipsum() }}{{ v }}", "'lipsum'"),
    ],
)
def test_a_template_cannot_escape_or_run_away(prompt: str, what: str) -> None:
    message = refusal(prompt, {"v": "x"})
    assert message.startswith("t.jsonl:8: row 6: ")
    assert what in message


def test_the_text_that_logic_makes_is_bounded() -> None:
    template = PromptTemplate("{% for i in range(1000) %}{{ v }}{% endfor %}", max_chars=5000)
    assert len(template.render({"v": "1234"})) == 4000
    with pytest.raises(TemplateProblem, match="5,000 characters"):
        template.render({"v": "123456"})


def test_a_large_cell_is_no_error_here() -> None:
    text = "x" * 5_000_000
    assert prompt_of("{{ v }}", {"v": text}) == text


def test_the_example_renders_for_every_row() -> None:
    examples = Path(__file__).parents[2] / "examples"
    renderer = Renderer(load_task(examples / "reviews.yaml"), "m")
    for one in open_table(examples / "reviews.csv").rows():
        messages = renderer.request(one).messages
        assert len(messages) == 10
        assert one.values["text"] in messages[-1]["content"]


def test_kinds_that_are_not_asked_in_messages_have_texts() -> None:
    for kind in ("embedding", "completion", "moderation"):
        request = Renderer(task("[{{ text }}]", kind=kind), "m").request(row({"text": "a"}))
        assert (request.kind, request.messages, request.input) == (kind, [], ["[a]"])
    request = Renderer(task("{{ text }}", kind="embedding", dimensions=8), "m").request(row({"text": "a"}))
    assert request.params == {"dimensions": 8}
    request = Renderer(task("{{ text }}", kind="responses", system="s"), "m").request(row({"text": "a"}))
    assert (request.kind, request.input, [one["content"] for one in request.messages]) == ("responses", (), ["s", "a"])


def test_each_text_of_a_list_is_an_input_of_its_own() -> None:
    chunks = Renderer(task("{{ title }}: {{ item }}", kind="embedding", each="chunks"), "m")
    request = chunks.request(row({"title": "T", "chunks": ["a", "b", 1.50], "item": "not this"}))
    assert request.input == ["T: a", "T: b", "T: 1.5"]
    odd: list[Any] = ["a", [], None, {"a": 1}, '["a"]']
    for value in odd:
        with pytest.raises(
            InputError, match=r"t\.jsonl:8: row 6: chunks must be a list with at least one text"
        ) as caught:
            chunks.request(row({"title": "T", "chunks": value}))
        assert "JSON list" in (caught.value.hint or "")
    with pytest.raises(InputError, match=r"uses the column 'chunks', this row has: title"):
        chunks.request(row({"title": "T"}))
    with pytest.raises(InputError, match=r"uses the column 'title', this row has: chunks"):
        chunks.request(row({"chunks": ["a"]}))


def test_a_sample_has_the_templates_and_no_row() -> None:
    sample = Renderer(task("{{ text }}", system="Be {{ tone }}.", kind="responses"), "m").sample()
    assert [one["content"] for one in sample.messages] == ["Be {{ tone }}.", "{{ text }}"]
    assert Renderer(task("{{ text }}", kind="moderation"), "m").sample().input == ["{{ text }}"]
