"""Parquet: typed values as JSON has them, in flat memory, and what JSON cannot hold refused by column and row."""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import json
import struct
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.errors import InputError, UserError
from batchctl.inputs import Row, open_table
from batchctl.rowjson import spell

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
COLUMNS = {
    "i": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "u": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "f": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "s": (pa.string(), TEXT),
    "b": (pa.bool_(), st.booleans()),
    "l": (pa.list_(pa.int32()), st.lists(st.none() | st.integers(-9, 9), max_size=3)),
    "o": (
        pa.struct([("x", pa.string()), ("y", pa.list_(pa.float64()))]),
        st.fixed_dictionaries({"x": st.none() | TEXT, "y": st.lists(st.floats(-1, 1), max_size=2)}),
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parquet")


def written(folder: Path, columns: dict[str, Any], name: str = "t.parquet", **options: Any) -> Path:
    pq.write_table(pa.table(columns), folder / name, **options)
    return folder / name


def rows_of(folder: Path, columns: dict[str, Any]) -> list[Row]:
    return list(open_table(written(folder, columns)).rows())


def refusal(folder: Path, columns: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        rows_of(folder, columns)
    return f"{caught.value.message} ({caught.value.hint})".replace(f"{folder}/", "")


@given(data=st.data(), count=st.integers(1, 5), names=st.sets(st.sampled_from(sorted(COLUMNS)), min_size=1))
def test_values_come_back_as_json(folder: Path, data: st.DataObject, count: int, names: set[str]) -> None:
    lists = {
        name: data.draw(st.lists(st.none() | COLUMNS[name][1], min_size=count, max_size=count))
        for name in sorted(names)
    }
    found = rows_of(folder, {name: pa.array(values, COLUMNS[name][0]) for name, values in lists.items()})
    expected = [dict(zip(lists, cells, strict=True)) for cells in zip(*lists.values(), strict=True)]
    assert [row.values for row in found] == [json.loads(row.raw) for row in found] == expected
    assert [(row.number, row.line) for row in found] == [(n, n + 1) for n in range(count)]
    assert all(b"\n" not in row.raw for row in found)


@given(number=st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**12), max_value=10**12))
def test_decimals_are_spelled_with_all_their_digits(folder: Path, number: Decimal) -> None:
    (row,) = rows_of(folder, {"d": pa.array([number], pa.decimal128(20, 4))})
    assert row.raw == b'{"d":%s}' % format(number, "f").encode()
    assert spell(row.values["d"]) == format(number, "f")


@given(number=st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_numbers_of_32_bits_are_spelled_short_and_are_the_same(folder: Path, number: float) -> None:
    (row,) = rows_of(folder, {"n": pa.array([number], pa.float32())})
    assert struct.pack("f", row.values["n"]) == struct.pack("f", number)
    assert len(repr(row.values["n"])) <= len(repr(number))


def test_numbers_of_few_bits_are_what_was_written(folder: Path) -> None:
    (row,) = rows_of(folder, {"s": pa.array([0.1], pa.float32()), "h": pa.array([0.1], pa.float16())})
    assert row.raw == b'{"s":0.1,"h":0.1}'


@given(
    moment=st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)),
    unit=st.sampled_from(["ms", "us"]),
    zone=st.sampled_from([None, "UTC", "Europe/Berlin", "+05:30"]),
)
def test_timestamps_are_iso_text_of_the_same_moment(
    folder: Path, moment: dt.datetime, unit: str, zone: str | None
) -> None:
    if unit == "ms":
        moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    (row,) = rows_of(folder, {"t": pa.array([moment], pa.timestamp(unit, zone))})
    found = dt.datetime.fromisoformat(row.values["t"])
    assert found.replace(tzinfo=None) == moment if zone is None else found == moment.replace(tzinfo=dt.UTC)
    assert (found.tzinfo is None) == (zone is None)


def test_times_keep_their_zone_and_their_nanoseconds(folder: Path) -> None:
    columns = {
        "nano": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns")),
        "micro": pa.array([1_700_000_000_123_456_000], pa.timestamp("ns")),
        "berlin": pa.array([0], pa.timestamp("s", "Europe/Berlin")),
        "offset": pa.array([0], pa.timestamp("us", "-03:00")),
        "day": pa.array([dt.date(2024, 2, 29)]),
        "time": pa.array([dt.time(1, 2, 3, 4)]),
        "in": pa.array([[dt.datetime(2024, 1, 1)]]),
    }
    (row,) = rows_of(folder, columns)
    assert row.values == {
        "nano": "2023-11-14T22:13:20.123456789",
        "micro": "2023-11-14T22:13:20.123456",
        "berlin": "1970-01-01T01:00:00+01:00",
        "offset": "1969-12-31T21:00:00-03:00",
        "day": "2024-02-29",
        "time": "01:02:03.000004",
        "in": ["2024-01-01T00:00:00"],
    }


def test_other_types_that_json_has_something_for(folder: Path) -> None:
    columns = {
        "word": pa.array(["x", None]).dictionary_encode(),
        "map": pa.array([[("k", Decimal("1.50"))], None], pa.map_(pa.string(), pa.decimal128(5, 2))),
        "big": pa.array([["a"], None], pa.large_list(pa.large_string())),
        "pair": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
        "view": pa.array(["v", None], pa.string_view()),
        "none": pa.nulls(2),
        "a name": pa.array([1, None], pa.int8()),
    }
    one, two = rows_of(folder, columns)
    assert one.raw == b'{"word":"x","map":{"k":1.50},"big":["a"],"pair":[1,2],"view":"v","none":null,"a name":1}'
    assert set(two.values.values()) == {None}


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([b"x"]), "t.parquet: column 'c' holds bytes, which are no text (leave the column out"),
        (pa.array([[{"a": b"x"}]]), "column 'c' holds bytes"),
        (pa.array([b"1234"], pa.binary(4)), "column 'c' holds bytes"),
        (pa.array([b"x"], pa.binary_view()), "column 'c' holds bytes"),
        (pa.array([dt.timedelta(1)]), "column 'c' is of type duration[us]"),
        (pa.array([[(1, "x")]], pa.map_(pa.int32(), pa.string())), "column 'c' has keys of type int32"),
        (pa.array([2**60], pa.timestamp("ms")), "t.parquet:1: column 'c': a time outside the years 1 to 9999"),
    ],
)
def test_types_that_json_has_nothing_for_are_refused_by_column(folder: Path, column: Any, expected: str) -> None:
    assert expected in refusal(folder, {"ok": ["x"], "c": column})


@pytest.mark.parametrize(("number", "word"), [(float("nan"), "NaN"), (float("-inf"), "-Infinity")])
@pytest.mark.parametrize("nested", [False, True])
def test_case_51_nan_and_infinity_are_refused_by_row_and_column(
    folder: Path, number: float, word: str, nested: bool
) -> None:
    values = [1.0, number, 2.0]
    columns = {"ok": ["a", "b", "c"], "c": pa.array([[v] for v in values] if nested else values)}
    assert f"t.parquet:2: column 'c': {word} is no number that JSON has (write null" in refusal(folder, columns)
    told: list[InputError] = []
    table = open_table(folder / "t.parquet")
    assert [row.number for row in table.rows(told.append)] == [0, 2]
    assert ([error.line for error in told], table.row_count) == ([2], 2)


def test_columns_need_names_of_their_own(folder: Path) -> None:
    for names, expected in ((["a", "a"], "two columns are named 'a'"), (["a", " "], "column 2 has no name")):
        pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=names), folder / "t.parquet")
        with pytest.raises(InputError, match=expected):
            list(open_table(folder / "t.parquet").rows())


def test_the_hash_is_the_files_and_packed_files_are_read_too(folder: Path) -> None:
    path = written(folder, {"a": [1, 2]})
    packed = folder / "t.parquet.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for one in (path, packed):
        table = open_table(one)
        assert [row.values for row in table.rows()] == [{"a": 1}, {"a": 2}]
        assert (table.columns, table.sha256) == (("a",), hashlib.sha256(one.read_bytes()).hexdigest())


def test_an_empty_file_has_its_columns_and_no_rows(folder: Path) -> None:
    with pytest.raises(InputError, match="has no rows"):
        rows_of(folder, {"a": pa.array([], pa.int64())})


@given(place=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.integers(0, 40))
def test_damaged_files_are_rows_or_a_named_error(folder: Path, place: int, byte: int, cut: int) -> None:
    path = written(folder, {"s": ["some", "text", "x"] * 9, "n": [1.5, None, 3.0] * 9})
    data = bytearray(path.read_bytes())
    data[place % len(data)] = byte
    path.write_bytes(data[: len(data) - cut])
    try:
        for row in open_table(path).rows():
            json.loads(row.raw)
    except InputError as error:
        assert str(path) in error.message


def test_memory_does_not_grow_with_the_file(folder: Path) -> None:
    pool, peaks = pa.default_memory_pool(), []
    for groups in (2, 12):
        with pq.ParquetWriter(folder / "m.parquet", pa.schema({"t": pa.string()})) as writer:
            for group in range(groups):
                writer.write_table(pa.table({"t": [f"{group}-{n}" + "x" * 500 for n in range(2_000)]}))
        before = pool.bytes_allocated()
        highest = max(pool.bytes_allocated() - before for _ in open_table(folder / "m.parquet").rows())
        peaks.append(highest)
    assert peaks[1] <= peaks[0] * 1.2
    assert peaks[1] < 6_000_000


def test_what_to_install_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(folder, {"a": [1]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match="Parquet needs pyarrow") as caught:
        list(open_table(path).rows())
    assert caught.value.hint == "pip install 'batchctl[parquet]'"
