"""Answers judged against the task, and the names of the columns they are written under."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.answers import ACCOUNT, Judge, answer_columns, reader_of
from batchctl.rowjson import to_json
from batchctl.task import Task
from batchctl_adapters.vectors import pack

SCHEMA = {
    "type": "object",
    "properties": {"total": {"type": "number", "minimum": 0}, "outcome": {"type": "string"}},
    "required": ["total"],
}


def task(output: Any = "text") -> Task:
    return Task.model_validate({"model": "m", "prompt": "{{ text }}", "output": output})


LABELS = task({"labels": ["positive", "very negative"]})


@given(text=st.text())
def test_text_is_any_text(text: str) -> None:
    assert Judge(task()).judge(text) == (True, text, None)


@pytest.mark.parametrize(
    "text",
    ["positive", " positive\n", '{"label": "positive"}', '\n{ "label":"positive" } ', '{"label": "posi\\u0074ive"}'],
)
def test_a_label_alone_or_as_it_was_asked_for(text: str) -> None:
    assert Judge(LABELS).judge(text) == (True, "positive", None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Positive",
        "positive.",
        "negative",
        "positive negative",
        '"positive"',
        '{"label": "x"}',
        "{",
        '{"label": []}',
        '{"label": "positive", "why": "x"}',
        '{"label": "positive", "label": "positive"}',
        '["positive"]',
        '{"label": NaN}',
        "[" * 50_000,
        "{" + '"label":{' * 50_000,
    ],
)
def test_what_is_no_label(text: str) -> None:
    ok, value, problem = Judge(LABELS).judge(text)
    assert (ok, value) == (False, None)
    assert problem is not None
    assert len(problem) < 200


def test_json_is_parsed_checked_and_keeps_its_spelling() -> None:
    judged = Judge(task({"json_schema": SCHEMA})).judge(' {"total": 12.50, "outcome": "x"}\n')
    assert judged.ok
    assert judged.value == {"total": 12.5, "outcome": "x"}
    assert to_json(judged.value) == b'{"total":12.50,"outcome":"x"}'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"total": -1}', "at total: -1"),
        ('{"total": "1"}', "at total"),
        ("{}", '"total" is a required property'),
        ('{"total": NaN}', "NaN is not JSON"),
        ('{"total": 1, "total": 2}', "twice"),
        ('```json\n{"total": 1}\n```', "not JSON"),
        ('{"total": 1', "not JSON"),
        ('{"total": 1, "outcome": "\\ud800"}', "half a character"),
        ("", "not JSON"),
        ('{"total": 1, "outcome": "\ud800"}', "half a character"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_json_that_is_not_what_was_asked(text: str, problem: str) -> None:
    ok, value, said = Judge(task({"json_schema": SCHEMA})).judge(text)
    assert (ok, value) == (False, None)
    assert said is not None
    assert problem in said


@given(text=st.text() | st.text(st.sampled_from('{}[]",:1e.-totalNaN ')))
def test_judging_never_raises(text: str) -> None:
    for output in ("text", {"labels": ["a", "b"]}, {"json_schema": SCHEMA}):
        judged = Judge(task(output)).judge(text)
        assert judged.ok == (judged.problem is None)


def test_big_integers_are_integers() -> None:
    judged = Judge(task({"json_schema": {"properties": {"n": {"type": "integer"}}}})).judge('{"n": ' + "9" * 40 + "}")
    assert judged.value == {"n": int("9" * 40)}


def test_columns_for_each_kind_of_output() -> None:
    assert answer_columns(task(), ["text"]).names == ["answer", *ACCOUNT]
    assert answer_columns(LABELS, ["text"]).names == ["label", *ACCOUNT]
    assert answer_columns(task({"json_schema": {"type": "array"}}), ["text"]).names == ["answer", *ACCOUNT]


def test_only_the_name_that_collides_gets_the_prefix() -> None:
    assert answer_columns(LABELS, ["text", "label"]).names == ["batchctl_label", *ACCOUNT]
    assert answer_columns(task(), ["question", "answer"]).names == ["batchctl_answer", *ACCOUNT]
    found = answer_columns(task(), ["error", "batchctl_error"]).names
    assert found == ["answer", "outcome", "batchctl_batchctl_error", *ACCOUNT[2:]]


def test_a_property_goes_before_our_own_column_of_that_name() -> None:
    columns = answer_columns(task({"json_schema": SCHEMA}), ["total"])
    assert columns.names == ["batchctl_total", "outcome", "batchctl_outcome", *ACCOUNT[1:]]
    cells = columns.cells({"total": 1, "outcome": "o", "more": 2}, {"outcome": "succeeded", "attempts": 1})
    assert list(cells) == columns.names
    assert (cells["batchctl_total"], cells["outcome"], cells["batchctl_outcome"]) == (1, "o", "succeeded")
    assert (cells["attempts"], cells["error"]) == (1, None)


def test_cells_of_a_row_without_an_answer_are_empty() -> None:
    for it in (task(), LABELS, task({"json_schema": SCHEMA})):
        columns = answer_columns(it, ["text"])
        cells = columns.cells(None, {"outcome": "missing"})
        assert list(cells) == columns.names
        assert {value for value in cells.values() if value is not None} == {"missing"}


@given(names=st.lists(st.sampled_from(["label", *ACCOUNT, "batchctl_label", "batchctl_error", "x"]), unique=True))
def test_added_names_never_collide(names: list[str]) -> None:
    added = answer_columns(LABELS, names).names
    assert len({*added, *names}) == len(added) + len(names)
    assert added == answer_columns(LABELS, reversed(names)).names


def test_columns_and_values_of_other_kinds() -> None:
    def of(kind: str, **more: Any) -> Task:
        return Task.model_validate({"model": "m", "prompt": "{{ text }}", "kind": kind, **more})

    vector, several = of("embedding"), of("embedding", each="text")
    assert answer_columns(vector, ["text"]).names == ["embedding", *ACCOUNT]
    assert answer_columns(several, ["text"]).names == ["embeddings", *ACCOUNT]
    assert answer_columns(of("moderation"), ["flagged"]).names == [
        "batchctl_flagged",
        "categories",
        "category_scores",
        *ACCOUNT,
    ]
    packed = pack([[1.0, 0.5], [2.0, 0.25]])
    one, all_of_them, verdict = reader_of(vector), reader_of(several), reader_of(of("moderation"))
    assert one and all_of_them and verdict
    assert to_json(one(packed)) == b"[1.0,0.5]"
    assert to_json(all_of_them(packed)) == b"[[1.0,0.5],[2.0,0.25]]"
    assert verdict('{"flagged": true}') == {"flagged": True}
    assert reader_of(task()) is reader_of(LABELS) is None
