"""Parquet outputs: types that hold every value, vectors of fixed size, whole files only."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.errors import UsageError, UserError
from batchctl.outputs import files
from batchctl.outputs.columns import ColumnType, Vectors, infer_types, type_of_schema
from batchctl.outputs.files import open_output
from tests.unit.test_outputs import largest_file

pq = pytest.importorskip("pyarrow.parquet")

T = ColumnType
FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parquet")


def write(path: Path, rows: list[tuple[Any, dict[str, Any]]], types: dict[str, ColumnType | Vectors]) -> Any:
    columns = list(dict.fromkeys(name for row, _ in rows for name in row))
    added = list(dict.fromkeys(name for _, extra in rows for name in extra))
    lines = [json.dumps(row).encode() for row, _ in rows]
    with open_output(path, columns=columns, added=added, types={**infer_types(lines, columns), **types}) as writer:
        for line, (_, extra) in zip(lines, rows, strict=True):
            writer.write(line, extra)
    return pq.read_table(path)


def types_of(table: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in table.schema}


def test_columns_have_the_types_of_their_values(tmp_path: Path) -> None:
    rows = [
        {"id": "007", "n": 1, "x": 1, "b": True, "mixed": 1, "deep": {"a": [1]}, "big": 2**70, "none": None},
        {"id": "008", "n": -5, "x": 1.5, "b": False, "mixed": "one", "deep": None, "big": 1, "none": None},
    ]
    table = write(tmp_path / "o.parquet", [(row, {"answer": "y", "tokens": 3}) for row in rows], {"tokens": T.INTEGER})
    assert types_of(table) == {
        "id": "string",
        "n": "int64",
        "x": "double",
        "b": "bool",
        "mixed": "string",
        "deep": "string",
        "big": "string",
        "none": "string",
        "answer": "string",
        "tokens": "int64",
    }
    assert table.to_pylist() == [
        {**rows[0], "x": 1.0, "mixed": "1", "deep": '{"a":[1]}', "big": str(2**70), "answer": "y", "tokens": 3},
        {**rows[1], "mixed": "one", "big": "1", "answer": "y", "tokens": 3},
    ]


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string"}, T.TEXT),
        ({"type": ["integer", "null"]}, T.INTEGER),
        ({"type": "number"}, T.NUMBER),
        ({"type": "boolean"}, T.BOOLEAN),
        ({"enum": ["a", "b", None]}, T.TEXT),
        ({"enum": ["a", 1]}, T.JSON),
        ({"type": ["string", "integer"]}, T.JSON),
        ({"type": "array"}, T.JSON),
        ({"type": "null"}, T.JSON),
        ({}, T.JSON),
        (True, T.JSON),
    ],
)
def test_simple_properties_of_a_schema_are_typed(schema: Any, kind: ColumnType) -> None:
    assert type_of_schema(schema) is kind


VALUE = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(st.characters(exclude_categories=["Cs"]))
ROW = st.fixed_dictionaries({}, optional=dict.fromkeys("abc", VALUE | FLOAT32 | st.lists(VALUE, max_size=2)))


@given(rows=st.lists(ROW, min_size=1, max_size=6))
def test_every_value_is_there(folder: Path, rows: list[dict[str, Any]]) -> None:
    table = write(folder / "o.parquet", [(row, {"+": 1}) for row in rows], {})
    for row, written in zip(rows, table.to_pylist(), strict=True):
        for name, value in row.items():
            got = written[name]
            same = got == value and (got is None) == (value is None)
            assert same or json.loads(got if not isinstance(value, str) else json.dumps(got)) == value


def vectors(*values: Any) -> list[tuple[Any, dict[str, Any]]]:
    return [({"id": place}, {"v": value}) for place, value in enumerate(values)]


@given(values=st.lists(st.none() | st.lists(FLOAT32, min_size=3, max_size=3), min_size=1, max_size=6))
def test_vectors_are_fixed_size_lists_of_float32(folder: Path, values: list[list[float] | None]) -> None:
    cells = [None if value is None else array("f", value) for value in values]
    table = write(folder / "o.parquet", vectors(*cells), {"v": Vectors(3)})
    assert (
        types_of(table)["v"].startswith("fixed_size_list<") and str(table.schema.field("v").type.value_type) == "float"
    )
    assert table.schema.field("v").type.list_size == 3
    assert table.column("v").to_pylist() == values


MANY = st.none() | st.lists(st.lists(FLOAT32, min_size=2, max_size=2), max_size=3)


@given(values=st.lists(MANY, min_size=1, max_size=6))
def test_several_vectors_a_row_are_lists_of_them(folder: Path, values: list[list[list[float]] | None]) -> None:
    cells = [None if value is None else [array("f", one) for one in value] for value in values]
    table = write(folder / "o.parquet", vectors(*cells), {"v": Vectors(2, several=True)})
    assert table.schema.field("v").type.value_type.list_size == 2
    assert table.column("v").to_pylist() == values


@pytest.mark.parametrize("several", [False, True])
def test_without_any_vector_the_column_is_there_and_null(tmp_path: Path, several: bool) -> None:
    table = write(tmp_path / "o.parquet", vectors(None, None), {"v": Vectors(None, several=several)})
    assert table.column("v").null_count == 2
    one = array("f", [0.5])
    table = write(
        tmp_path / "o.parquet", vectors(None, [one] if several else one), {"v": Vectors(None, several=several)}
    )
    assert table.column("v").to_pylist() == [None, [[0.5]] if several else [0.5]]


def test_it_is_written_in_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from batchctl.outputs import parquet

    monkeypatch.setattr(parquet, "GROUP_BYTES", 4_000)
    cells = [None if place % 7 == 3 else array("f", [place] * 25) for place in range(400)]
    table = write(tmp_path / "o.parquet", vectors(*cells), {"v": Vectors(25)})
    assert pq.ParquetFile(tmp_path / "o.parquet").num_row_groups == 10
    assert table.column("id").to_pylist() == list(range(400))
    assert table.column("v").to_pylist() == [None if cell is None else list(cell) for cell in cells]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (2**63, T.INTEGER),
        (1.5, T.INTEGER),
        ("x", T.NUMBER),
        (10**400, T.NUMBER),
        (1, T.BOOLEAN),
        (array("f", [1.0]), Vectors(2)),
    ],
)
def test_a_value_that_its_column_cannot_hold_stops_the_file(
    tmp_path: Path, value: Any, kind: ColumnType | Vectors
) -> None:
    with pytest.raises(UserError, match="column v: ") as caught:
        write(tmp_path / "o.parquet", vectors(value), {"v": kind})
    assert ".jsonl" in (caught.value.hint or "")
    assert list(tmp_path.iterdir()) == []


def test_half_a_character_does_not_lose_the_row(tmp_path: Path) -> None:
    table = write(tmp_path / "o.parquet", vectors("x\ud800"), {})
    assert table.column("v").to_pylist() == ["x\\ud800"]


def test_case_55_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "o.parquet"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="stop"), open_output(path, columns=["a"], added=["b"]) as writer:
        writer.write(b'{"a": "1"}', {"b": "2"})
        raise RuntimeError("stop")
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"o.parquet": b"old"}


@pytest.mark.parametrize("rows", [1, 60_000])
def test_a_full_disk_leaves_nothing(tmp_path: Path, rows: int) -> None:
    with largest_file(300), pytest.raises(OSError, match="File too large"):
        write(tmp_path / "o.parquet", [({"a": f"{n:x}"}, {"b": n}) for n in range(rows)], {"b": T.INTEGER})
    assert list(tmp_path.iterdir()) == []


def test_without_pyarrow_it_is_said_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="needs pyarrow") as caught:
        files.check_output(tmp_path / "o.parquet")
    assert caught.value.hint == "pip install 'batchctl[parquet]'"
