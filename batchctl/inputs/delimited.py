"""CSV and TSV: every cell a string as it stands, every row as wide as the header."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

import orjson

from batchctl.errors import InputError
from batchctl.inputs.row import Progress, Row
from batchctl.inputs.sources import Source
from batchctl.inputs.text import bad_byte, encoding_hint, lines_of
from batchctl.inputs.unpacking import Lines
from batchctl.rowjson import BOM

_LARGEST_CELL = 2**28  # characters; more than any provider takes, less than an unclosed quote would swallow


def read(source: Source, progress: Progress, sha256: list[str], encoding: str | None) -> Iterator[Row]:
    """The rows of one file (see `table.Reader`)."""
    csv.field_size_limit(_LARGEST_CELL)
    with lines_of(source, sha256, encoding) as blocks:
        lines = _TextLines(source, blocks)
        reader = csv.reader(lines, strict=True, delimiter="\t" if source.format == "tsv" else ",")
        header = _header(source, reader, lines)
        progress.columns.update(dict.fromkeys(header))
        yield from _rows(source, progress, reader, header, lines)


def _rows(source: Source, progress: Progress, reader: Any, header: list[str], lines: _TextLines) -> Iterator[Row]:
    file, number, width = source.name, progress.number, len(header)
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader)
            if lines.wrong or len(cells) != width or cells[0].startswith(BOM):
                if not cells and not lines.wrong:
                    continue  # a blank line
                raise _refusal(source, cells, width, start, lines)
        except StopIteration:
            break
        except (csv.Error, InputError) as problem:
            error = problem if isinstance(problem, InputError) else _explain(source, problem, start, lines)
            lines.wrong.clear()
            progress.refuse(error)
        else:
            values = dict(zip(header, cells, strict=True))
            yield Row(number, start, orjson.dumps(values), values, file)
        number += 1
    progress.number = number


class _TextLines:
    """Text lines for the csv reader. What is wrong with a line is kept in `wrong` until its row is complete."""

    def __init__(self, source: Source, blocks: Lines) -> None:
        self.wrong: list[InputError] = []
        self._source = source
        self._blocks = blocks

    def __iter__(self) -> Iterator[str]:
        number = 0
        for lines, joined in self._blocks:
            if b"\0" not in joined and bad_byte(joined) is None:
                yield from map(bytes.decode, lines)
            else:
                for index, line in enumerate(lines):
                    self._check(number + index + 1, line, lines, index)
                    yield line.decode("utf-8", "replace")
            number += len(lines)

    def _check(self, number: int, line: bytes, lines: list[bytes], index: int) -> None:
        at = bad_byte(line)
        if at is not None:
            what = f"byte 0x{line[at]:02X} is not UTF-8 (byte {self._blocks.start_of(lines, index) + at} of the file)"
            hint = encoding_hint(self._source, line)
        elif b"\0" in line:
            at = line.index(b"\0")
            what, hint = "a NUL character", "the file is damaged, or not text: make it again"
        else:
            return
        column = len(line[:at].decode("utf-8")) + 1
        self.wrong.append(self._source.problem(number, what, column=column, hint=hint))


def _header(source: Source, reader: Any, lines: _TextLines) -> list[str]:
    header: list[str] = []
    start = 1
    try:
        while not header:
            start = reader.line_num + 1
            header = next(reader)
    except StopIteration:
        raise source.problem(None, "is empty", hint="is it the right file?") from None
    except csv.Error as error:
        raise _explain(source, error, start, lines) from None
    if lines.wrong:
        raise lines.wrong[0]
    if header[0].startswith(BOM):
        raise source.problem(start, "a second byte order mark", column=1, hint="remove it")
    for place, name in enumerate(header, 1):
        if not name.strip():
            hint = "name every column in the first line (pandas: to_csv(..., index=False))"
            raise source.problem(start, f"column {place} has no name", hint=hint)
        if name in header[: place - 1]:
            first = header.index(name) + 1
            what = f"columns {first} and {place} are both named {name!r}"
            raise source.problem(start, what, hint="give each column a name of its own")
    return header


def _refusal(source: Source, cells: list[str], width: int, start: int, lines: _TextLines) -> InputError:
    if lines.wrong:
        return lines.wrong[0]
    if cells[0].startswith(BOM):
        hint = "remove it: were two files put together? Name them both instead"
        return source.problem(start, "a byte order mark in the middle of the file", column=1, hint=hint)
    what = f"this row has {len(cells)} cells, the header has {width}"
    apart = "tabs" if source.format == "tsv" else "commas"
    return source.problem(start, what, hint=f'put cells that hold {apart} in quotes: "..."')


def _explain(source: Source, error: csv.Error, start: int, lines: _TextLines) -> InputError:
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
    return source.problem(start, what, hint=hint)
