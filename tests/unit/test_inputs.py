"""Tables: values kept as they are spelled, and everything doubtful refused by file, line and column."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchctl.errors import InputError
from batchctl.inputs import Row, open_table
from batchctl.rowjson import JsonProblem, parse_exactly, parse_object, spell

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"))
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def rows_of(folder: Path, data: bytes, name: str = "t.jsonl") -> list[Row]:
    path = folder / name
    path.write_bytes(data)
    return list(open_table(path).rows())


def refusal(folder: Path, data: bytes, name: str = "t.jsonl") -> str:
    """Message and hint, with the folder left out."""
    with pytest.raises(InputError) as caught:
        rows_of(folder, data, name)
    return f"{caught.value.message} ({caught.value.hint})".replace(f"{folder}/", "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inputs")


@given(rows=st.lists(st.dictionaries(TEXT, VALUE, max_size=4), min_size=1, max_size=5), ascii=st.booleans())
def test_jsonl_values_and_bytes_come_back(folder: Path, rows: list[dict[str, Any]], ascii: bool) -> None:
    lines = [json.dumps(row, ensure_ascii=ascii).encode() for row in rows]
    found = rows_of(folder, b"\n".join(lines))
    assert [row.raw for row in found] == lines
    assert [row.values for row in found] == rows
    assert [(row.number, row.line) for row in found] == [(n, n + 1) for n in range(len(rows))]


@given(
    header=st.lists(CELL.filter(str.strip), min_size=1, max_size=4, unique=True),
    data=st.data(),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_csv_cells_come_back_as_strings(folder: Path, header: list[str], data: st.DataObject, end: str) -> None:
    width = len(header)
    rows = data.draw(st.lists(st.lists(CELL, min_size=width, max_size=width), min_size=1, max_size=5))
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator=end, quoting=csv.QUOTE_ALL).writerows([header, *rows])
    found = rows_of(folder, out.getvalue().encode(), "t.csv")
    assert [row.values for row in found] == [dict(zip(header, row, strict=True)) for row in rows]
    assert all(json.loads(row.raw) == row.values and b"\n" not in row.raw for row in found)


@given(data=st.binary(max_size=60) | st.text(st.sampled_from('{}[]",:\n\r a1-\\ué\u2028')).map(str.encode))
@example(data=b"[" * 100_000)
@example(data=b'{"a":' * 5_000)
@example(data=b'{"a": 1e999}')
@pytest.mark.parametrize("name", ["f.csv", "f.tsv", "f.jsonl"])
def test_any_bytes_are_rows_or_a_named_error(folder: Path, name: str, data: bytes) -> None:
    path = folder / name
    path.write_bytes(data)
    told: list[InputError] = []
    try:
        rows = list(open_table(path).rows())
    except InputError:
        try:
            rows = list(open_table(path).rows(told.append))
        except InputError:
            return
        assert told
    for row in rows:
        assert b"\n" not in row.raw
        json.loads(row.raw)


@given(value=st.dictionaries(TEXT, VALUE, max_size=5))
def test_the_fast_way_of_reading_is_the_exact_one(value: dict[str, Any]) -> None:
    raw = json.dumps(value).encode()
    assert repr(parse_object(raw)) == repr(parse_exactly(raw))


@given(keys=st.lists(st.sampled_from(["a", "b", 'q":', ":", "\\"]), max_size=5), space=st.sampled_from(["", " ", "\t"]))
def test_a_repeated_key_never_passes(keys: list[str], space: str) -> None:
    raw = "{" + ",".join(f'{json.dumps(key)}{space}:"x: \\":"' for key in keys) + "}"
    if len(set(keys)) == len(keys):
        assert list(parse_object(raw.encode())) == keys
    else:
        with pytest.raises(JsonProblem, match="twice"):
            parse_object(raw.encode())


@pytest.mark.parametrize(
    "number", ["1.10", "1e5", "1E+05", "-0", "-0.0", "0.1000", "9" * 30, "9" * 5000, "1e999", "7.0", "12"]
)
def test_numbers_print_as_they_are_spelled(folder: Path, number: str) -> None:
    row = rows_of(folder, f'{{"n": {number}, "m": {{"in": [{number}]}}}}'.encode())[0]
    assert spell(row.values["n"]) == number
    assert spell(row.values["m"]) == f'{{"in":[{number}]}}'
    assert number.encode() in row.raw


def test_leading_zeros_and_empty_cells_of_csv_stay(folder: Path) -> None:
    found = rows_of(folder, b"id,score\n007,1.50\n,NaN\n", "t.csv")
    assert [row.values for row in found] == [{"id": "007", "score": "1.50"}, {"id": "", "score": "NaN"}]


def test_columns_count_and_hash_are_there_at_the_end(folder: Path) -> None:
    data = b'\xef\xbb\xbf{"a": 1}\n\n{"b": 2, "a": 3}\n{"c": "x"}'
    (folder / "t.jsonl").write_bytes(data)
    table = open_table(folder / "t.jsonl")
    with pytest.raises(RuntimeError, match="not been read"):
        _ = table.columns
    assert len(list(table.rows())) == 3
    assert (table.columns, table.row_count) == (("a", "b", "c"), 3)
    assert table.sha256 == hashlib.sha256(data).hexdigest()
    assert len(list(table.rows())) == 3  # and again


def test_case_46_only_a_newline_ends_a_line(folder: Path) -> None:
    text = "a\u2028b\u2029c\u0085d\x0be"
    line = json.dumps({"text": text}, ensure_ascii=False).encode()
    assert [row.values["text"] for row in rows_of(folder, line + b"\n" + line)] == [text, text]
    (row,) = rows_of(folder, f"text,n\n{text},1\n".encode(), "t.csv")
    assert row.values["text"] == text


def test_crlf_and_blank_lines_count_as_lines_only(folder: Path) -> None:
    found = rows_of(folder, b'\r\n{"a": 1}\r\n \n{"a": 2}\r\n')
    assert [(row.number, row.line, row.raw) for row in found] == [(0, 2, b'{"a": 1}'), (1, 4, b'{"a": 2}')]
    found = rows_of(folder, b'a,b\r\n1,"x\r\ny"\r\n\r\n2,z\r\n', "t.csv")
    assert [(row.number, row.line) for row in found] == [(0, 2), (1, 5)]
    assert found[0].values["b"] == "x\r\ny"


def test_case_49_a_byte_order_mark_is_stripped_at_the_start_and_refused_later(folder: Path) -> None:
    assert rows_of(folder, b'\xef\xbb\xbf{"a": 1}')[0].raw == b'{"a": 1}'
    assert list(rows_of(folder, b'\xef\xbb\xbf"id",b\n1,2\n', "t.csv")[0].values) == ["id", "b"]
    assert "t.jsonl:2:1: a byte order mark in the middle" in refusal(folder, b'{"a": 1}\n\xef\xbb\xbf{"a": 2}\n')
    assert "t.csv:3:1: a byte order mark in the middle" in refusal(folder, b"a,b\n1,2\n\xef\xbb\xbfa,b\n", "t.csv")
    assert "t.csv:1:1: a second byte order mark" in refusal(folder, b"\xef\xbb\xbf\xef\xbb\xbfa,b\n1,2\n", "t.csv")
    kept = rows_of(folder, '{"a": "x\ufeffy"}'.encode())
    assert kept[0].values["a"] == "x\ufeffy"


def test_case_50_bytes_that_are_not_utf8_are_named_by_place(folder: Path) -> None:
    message = refusal(folder, b'\xef\xbb\xbf{"a": 1}\n {"a": "caf\xe9"}\n')
    assert "t.jsonl:2:12: byte 0xE9 is not UTF-8 (byte 23 of the file)" in message
    assert "UTF-8" in message
    message = refusal(folder, "a,b\n1,é\n2,".encode() + b"caf\xe9\n", "t.csv")
    assert "t.csv:3:6: byte 0xE9 is not UTF-8 (byte 14 of the file)" in message
    assert "UTF-16" in refusal(folder, "a,b\n".encode("utf-16"), "t.csv")


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_case_51_nan_and_infinity_are_refused(folder: Path, word: str) -> None:
    message = refusal(folder, f'{{"id": "7 {word}", "score": {word}}}\n'.encode())
    assert f"{word} is not JSON" in message
    assert f"t.jsonl:1:{23 + len(word)}:" in message
    assert "null" in message


def test_case_55_a_torn_last_line_is_refused_wherever_it_is_cut(folder: Path) -> None:
    last = '{"text": "é!"}'.encode()
    for end in range(1, len(last)):
        message = refusal(folder, b'{"text": "x"}\n' + last[:end])
        assert message.startswith("t.jsonl:2:"), message
        assert "cut short" in message or "UTF-8" in message


def test_cases_57_and_58_ids_are_data_like_any_other(folder: Path) -> None:
    ids = ["1", 1, "a", "A ", "a" * 65, "doc/1:2.txt", "é", "", "https://x.org/?q=1", "C:\\x", "1"]
    found = rows_of(folder, b"\n".join(json.dumps({"id": one}).encode() for one in ids))
    assert [row.values["id"] for row in found] == ids
    assert [row.number for row in found] == list(range(len(ids)))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a": 1, "b": 2, "a": 3}', ['t.jsonl:1:18: the key "a" is there twice', "keep one"]),
        (b'{"a": {"b": 1, "b": 1}}', ['the key "b" is there twice']),
        (b'{"a": 1}\n"x"\n', ["t.jsonl:2:1: a row must be an object, this is a string"]),
        (b"7\n", ["a number", "one object a line"]),
        (b'[{"a": 1}]', ["t.jsonl:1:1: this file is one JSON array", "jq -c '.[]' t.jsonl"]),
        (b'[\n{"a": 1}\n]', ["t.jsonl:1:1: this file is one JSON array"]),
        (b"[1, 2]\n", ["an array", "jq"]),
        (b'{\n  "a": 1\n}\n', ["t.jsonl:1:", "pretty-printed", "jq -c . t.jsonl"]),
        (b'{"a": 1}\n{"a" 2}\n', ["t.jsonl:2:6: not JSON"]),
        (b'{"a": "\\ud800"}\n', ["t.jsonl:1:8: \\ud800 is half a character"]),
        (b'{"a": "\\uD83D x"}\n', ["\\ud83d is half a character"]),
        (b'{"a": 01}\n', ["t.jsonl:1:8: not JSON"]),
        (b'{"a": "x\0"}\n', ["t.jsonl:1:9: not JSON"]),
        (b"", ["has no rows"]),
        (b"\n \n", ["has no rows"]),
    ],
)
def test_jsonl_that_is_refused(folder: Path, data: bytes, expected: list[str]) -> None:
    message = refusal(folder, data)
    for part in expected:
        assert part in message


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a,b\n1,2\n1\n", ["t.csv:3: this row has 1 cells, the header has 2", "quotes"]),
        (b"a,b\n1,2,3\n", ["t.csv:2: this row has 3 cells"]),
        (b"a,b,a\n1,2,3\n", ["t.csv:1: columns 1 and 3 are both named 'a'"]),
        (b",a\n0,1\n", ["t.csv:1: column 1 has no name", "index=False"]),
        (b'a,b\n1,2\n3,"open\n4,5\n', ["t.csv:3: a quote opened in this row is never closed"]),
        (b'a,b\n1,"x"y\n', ["t.csv:2: text after a closing quote", '""yes""']),
        (b"a,b\n1,\0\n", ["t.csv:2:3: a NUL character"]),
        (b"a,b\r1,2\r", ["carriage return", "LF"]),
        (b"", ["is empty"]),
        (b"a,b\n", ["has no rows"]),
    ],
)
def test_csv_that_is_refused(folder: Path, data: bytes, expected: list[str]) -> None:
    message = refusal(folder, data, "t.csv")
    for part in expected:
        assert part in message


def test_huge_cells_are_read(folder: Path) -> None:
    text = "x" * 3_000_000
    assert rows_of(folder, f'a,b\n1,"{text}"\n'.encode(), "t.csv")[0].values["b"] == text


@pytest.mark.parametrize(
    ("name", "data", "good", "lines"),
    [
        ("t.jsonl", b'{"a": 1}\nnope\n{"a": NaN}\n\xff\n{"a": 2}\n', 2, [2, 3, 4]),
        ("t.csv", b'a,b\n1,2\n1\n1,"x"y\n\xff,1\n\0,2\n3,4\n', 2, [3, 4, 5, 6]),
    ],
)
def test_reading_goes_on_where_the_caller_collects(
    folder: Path, name: str, data: bytes, good: int, lines: list[int]
) -> None:
    (folder / name).write_bytes(data)
    table = open_table(folder / name)
    told: list[InputError] = []
    assert len(list(table.rows(told.append))) == good == table.row_count
    assert [error.line for error in told] == lines


def test_the_format_can_be_given_and_must_be_known(folder: Path) -> None:
    (folder / "t.txt").write_bytes(b"a\n1\n")
    assert len(list(open_table(folder / "t.txt", format="csv").rows())) == 1
    for path in (folder / "t.txt", folder / "nowhere.csv", folder):
        with pytest.raises(InputError):
            open_table(path)


def test_examples_are_readable() -> None:
    examples = Path(__file__).parents[2] / "examples"
    reviews = [row.values for row in open_table(examples / "reviews.csv").rows()]
    assert len(reviews) >= 60
    assert sum(row["label"] == "positive" for row in reviews) * 2 == len(reviews)
    assert len({row["text"] for row in reviews}) == len(reviews)
    assert len(list(open_table(examples / "extract.jsonl").rows())) > 5
