"""Which files are meant, how they are packed, and what of that is refused before a row is read."""

from __future__ import annotations

import gzip
import hashlib
import io
import random
import zlib
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from batchctl.errors import InputError
from batchctl.inputs import Named, Row, open_table, unpacking

TEN = b"".join(b'{"n": %d}\n' % n for n in range(10))
PACKERS = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: names in messages are short."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packed")


def refusal(named: Named, **options: str) -> str:
    """Message and hint of a table that cannot be read."""
    with pytest.raises(InputError) as caught:
        list(open_table(named, **options).rows())  # type: ignore[arg-type]
    return f"{caught.value.message} ({caught.value.hint})"


def numbers(rows: list[Row]) -> list[object]:
    return [row.values["n"] for row in rows]


def test_several_files_are_one_table_and_rows_know_theirs(here: Path) -> None:
    Path("b.csv").write_text("n,b\n1,x\n\n2,y\n", encoding="utf-8")
    Path("a.jsonl").write_text('{"n": 3, "a": 1}\n', encoding="utf-8")
    table = open_table(["b.csv", "a.jsonl"])
    rows = list(table.rows())
    assert [(row.number, row.file, row.line) for row in rows] == [(0, "b.csv", 2), (1, "b.csv", 4), (2, "a.jsonl", 1)]
    assert table.columns == ("n", "b", "a")
    assert (table.name, table.stem, table.format, table.row_count) == ("b.csv, a.jsonl", "b", "csv+jsonl", 3)
    assert table.paths == (Path("b.csv"), Path("a.jsonl"))
    assert [row.file for row in table.rows()] == [row.file for row in rows]


def test_the_hash_of_several_files_is_of_their_content_in_order(here: Path) -> None:
    for name, data in (("a.csv", "n\n1\n"), ("b.csv", "n\n2\n"), ("c.csv", "n\n1\n")):
        Path(name).write_text(data, encoding="utf-8")
    hashes = []
    for named in (["a.csv", "b.csv"], ["b.csv", "a.csv"], ["c.csv", "b.csv"], ["a.csv"]):
        table = open_table(named)
        list(table.rows())
        hashes.append(table.sha256)
    assert hashes[0] == hashes[2]
    assert len(set(hashes)) == 3
    assert hashes[3] == hashlib.sha256(b"n\n1\n").hexdigest()


def test_a_pattern_is_its_files_sorted_by_name(here: Path) -> None:
    Path("deep/er").mkdir(parents=True)
    for name in ("deep/2.csv", "deep/10.csv", "deep/er/1.csv"):
        Path(name).write_text(f"n\n{name}\n", encoding="utf-8")
    assert numbers(list(open_table("deep/*.csv").rows())) == ["deep/10.csv", "deep/2.csv"]
    assert len(open_table("deep/**/*.csv").sources) == 3
    assert open_table("deep/**/*.csv").name == "deep/10.csv, deep/2.csv, deep/er/1.csv"
    Path("odd[1].csv").write_text("n\n1\n", encoding="utf-8")
    assert len(list(open_table("odd[1].csv").rows())) == 1  # a file of that very name
    assert "matches no file" in refusal("no/*.csv")
    Path("deep/README").write_text("", encoding="utf-8")
    assert "deep/README: the name has no suffix" in refusal("deep/*")


def test_a_file_that_is_named_twice_is_refused_because_it_would_be_sent_twice(here: Path) -> None:
    Path("a.csv").write_text("n\n1\n", encoding="utf-8")
    Path("link.csv").symlink_to("a.csv")
    assert "a.csv: is named twice" in refusal(["a.csv", "a.csv"])
    assert "./a.csv: is the same file as a.csv" in refusal(["a.csv", "./a.csv"])
    assert "link.csv: is the same file as a.csv" in refusal("*.csv")


def test_errors_of_several_files_name_theirs(here: Path) -> None:
    Path("a.csv").write_text("n\n1\n", encoding="utf-8")
    Path("b.csv").write_text("n\n1\n2,3\n", encoding="utf-8")
    Path("c.csv").write_text("n\n", encoding="utf-8")
    assert refusal(["a.csv", "b.csv"]).startswith("b.csv:3: this row has 2 cells")
    assert len(list(open_table(["a.csv", "c.csv"]).rows())) == 1  # a part may have no rows
    assert "c.csv: has no rows" in refusal("c.csv")
    told: list[InputError] = []
    table = open_table(["b.csv", "a.csv"])
    assert [row.number for row in table.rows(told.append)] == [0, 2]
    assert (table.row_count, len(told)) == (2, 1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t.json", "jq -c '.[]' t.json"),
        ("t.xls", "save it as .xlsx"),
        ("t.zip", "unzip t.zip"),
        ("t.json.gz", "jq"),
        ("t.gz", "has no suffix"),
        ("t.yaml", "is it the task?"),
        ("t.docx", "say --format"),
    ],
)
def test_what_has_another_suffix_is_told_what_to_do(here: Path, name: str, expected: str) -> None:
    Path(name).write_bytes(b"x")
    assert expected in refusal(name)


def test_folders_missing_files_and_nothing_at_all_are_refused(here: Path) -> None:
    Path("sub.csv").mkdir()
    assert "name the files in it, such as 'sub.csv/*.csv'" in refusal("sub.csv")
    assert "no such file" in refusal("no.csv")
    assert "no input is named" in refusal([])


@pytest.mark.parametrize("suffix", PACKERS)
@given(parts=st.lists(st.binary(max_size=300), max_size=4), cut=st.integers(1, 10_000))
def test_packed_files_are_read_as_what_is_in_them_or_refused(
    folder: Path, suffix: str, parts: list[bytes], cut: int
) -> None:
    plain, packed = folder / "p.jsonl", folder / f"p.jsonl{suffix}"
    plain.write_bytes(TEN + b"".join(parts))
    packed.write_bytes(b"".join(PACKERS[suffix](part) for part in (TEN, *parts)))
    seen = []
    for path in (plain, packed):
        told: list[InputError] = []
        rows = list(open_table(path).rows(told.append))
        seen.append(([row.raw for row in rows], [error.line for error in told]))
    assert seen[0] == seen[1]

    whole = PACKERS[suffix](TEN + b"".join(parts))
    packed.write_bytes(whole[: -min(cut, len(whole) - 2)])
    with pytest.raises(InputError, match="cut short"):
        list(open_table(packed).rows(lambda _: None))


@pytest.mark.parametrize("suffix", PACKERS)
def test_damaged_packing_is_named(here: Path, suffix: str) -> None:
    name = f"t.jsonl{suffix}"
    Path(name).write_bytes(TEN)
    assert f"{name}: is no whole {suffix} file" in refusal(name)
    Path(name).write_bytes(PACKERS[suffix](TEN) + b"garbage after it")
    assert f"{name}: is no whole {suffix} file" in refusal(name)
    Path("t.jsonl").write_bytes(PACKERS[suffix](TEN))
    assert f"give it a name that ends in .jsonl{suffix}" in refusal("t.jsonl")


def test_gzip_padding_and_an_empty_file_are_no_harm(here: Path) -> None:
    Path("t.jsonl.gz").write_bytes(gzip.compress(TEN) + b"\0" * 512)
    assert len(list(open_table("t.jsonl.gz").rows())) == 10
    Path("t.csv.zst").write_bytes(b"")
    assert "is empty" in refusal("t.csv.zst")


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_bomb_is_refused_and_what_is_merely_repetitive_is_not(
    here: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "MOST_UNPACKED", 4_000_000)
    blank = PACKERS[suffix](b"\n" * 5_000_000)
    assert len(blank) < 10_000
    Path(f"bomb.csv{suffix}").write_bytes(PACKERS[suffix](b"n\n1\n") + blank)
    assert "unpacks to more than 200 times its size" in refusal(f"bomb.csv{suffix}")
    rows = random.Random(1).randbytes(40_000).hex().encode()
    Path(f"big.jsonl{suffix}").write_bytes(PACKERS[suffix](b'{"n": "%s"}\n' % rows * 60))
    assert len(list(open_table(f"big.jsonl{suffix}").rows())) == 60


def test_a_line_that_would_fill_the_memory_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "LONGEST_LINE", 1_000_000)
    for name in ("t.jsonl", "t.csv"):
        Path(name).write_bytes(b"x" * 2_000_000)
        assert f"{name}: a line of more than 1,000,000 bytes" in refusal(name)
    Path("t.jsonl").write_bytes(b'{"n": "%s"}\n' % (b"x" * 900_000) * 3)
    assert len(list(open_table("t.jsonl").rows())) == 3


class _Stdin:
    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.ZstdCompressor().compress])
def test_standard_input_is_a_table_that_can_be_read_again(monkeypatch: pytest.MonkeyPatch, pack: type[bytes]) -> None:
    monkeypatch.setattr("sys.stdin", _Stdin(pack(TEN)))
    table = open_table("-", format="jsonl")
    assert numbers(list(table.rows())) == numbers(list(table.rows())) == list(range(10))
    assert (table.name, table.stem, table.paths) == ("-", "stdin", ())
    copy = table.sources[0].path
    assert copy is not None
    assert copy.exists()
    del table
    assert not copy.exists()


def test_standard_input_needs_a_format_and_is_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", _Stdin(b"n\n1\n2,3\n"))
    assert "say --format (csv, tsv, jsonl, parquet, excel)" in refusal("-")
    assert refusal("-", format="csv").startswith("-:3: this row has 2 cells")
    monkeypatch.setattr("sys.stdin", _Stdin(b"n\n1\n"))
    assert "-: is named twice" in refusal(["-", "-"], format="csv")


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-16-le", "shift_jis", "utf-8-sig", "gb18030"])
@pytest.mark.parametrize("name", ["t.csv", "t.jsonl.gz"])
def test_case_50_an_encoding_can_be_named(here: Path, encoding: str, name: str) -> None:
    word = "日本" if encoding in ("shift_jis", "gb18030") else "café"
    lines = (
        ["n,b\n", *(f"{word},{n}\n" for n in range(30_000))] if name == "t.csv" else [f'{{"n": "{word}"}}\n'] * 30_000
    )
    data = "".join(lines).encode(encoding)
    Path(name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    found = list(open_table(name, encoding=encoding).rows())
    assert len(found) == 30_000
    assert {row.values["n"] for row in found} == {word}


def test_case_50_bytes_that_are_not_in_the_named_encoding_are_placed(here: Path) -> None:
    data = b"n\n" + b"abc\n" * 100_000 + b"x\x81y\n"
    Path("t.csv").write_bytes(data)
    assert f"byte 0x81 is not cp1252 (byte {data.index(0x81)} of the file)" in refusal("t.csv", encoding="cp1252")
    Path("t.csv").write_bytes("n\n".encode("utf-16-le") + b"\x00\xd8x")
    assert "is not utf-16-le (byte 4 of the file)" in refusal("t.csv", encoding="utf-16-le")
    for odd in ("klingon", "hex", "rot13"):
        assert f"there is no encoding '{odd}'" in refusal("t.csv", encoding=odd)


def test_options_of_other_formats_are_refused(here: Path) -> None:
    Path("t.csv").write_text("n\n1\n", encoding="utf-8")
    Path("t.parquet").write_bytes(b"")
    assert "t.csv: is csv, which has no sheets" in refusal("t.csv", sheet="x")
    assert "t.parquet: is parquet, which has no --encoding" in refusal("t.parquet", encoding="cp1252")
    assert "hf:a:b: is a dataset, not csv" in refusal("hf:a:b", format="csv")


def test_tabs_separate_in_tsv_and_commas_do_not(here: Path) -> None:
    Path("t.tsv").write_text('n\tb c\n1,5\t"x\ty"\n', encoding="utf-8")
    (row,) = open_table("t.tsv").rows()
    assert row.values == {"n": "1,5", "b c": "x\ty"}
    Path("t.tsv").write_text("n\tb\n1\n", encoding="utf-8")
    assert "t.tsv:2: this row has 1 cells, the header has 2 (put cells that hold tabs in quotes" in refusal("t.tsv")


def test_zlib_alone_is_no_gzip(here: Path) -> None:
    Path("t.csv.gz").write_bytes(zlib.compress(b"n\n1\n"))
    assert "is no whole .gz file" in refusal("t.csv.gz")


LINES = [
    b'{"n": 1}',
    b'{"n": "a\\u2028\xe2\x80\xa8b"}',
    b"",
    b" ",
    b'{"n": "x,y"}',
    b"\xef\xbb\xbf{}",
    b"{",
    b'{"n": "\xe9"}',
]


@given(
    lines=st.lists(st.sampled_from(LINES), min_size=1, max_size=6),
    end=st.sampled_from([b"\n", b"\r\n"]),
    mark=st.booleans(),
    chunk=st.integers(1, 40),
    name=st.sampled_from(["c.jsonl", "c.csv", "c.tsv"]),
)
def test_case_47_where_a_file_is_cut_into_pieces_makes_no_difference(
    folder: Path, lines: list[bytes], end: bytes, mark: bool, chunk: int, name: str
) -> None:
    (folder / name).write_bytes(b"\xef\xbb\xbf" * mark + b"n" * (name != "c.jsonl") + end + end.join(lines))
    seen: list[tuple[list[Row], list[str]]] = []
    for size in (chunk, unpacking.CHUNK):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(unpacking, "CHUNK", size)
            told: list[InputError] = []
            try:
                rows = list(open_table(folder / name).rows(told.append))
            except InputError as error:
                seen.append(([], [error.message]))
            else:
                seen.append((rows, [error.message for error in told]))
    assert seen[0] == seen[1]


@given(
    data=st.binary(max_size=40),
    encoding=st.sampled_from(["utf-16", "utf-32", "cp1252", "shift_jis", "utf-7", "iso2022_jp"]),
)
@pytest.mark.parametrize("name", ["e.csv", "e.jsonl"])
def test_any_bytes_in_any_encoding_are_rows_or_a_named_error(
    folder: Path, name: str, data: bytes, encoding: str
) -> None:
    (folder / name).write_bytes(data)
    try:
        rows = list(open_table(folder / name, encoding=encoding).rows())
    except InputError as error:
        assert str(folder / name) in error.message
    else:
        assert all(b"\n" not in row.raw for row in rows)


def test_columns_with_spaces_and_odd_names_are_columns(here: Path) -> None:
    names = ["a column", " b", "{{c}}", 'say "d"', "é\u2028", "row", "\U0001f600"]
    header = ",".join('"' + name.replace('"', '""') + '"' for name in names)
    Path("t.csv").write_text(f"{header}\n{','.join('1234567')}\n", encoding="utf-8")
    table = open_table("t.csv")
    assert [list(row.values) for row in table.rows()] == [names]
    assert table.columns == tuple(names)
