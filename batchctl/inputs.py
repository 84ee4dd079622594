"""Input tables: CSV and JSONL, streamed, with no value reinterpreted and every error by file, line and column.

`007` stays `007`, `1.10` stays `1.10`. Only `\\n` ends a line of JSONL, in bytes: U+2028, U+2029 and U+0085 are text.
"""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import orjson

from batchctl.errors import InputError
from batchctl.rowjson import BOM, JsonProblem, parse_object

Format = Literal["csv", "jsonl"]
OnError = Callable[[InputError], None]

FORMATS: dict[str, Format] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}

_CHUNK = 256 * 1024  # bytes of whole lines taken from the file at once
_LARGEST_CELL = 2**28  # characters; more than any provider takes, less than an unclosed quote would swallow
_UTF8_BOM = BOM.encode()


class Row(NamedTuple):
    """One row. `number` is 0-based, `line` the 1-based line of the file where it starts.

    `raw` is the row as one line of JSON without its end (for JSONL the bytes as they stand in the file), `values` the
    same, parsed.
    """

    number: int
    line: int
    raw: bytes
    values: Mapping[str, Any]


def open_table(path: str | os.PathLike[str], *, format: Format | None = None) -> Table:
    """The table at `path`; its suffix says the format unless `format` does. Raises InputError."""
    file = Path(path)
    chosen = format or FORMATS.get(file.suffix.lower())
    if chosen is None:
        raise InputError(
            str(path),
            None,
            f"cannot tell the format from the suffix {file.suffix!r}" if file.suffix else "the name has no suffix",
            hint="rename it to .csv or .jsonl, or say --format csv or --format jsonl",
        )
    if not file.exists():
        raise InputError(str(path), None, "no such file", hint="check the path")
    if file.is_dir():
        raise InputError(str(path), None, "is a folder", hint="name a .csv or .jsonl file in it")
    return Table(file, chosen)


class Table:
    """A table on disk. `rows()` may be called again; what it found out is there once it has been read to the end."""

    def __init__(self, path: Path, format: Format) -> None:
        self.path = path
        self.format = format
        self._columns: dict[str, None] = {}
        self._sha256: str | None = None
        self._row_count = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The union of all rows' keys, in the order they were first seen."""
        self._require_read()
        return tuple(self._columns)

    @property
    def sha256(self) -> str:
        """Of the file's bytes, in hex."""
        self._require_read()
        return self._sha256 or ""

    @property
    def row_count(self) -> int:
        """Rows read, without those that `on_error` was told of."""
        self._require_read()
        return self._row_count

    def rows(self, on_error: OnError | None = None) -> Iterator[Row]:
        """Every row in order, in flat memory.

        Raises InputError at the first thing that is wrong. With `on_error` that is called instead, the row is left out
        and reading goes on; only what makes the rest unreadable (a CSV header, no rows at all) is still raised.
        """
        self._columns, self._sha256, self._row_count = {}, None, 0
        try:
            with self.path.open("rb") as file:
                source = _Source(file)
                reader = _csv_rows if self.format == "csv" else _jsonl_rows
                yield from reader(self, source, on_error)
                self._sha256 = source.digest.hexdigest()
        except OSError as error:
            raise InputError(str(self.path), None, f"cannot be read: {error.strerror or error}") from error

    def _require_read(self) -> None:
        if self._sha256 is None:
            raise RuntimeError("the table has not been read to its end")

    def _problem(
        self, line: int | None, what: str, *, column: int | None = None, hint: str | None = None
    ) -> InputError:
        return InputError(str(self.path), line, what, column=column, hint=hint)

    def _finish(self, count: int, refused: int) -> None:
        self._row_count = count
        if not count and not refused:
            raise self._problem(None, "has no rows", hint="is it the right file?")


class _Source:
    """The file's lines in lists of about `_CHUNK` bytes; hashes all of it, leaves out the byte order mark."""

    def __init__(self, file: BinaryIO) -> None:
        self.digest = hashlib.sha256()
        self.offset = 0  # of the first byte of the list last given out
        self.skipped = 0  # bytes of the byte order mark
        self._file = file

    def __iter__(self) -> Iterator[tuple[list[bytes], bytes]]:
        """Lists of lines with their ends, each with the same bytes in one piece."""
        end = 0
        while lines := self._file.readlines(_CHUNK):
            joined = b"".join(lines)
            self.digest.update(joined)
            self.offset, end = end, end + len(joined)
            if not self.offset and joined.startswith(_UTF8_BOM):
                self.skipped = len(_UTF8_BOM)
                lines[0], joined = lines[0][self.skipped :], joined[self.skipped :]
            yield lines, joined

    def start_of(self, lines: list[bytes], index: int) -> int:
        """The offset in the file of a line of the list last given out."""
        first = self.skipped if not self.offset else 0
        return self.offset + first + sum(map(len, lines[:index]))


def _jsonl_rows(table: Table, source: _Source, on_error: OnError | None) -> Iterator[Row]:
    columns = table._columns
    seen = columns.keys()
    line_number = number = refused = 0
    for lines, _ in source:
        if not line_number:
            _refuse_array(table, lines)
        for index, line in enumerate(lines):
            line_number += 1
            raw = line.strip(b" \t\r\n")
            if not raw:
                continue
            try:
                values = parse_object(raw)
            except JsonProblem as problem:
                place = _Line(line_number, line, source.start_of(lines, index))
                error = _explain(table, problem, place, first=not number)
                if on_error is None:
                    raise error from None
                on_error(error)
                refused += 1
            else:
                if not values.keys() <= seen:
                    columns.update(dict.fromkeys(values))
                yield Row(number, line_number, raw, values)
            number += 1
    table._finish(number - refused, refused)


def _refuse_array(table: Table, lines: list[bytes]) -> None:
    """An array is refused before it is read: on one line, it might be the whole file."""
    for number, line in enumerate(lines, 1):
        if text := line.strip():
            if text == b"[" or text.startswith((b"[{", b"[ {")):
                raise table._problem(
                    number,
                    "this file is one JSON array, not JSON lines",
                    column=1,
                    hint=f"write one object a line: jq -c '.[]' {table.path.name} > rows.jsonl",
                )
            return


class _Line(NamedTuple):
    number: int
    content: bytes
    start: int  # its offset in the file


def _explain(table: Table, problem: JsonProblem, place: _Line, *, first: bool) -> InputError:
    """The problem of one line (of the first row?), in view of what usually causes it."""
    line = place.content
    text = line.strip(b" \t\r\n")
    indent = len(line) - len(line.lstrip(b" \t\r"))
    column = problem.column and problem.column + indent
    what, hint = problem.what, problem.hint
    if "is not UTF-8" in what:
        what = f"{what} (byte {place.start + _bad_byte(line)} of the file)"
        hint = _encoding_hint(line)
    elif first and what.startswith("not JSON") and text.startswith(b"{") and not text.endswith(b"}"):
        what = "not a whole JSON object: the file looks pretty-printed, over several lines"
        hint = f"write one object a line: jq -c . {table.path.name} > rows.jsonl"
    elif not line.endswith(b"\n") and what.startswith("not JSON"):
        what = f"the last line is cut short ({what})"
        hint = "the file was not written to its end: make it again"
    return table._problem(place.number, what, column=column, hint=hint)


def _bad_byte(line: bytes) -> int:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return 0


def _encoding_hint(line: bytes) -> str:
    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "the file looks like UTF-16: save it as UTF-8"
    return "save the file as UTF-8, such as: iconv -f WINDOWS-1252 -t UTF-8 FILE > OUT"


class _Lines:
    """Text lines for the csv reader. What is wrong with a line is kept in `wrong` until its row is complete."""

    def __init__(self, table: Table, source: _Source) -> None:
        self.wrong: list[InputError] = []
        self._table = table
        self._source = source

    def __iter__(self) -> Iterator[str]:
        number = 0
        for lines, joined in self._source:
            if b"\0" not in joined and _is_utf8(joined):
                yield from map(bytes.decode, lines)
            else:
                for index, line in enumerate(lines):
                    self._check(number + index + 1, line, lines, index)
                    yield line.decode("utf-8", "replace")
            number += len(lines)

    def _check(self, number: int, line: bytes, lines: list[bytes], index: int) -> None:
        if not _is_utf8(line):
            at = _bad_byte(line)
            what = f"byte 0x{line[at]:02X} is not UTF-8 (byte {self._source.start_of(lines, index) + at} of the file)"
            column = len(line[:at].decode("utf-8")) + 1
            self.wrong.append(self._table._problem(number, what, column=column, hint=_encoding_hint(line)))
        elif b"\0" in line:
            column = len(line[: line.index(b"\0")].decode("utf-8")) + 1
            what, hint = "a NUL character", "the file is damaged, or not text: make it again"
            self.wrong.append(self._table._problem(number, what, column=column, hint=hint))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _csv_rows(table: Table, source: _Source, on_error: OnError | None) -> Iterator[Row]:
    csv.field_size_limit(_LARGEST_CELL)
    lines = _Lines(table, source)
    reader = csv.reader(lines, strict=True)
    header = _csv_header(table, reader, lines)
    width = len(header)
    table._columns.update(dict.fromkeys(header))
    number = refused = 0
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader)
            if lines.wrong or len(cells) != width or cells[0].startswith(BOM):
                if not cells and not lines.wrong:
                    continue  # a blank line
                raise _csv_refusal(table, cells, width, start, lines)
        except StopIteration:
            break
        except (csv.Error, InputError) as problem:
            error = problem if isinstance(problem, InputError) else _csv_error(table, problem, start, lines)
            lines.wrong.clear()
            if on_error is None:
                raise error from None
            on_error(error)
            refused += 1
        else:
            values = dict(zip(header, cells, strict=True))
            yield Row(number, start, orjson.dumps(values), values)
        number += 1
    table._finish(number - refused, refused)


def _csv_header(table: Table, reader: Any, lines: _Lines) -> list[str]:
    header: list[str] = []
    start = 1
    try:
        while not header:
            start = reader.line_num + 1
            header = next(reader)
    except StopIteration:
        raise table._problem(None, "is empty", hint="is it the right file?") from None
    except csv.Error as error:
        raise _csv_error(table, error, start, lines) from None
    if lines.wrong:
        raise lines.wrong[0]
    if header[0].startswith(BOM):
        raise table._problem(start, "a second byte order mark", column=1, hint="remove it")
    for place, name in enumerate(header, 1):
        if not name.strip():
            hint = "name every column in the first line (pandas: to_csv(..., index=False))"
            raise table._problem(start, f"column {place} has no name", hint=hint)
        if name in header[: place - 1]:
            first = header.index(name) + 1
            what = f"columns {first} and {place} are both named {name!r}"
            raise table._problem(start, what, hint="give each column a name of its own")
    return header


def _csv_refusal(table: Table, cells: list[str], width: int, start: int, lines: _Lines) -> InputError:
    if lines.wrong:
        return lines.wrong[0]
    if cells[0].startswith(BOM):
        hint = "remove it: were two files put together?"
        return table._problem(start, "a byte order mark in the middle of the file", column=1, hint=hint)
    what = f"this row has {len(cells)} cells, the header has {width}"
    return table._problem(start, what, hint='put cells that hold commas in quotes: "..."')


def _csv_error(table: Table, error: csv.Error, start: int, lines: _Lines) -> InputError:
    if lines.wrong:
        return lines.wrong[0]
    said = str(error)
    hint = 'a quote inside a cell is doubled: "say ""yes"""'
    if "unexpected end of data" in said or "field larger than" in said:
        what = "a quote opened in this row is never closed"
    elif "new-line character" in said:
        what, hint = "a carriage return that ends no line", "save the file with LF or CRLF line ends"
    elif "expected after" in said:
        what = "text after a closing quote"
    else:
        what = f"not CSV: {said}"
    return table._problem(start, what, hint=hint)
