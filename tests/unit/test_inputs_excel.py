"""Excel: a sheet's values, no cell left out, and errors by cell."""

from __future__ import annotations

import datetime as dt
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl import Workbook, load_workbook

from batchctl.errors import InputError, UserError
from batchctl.inputs import Row, excel, open_table

PRINTABLE = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), max_size=9)
VALUE = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(-1e9, 1e9).map(lambda f: round(f, 3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("excel")


def written(folder: Path, *lines: list[Any], name: str = "t.xlsx") -> Path:
    book = Workbook()
    assert book.active is not None
    for line in lines:
        book.active.append(line)
    book.save(folder / name)
    return folder / name


def rows_of(path: Path, **options: str) -> list[Row]:
    return list(open_table(path, sheet=options.get("sheet")).rows())


def refusal(path: Path, **options: str) -> str:
    with pytest.raises(InputError) as caught:
        rows_of(path, **options)
    return f"{caught.value.message} ({caught.value.hint})".replace(f"{path.parent}/", "")


@given(
    rows=st.lists(
        st.tuples(VALUE, PRINTABLE.filter(lambda text: text.strip() and not text.startswith("="))),
        min_size=1,
        max_size=5,
    )
)
def test_values_come_back_with_their_types(folder: Path, rows: list[tuple[Any, str]]) -> None:
    found = rows_of(written(folder, ["v", "a text"], *map(list, rows)))
    assert [row.values for row in found] == [{"v": value, "a text": text} for value, text in rows]
    assert [json.loads(row.raw) for row in found] == [row.values for row in found]
    assert [(row.number, row.line) for row in found] == [(n, n + 2) for n in range(len(rows))]


def test_dates_are_iso_text_and_blank_rows_only_count_as_lines(folder: Path) -> None:
    path = written(folder, [], ["day", "at", "n"], [dt.date(2024, 2, 29), dt.time(1, 2), 7], [], [None, None, "007"])
    found = rows_of(path)
    assert [(row.line, row.values) for row in found] == [
        (3, {"day": "2024-02-29T00:00:00", "at": "01:02:00", "n": 7}),
        (5, {"day": None, "at": None, "n": "007"}),
    ]
    table = open_table(path)
    assert len(list(table.rows())) == 2
    assert table.columns == ("day", "at", "n")


def test_a_sheet_has_to_be_named_where_there_are_several(folder: Path) -> None:
    book = Workbook()
    assert book.active is not None
    book.active.title = "first"
    book.active.append(["a"])
    book.active.append([1])
    other = book.create_sheet("the second")
    other.append(["b"])
    other.append([2])
    book.save(folder / "s.xlsx")
    path = folder / "s.xlsx"
    assert "s.xlsx: has 2 sheets: first, the second (say which: --sheet NAME)" in refusal(path)
    assert rows_of(path, sheet="the second")[0].values == {"b": 2}
    assert "has no sheet 'third' (there are: first, the second)" in refusal(path, sheet="third")


def test_a_sheet_that_says_too_small_a_size_is_read_whole(folder: Path) -> None:
    path = written(folder, ["a", "b"], *([n, n] for n in range(20)))
    small = folder / "small.xlsx"
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(small, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            target.writestr(name, data.replace(b'<dimension ref="A1:B21"', b'<dimension ref="A1:A2"'))
    assert len(rows_of(small)) == 20


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([["a", "a"], [1, 2]], "t.xlsx:1: cell B1: two columns are named 'a'"),
        ([["a", " "], [1, 2]], "t.xlsx:1: cell B1 names no column"),
        ([["a"], [1], [2, "over"]], "t.xlsx:3: cell B3 stands in a column without a name"),
        ([["a"], ["#N/A"]], "t.xlsx:2: cell A2 has the error #N/A (mend or empty the cell)"),
        ([["a"], ["=1+1"]], "t.xlsx:2: cell A2 has a formula that was never calculated"),
        ([["a"], [dt.timedelta(hours=30)]], "t.xlsx:2: cell A2: "),
        ([["a"]], "has no rows"),
        ([], "has no rows"),
    ],
)
def test_what_is_refused_is_named_by_cell(folder: Path, lines: list[list[Any]], expected: str) -> None:
    assert expected in refusal(written(folder, *lines))


def test_formulas_that_were_calculated_are_their_values(folder: Path) -> None:
    path = written(folder, ["a", "b"], [1, "=A2+1"])
    done = folder / "done.xlsx"
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(done, "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name).replace(b"<v />", b"<v>2</v>").replace(b"<v/>", b"<v>2</v>"))
    assert load_workbook(done, data_only=True).worksheets[0]["B2"].value == 2
    assert rows_of(done)[0].values == {"a": 1, "b": 2}


def test_what_is_no_workbook_is_named(folder: Path) -> None:
    path = folder / "no.xlsx"
    path.write_bytes(b"a,b\n1,2\n")
    assert "no.xlsx: is no .xlsx workbook" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme", "x")
    assert "no.xlsx: cannot be read as Excel" in refusal(path)


def test_a_bomb_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excel, "MOST_UNPACKED", 1_000_000)
    path = folder / "bomb.xlsx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b" " * 5_000_000)
    assert "unpacks to more than 200 times its size" in refusal(path)


@given(place=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.integers(0, 60))
def test_damaged_workbooks_are_rows_or_a_named_error(folder: Path, place: int, byte: int, cut: int) -> None:
    path = written(folder, ["a", "b"], *(["text", n] for n in range(9)), name="d.xlsx")
    data = bytearray(path.read_bytes())
    data[place % len(data)] = byte
    path.write_bytes(data[: len(data) - cut])
    try:
        for row in rows_of(path):
            json.loads(row.raw)
    except InputError as error:
        assert str(path) in error.message


def test_what_to_install_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(folder, ["a"], [1])
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(UserError, match="Excel needs openpyxl") as caught:
        rows_of(path)
    assert caught.value.hint == "pip install 'batchctl[excel]'"
