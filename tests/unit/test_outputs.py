"""Output files: the input's own spelling, correct quoting, and whole files only."""

from __future__ import annotations

import csv
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.errors import UsageError
from batchctl.outputs.files import open_output, state_of
from batchctl.rowjson import JsonNumber, to_json

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ADDED = ["+answer", "+outcome"]
OURS = st.fixed_dictionaries(dict.fromkeys(ADDED, VALUE))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("outputs")


def write(path: Path, columns: list[str], rows: list[tuple[bytes, dict[str, Any]]]) -> bytes:
    added = list(dict.fromkeys(name for _, extra in rows for name in extra))
    with open_output(path, columns=columns, added=added) as writer:
        for raw, extra in rows:
            writer.write(raw, extra)
    return path.read_bytes()


@given(
    row=st.dictionaries(TEXT.filter(lambda key: key not in ADDED), VALUE, max_size=4),
    extra=OURS,
    indent=st.sampled_from([(", ", ": "), (",", ":"), (" , ", "\t: ")]),
    ascii=st.booleans(),
)
def test_a_spliced_line_is_the_merged_object(
    folder: Path, row: dict[str, Any], extra: dict[str, Any], indent: tuple[str, str], ascii: bool
) -> None:
    raw = json.dumps(row, separators=indent, ensure_ascii=ascii).encode()
    data = write(folder / "o.jsonl", list(row), [(raw, extra), (raw[:-1] + b" \t}", extra)])
    lines = data.split(b"\n")
    assert lines.pop() == b""
    assert [json.loads(line) for line in lines] == [{**row, **extra}] * 2
    assert data.decode().splitlines() == [line.decode() for line in lines]


def test_the_spelling_of_the_input_survives(tmp_path: Path) -> None:
    raw = b'{"id": 007e0, "n":1.10,"big": 123456789012345678901234567890, "e": 1E+5}'.replace(b"007e0", b"7e0")
    assert write(tmp_path / "o.jsonl", ["id"], [(raw, {"label": "x"})]) == raw[:-1] + b',"label":"x"}\n'
    header, cells = write(tmp_path / "o.csv", ["id", "n", "big", "e"], [(raw, {"label": "x"})]).decode().split("\n")[:2]
    assert header == "id,n,big,e,label"
    assert cells == "7e0,1.10,123456789012345678901234567890,1E+5,x"


def test_an_empty_row_and_an_empty_addition(tmp_path: Path) -> None:
    assert write(tmp_path / "o.jsonl", [], [(b"{ }", {"a": 1}), (b"{}", {"a": None})]) == b'{"a":1}\n{"a":null}\n'
    with open_output(tmp_path / "o.jsonl", columns=["a"], added=[]) as writer:
        writer.write(b'{"a": 1}', {})
    assert (tmp_path / "o.jsonl").read_bytes() == b'{"a": 1}\n'


def test_case_46_no_line_of_the_output_is_cut_by_any_reader(tmp_path: Path) -> None:
    text = "a\u2028b\u2029c\u0085d"
    raw = json.dumps({"text": text}, ensure_ascii=False).encode()
    data = write(tmp_path / "o.jsonl", ["text"], [(raw, {"answer": text})])
    assert len(data.decode().splitlines()) == 1
    assert json.loads(data) == {"text": text, "answer": text}


CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(rows=st.lists(st.tuples(CELL, CELL, CELL), max_size=5))
def test_csv_is_read_back_as_it_was(folder: Path, rows: list[tuple[str, str, str]]) -> None:
    pairs = [(json.dumps({"a": a, "b,\n": b}).encode(), {"answer": c}) for a, b, c in rows]
    with open_output(folder / "o.csv", columns=["a", "b,\n"], added=["answer"]) as writer:
        for raw, extra in pairs:
            writer.write(raw, extra)
    with (folder / "o.csv").open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file, strict=True)) == [["a", "b,\n", "answer"], *map(list, rows)]


def test_csv_cells_of_every_kind(tmp_path: Path) -> None:
    raw = b'{"s": "x", "n": null, "o": {"k": [1.50, "\xc3\xa9"]}, "t": true, "later": 1}'
    data = write(tmp_path / "o.csv", ["s", "n", "o", "t", "absent", "later"], [(raw, {"tokens": 12, "error": None})])
    assert data.decode().split("\n") == [
        "s,n,o,t,absent,later,tokens,error",
        'x,,"{""k"":[1.50,""é""]}",true,,1,12,',
        "",
    ]


def test_odd_answers_are_written_and_not_lost(tmp_path: Path) -> None:
    odd = {"half": "x\ud800", "big": 10**40, "spelled": [JsonNumber("1.10"), 10**40], "deep": {"a": "\ud800"}}
    assert json.loads(write(tmp_path / "o.jsonl", [], [(b"{}", odd)])) == {**odd, "spelled": [1.1, 10**40]}
    assert b"1.10" in (tmp_path / "o.jsonl").read_bytes()
    assert b"x\\ud800," in write(tmp_path / "o.csv", [], [(b"{}", odd)])
    with pytest.raises(TypeError):
        to_json({"a": object()})


def test_case_49_and_50_output_is_utf8_without_a_mark(tmp_path: Path) -> None:
    for name in ("o.csv", "o.jsonl"):
        data = write(tmp_path / name, ["é"], [('{"é": "ü"}'.encode(), {"answer": "ß"})])
        assert not data.startswith(b"\xef\xbb\xbf")
        assert b"\r" not in data
        assert all(letter in data.decode("utf-8") for letter in "éüß")


@pytest.mark.parametrize("name", ["o.jsonl", "o.csv"])
def test_case_55_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"old")
    with pytest.raises(RuntimeError, match="stop"), open_output(tmp_path / name, columns=["a"], added=["b"]) as writer:
        writer.write(b'{"a": 1}', {"b": 2})
        raise RuntimeError("stop")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {name: b"old"}


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file grows beyond `size` bytes: a write that fails half-way, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", ["o.jsonl", "o.csv"])
@pytest.mark.parametrize("rows", [1, 30_000])
def test_a_full_disk_leaves_nothing(tmp_path: Path, name: str, rows: int) -> None:
    raw = json.dumps({"a": "x" * 100}).encode()
    with largest_file(20), pytest.raises(OSError, match="File too large"):
        write(tmp_path / name, ["a"], [(raw, {"b": 1})] * rows)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_refused_before_anything_else(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_bytes(b"a\n1\n")
    (tmp_path / "link.csv").symlink_to(source)
    (tmp_path / "dir.csv").mkdir()
    for name, why in (
        ("in.csv", "would replace the input"),
        ("link.csv", "would replace the input"),
        ("sub/o.csv", "there is no folder"),
        ("o.xlsx", "cannot tell the output's format"),
        ("o", "cannot tell the output's format"),
        ("dir.csv", "is a folder"),
    ):
        with pytest.raises(UsageError, match=why) as caught:
            open_output(tmp_path / name, columns=[], added=[], source=source)
        assert caught.value.hint
    assert source.read_bytes() == b"a\n1\n"


def test_columns_that_collide_are_a_mistake_of_the_caller(tmp_path: Path) -> None:
    for columns, added in ((["a"], ["a"]), ([], ["b", "b"])):
        with pytest.raises(ValueError, match="collide"):
            open_output(tmp_path / "o.csv", columns=columns, added=added)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.jsonl").write_bytes(b"old")
    (tmp_path / "link.jsonl").symlink_to("real.jsonl")
    write(tmp_path / "link.jsonl", [], [(b"{}", {"a": 1})])
    assert (tmp_path / "link.jsonl").is_symlink()
    assert (tmp_path / "real.jsonl").read_bytes() == b'{"a":1}\n'


def test_a_file_is_announced_as_it_will_be_before_it_is_in_place(tmp_path: Path) -> None:
    target, told = tmp_path / "o.jsonl", list[tuple[str, bool]]()
    with open_output(target, columns=["a"], added=["b"]) as writer:
        writer.announce = lambda state: told.append((state, target.exists()))
        writer.write(b'{"a": 1}', {"b": 2})
    assert told == [(state_of(target), False)], "after a kill in between, the file is still known as ours"
