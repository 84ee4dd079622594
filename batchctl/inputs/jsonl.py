"""JSON lines: one object a line, refused where it could be read in two ways.

Only `\\n` ends a line, in bytes: U+2028, U+2029 and U+0085 are text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from batchctl.errors import InputError
from batchctl.inputs.row import Progress, Row
from batchctl.inputs.sources import Source
from batchctl.inputs.text import bad_byte, encoding_hint, lines_of
from batchctl.rowjson import JsonProblem, parse_object


def read(source: Source, progress: Progress, sha256: list[str], encoding: str | None) -> Iterator[Row]:
    """The rows of one file (see `table.Reader`)."""
    columns, file, number = progress.columns, source.name, progress.number
    seen, first, line_number = columns.keys(), number, 0
    with lines_of(source, sha256, encoding) as blocks:
        for lines, _ in blocks:
            if not line_number:
                _refuse_array(source, lines)
            for index, line in enumerate(lines):
                line_number += 1
                raw = line.strip(b" \t\r\n")
                if not raw:
                    continue
                try:
                    values = parse_object(raw)
                except JsonProblem as problem:
                    place = _Line(line_number, line, blocks.start_of(lines, index))
                    progress.refuse(_explain(source, problem, place, first=number == first))
                else:
                    if not values.keys() <= seen:
                        columns.update(dict.fromkeys(values))
                    yield Row(number, line_number, raw, values, file)
                number += 1
    progress.number = number


def _refuse_array(source: Source, lines: list[bytes]) -> None:
    """An array is refused before it is read: on one line, it might be the whole file."""
    for number, line in enumerate(lines, 1):
        if text := line.strip():
            if text == b"[" or text.startswith((b"[{", b"[ {")):
                raise source.problem(
                    number,
                    "this file is one JSON array, not JSON lines",
                    column=1,
                    hint=f"write one object a line: jq -c '.[]' {_short(source)} > rows.jsonl",
                )
            return


def _short(source: Source) -> str:
    return "FILE" if source.held is not None or source.path is None else source.path.name


class _Line(NamedTuple):
    number: int
    content: bytes
    start: int  # its offset in the file


def _explain(source: Source, problem: JsonProblem, place: _Line, *, first: bool) -> InputError:
    """The problem of one line (of the first row?), in view of what usually causes it."""
    line = place.content
    text = line.strip(b" \t\r\n")
    indent = len(line) - len(line.lstrip(b" \t\r"))
    column = problem.column and problem.column + indent
    what, hint = problem.what, problem.hint
    if "is not UTF-8" in what:
        what = f"{what} (byte {place.start + (bad_byte(line) or 0)} of the file)"
        hint = encoding_hint(source, line)
    elif first and what.startswith("not JSON") and text.startswith(b"{") and not text.endswith(b"}"):
        what = "not a whole JSON object: the file looks pretty-printed, over several lines"
        hint = f"write one object a line: jq -c . {_short(source)} > rows.jsonl"
    elif not line.endswith(b"\n") and what.startswith("not JSON"):
        what = f"the last line is cut short ({what})"
        hint = "the file was not written to its end: make it again"
    return source.problem(place.number, what, column=column, hint=hint)
