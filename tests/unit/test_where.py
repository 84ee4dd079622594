"""`--where`: which rows an expression means, and what is said of one that is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.errors import UsageError
from batchctl.outputs.where import Columns, Where

COLUMNS = Columns(["lang", "my column", "a=b", "n", "café"], ["label", "outcome", "error", "attempts", "batch"])
ROW = {"lang": "en", "my column": "x y", "a=b": 3, "n": "007", "café": None}
ADDED = {"label": "good", "outcome": "expired", "error": "batch_expired: Too Late", "attempts": 2, "batch": "b12"}


def holds(*expressions: str, row: dict[str, Any] = ROW, added: dict[str, Any] = ADDED) -> bool:
    return Where(expressions, COLUMNS).holds(json.dumps(row).encode(), added)


@pytest.mark.parametrize(
    "expression",
    [
        "outcome=expired",
        "outcome == expired",
        "outcome!=succeeded",
        "attempts>1",
        "attempts>=2",
        "attempts<=2",
        "attempts<3",
        "attempts=2.0",
        "batch=b12",
        "batch=12",
        "batch~b1",
        "error~too late",
        "error!~timeout",
        "lang=en",
        ' lang = "en" ',
        "lang='en'",
        '"my column"=x y',
        "my column=x y",
        "'a=b'>=3",
        '"a=b"=3',
        "n=007",
        "n!=7",
        "n<8",
        "n>6",
        "café=",
        "café!=x",
        "lang!=",
        "lang!~EX",
        "lang~E",
    ],
)
def test_an_expression_holds(expression: str) -> None:
    assert holds(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "outcome!=expired",
        "attempts>2",
        "attempts=3",
        "batch=b1",
        "batch=1",
        "batch!=12",
        "lang=EN",
        "n=7",
        "lang>1",
        "lang<=1",
        "café>0",
        "café~x",
        "lang=",
        "my column=x",
        "error!~LATE",
        "lang='\"en\"'",
    ],
)
def test_an_expression_does_not_hold(expression: str) -> None:
    assert not holds(expression)


def test_several_must_all_hold_and_none_means_every_row() -> None:
    assert holds("lang=en", "attempts=2")
    assert not holds("lang=en", "attempts=3")
    assert not Where([], COLUMNS)
    assert Where(["lang=en"], COLUMNS)


@pytest.mark.parametrize(
    ("expression", "said", "hint"),
    [
        ("", "cannot be read", "COLUMN=VALUE"),
        ("outcome", "cannot be read", "COLUMN=VALUE"),
        ("=x", "cannot be read", "COLUMN=VALUE"),
        ('"lang=en', "cannot be read", "COLUMN=VALUE"),
        ('"lang"en', "cannot be read", "COLUMN=VALUE"),
        ("attemps>1", "no column 'attemps'", "did you mean attempts?"),
        ("x=1", "no column 'x'", 'there are: lang, "my column", "a=b", n, café, label'),
        ('""=1', "no column ''", "there are:"),
        ("a=b>1", "no column 'a'", '"a=b"'),
        ("outcome=expird", "no outcome 'expird'", "did you mean expired?"),
        ("outcome!=", "no outcome ''", "succeeded, truncated"),
        ("attempts>x", "'x' is no number", "=, != or ~"),
        ("attempts>", "'' is no number", "=, != or ~"),
        ("attempts>nan", "'nan' is no number", "=, != or ~"),
        ("error~", "no text to look for", "COLUMN="),
    ],
)
def test_what_is_wrong_with_an_expression_is_said(expression: str, said: str, hint: str) -> None:
    with pytest.raises(UsageError, match="--where") as caught:
        Where([expression], COLUMNS)
    assert said in caught.value.message
    assert hint in (caught.value.hint or "")


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\"'"), min_size=1, max_size=8)
CELLS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


VALUES = st.text(st.characters(exclude_categories=["Cs"])).filter(
    lambda value: not value.startswith("=")
)  # `==` is `=`


@given(name=NAMES, cell=CELLS, value=VALUES)
def test_a_quoted_column_is_any_column_and_a_condition_and_its_opposite_part_the_rows(
    name: str, cell: Any, value: str
) -> None:
    columns = Columns([name], [])
    raw = json.dumps({name: cell}).encode()
    for quote in "\"'":
        held = [Where([f"{quote}{name}{quote}{sign}{value}"], columns).holds(raw, {}) for sign in ("=", "!=")]
        assert sorted(held) == [False, True]


@given(cell=st.integers() | st.floats(allow_nan=False, allow_infinity=False), value=st.integers(-100, 100))
def test_numbers_are_in_one_relation_to_another(cell: float, value: int) -> None:
    columns, raw = Columns(["n"], []), json.dumps({"n": cell}).encode()
    held = {sign: Where([f"n{sign}{value}"], columns).holds(raw, {}) for sign in ("<", "<=", "=", ">=", ">", "!=")}
    assert held == {
        "<": cell < value,
        "<=": cell <= value,
        "=": cell == value,
        ">=": cell >= value,
        ">": cell > value,
        "!=": cell != value,
    }


def test_an_own_column_named_as_ours_is_meant_as_it_is_written() -> None:
    columns = Columns(["outcome"], ["batchctl_outcome"], outcome="batchctl_outcome")
    assert Where(["outcome=won"], columns).holds(b'{"outcome":"won"}', {"batchctl_outcome": "expired"})
    with pytest.raises(UsageError, match="no outcome 'won'"):
        Where(["batchctl_outcome=won"], columns)
