"""`batchctl show`: one row, whole."""

from __future__ import annotations

import re
import textwrap
from array import array
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from batchctl.cli import output
from batchctl.cli.base import command, json_option
from batchctl.cli.reading import JOB
from batchctl.errors import UsageError

if TYPE_CHECKING:
    from batchctl.outputs.rowview import Attempt, RowView

_INDENT = "  "
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_MOST_NUMBERS = 4  # of a vector, shown to people


@command("show")
@click.argument("job", type=JOB)
@click.argument("row", type=click.IntRange(1), required=False)
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="EXPR",
    help="In place of ROW: the one row that it holds for, such as id=4711; repeat: all hold.",
)
@json_option
def show(job: str, row: int | None, conditions: tuple[str, ...], as_json: bool) -> None:
    """Show a ROW of JOB (1 is the table's first): what was sent, the answer, each attempt, tokens and cost.

    Reads the store only.
    """
    from batchctl.cli import passes
    from batchctl.outputs.rowview import find_row, view_row

    if (row is None) == (not conditions):
        raise UsageError("name a row: its number, or --where EXPR", hint="such as: batchctl show JOB 1")
    with passes.opened(offline=True) as engine:
        found = passes.named(engine, job)
        view = view_row(engine, found, row if row is not None else find_row(engine, found, conditions))
    if as_json:
        output.emit("show", view_json(view))
        return
    for line in _lines(view, output.width()):
        output.data(line)


def view_json(view: RowView) -> dict[str, Any]:
    """A row as `--json` has it."""
    found = asdict(view)
    found["answer"] = _plain(view.answer)
    for attempt in found["attempts"]:
        attempt.update({name: output.iso(attempt[name]) for name in ("sent_at", "ended_at")})
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, array):
        return value.tolist()
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _lines(view: RowView, room: int) -> Iterator[str]:
    yield f"{output.cut(view.job, room - 30)} row {view.number:,}: {output.styled(view.outcome, bold=True)}"
    if view.error:
        yield from _wrapped(view.error, room)
    yield from _section("row", _pairs(view.row, room))
    sent = any(attempt.sent_at is not None for attempt in view.attempts)
    title = "sent" if sent else "not sent yet"
    yield from _section(title if view.source_row is None else "not sent itself", _request(view.request, room))
    yield from _section("answer", _answer(view, room))
    yield from _section("attempts", _attempts(view, room))
    yield from _section("cost", _cost(view))


def _section(title: str, lines: Iterator[str]) -> Iterator[str]:
    yield title
    yield from lines


def _pairs(values: dict[str, Any], room: int) -> Iterator[str]:
    for name, value in values.items():
        yield _INDENT + output.cut(f"{name}: {_shown(value)}", room - len(_INDENT))


def _request(body: dict[str, Any] | None, room: int) -> Iterator[str]:
    if body is None:
        yield f"{_INDENT}the request is not kept any more"
        return
    for message in body.get("messages") or []:
        if isinstance(message, dict):
            yield f"{_INDENT}[{message.get('role')}]"
            yield from _wrapped(_shown(message.get("content")), room, 2)
    yield from _pairs({name: value for name, value in body.items() if name != "messages"}, room)


def _answer(view: RowView, room: int) -> Iterator[str]:
    vectors = view.answer if isinstance(view.answer, list) else [view.answer]
    if vectors and all(isinstance(one, array) for one in vectors):
        for vector in vectors:
            first = ", ".join(f"{number:.6g}" for number in vector[:_MOST_NUMBERS])
            yield f"{_INDENT}{len(vector):,} numbers: {first}{', ...' if len(vector) > _MOST_NUMBERS else ''}"
    elif view.text is None:
        yield f"{_INDENT}none"
    else:
        yield from _wrapped(view.text, room)
    known = {"finish reason": view.finish_reason, "model": view.model}
    yield from _pairs({name: value for name, value in known.items() if value}, room)


def _attempts(view: RowView, room: int) -> Iterator[str]:
    if view.source_row is not None:
        where = "" if view.source_job == view.job else f" of job {view.source_job}"
        yield f"{_INDENT}none: it has the answer of row {view.source_row:,}{where}, which asks the same"
    for attempt in view.attempts:
        yield from _attempt(attempt, room)


def _attempt(attempt: Attempt, room: int) -> Iterator[str]:
    if attempt.batch is None:
        yield f"{_INDENT}never sent"
        return
    when = "not sent yet" if attempt.sent_at is None else f"sent {output.local(attempt.sent_at)}"
    ended = "" if attempt.ended_at is None else f", ended {output.local(attempt.ended_at)}"
    yield _INDENT + output.cut(f"{attempt.batch} {attempt.outcome or 'no result yet'}: {when}{ended}", room - 2)
    names = " ".join(name for name in (attempt.submission, attempt.remote_id) if name)
    if names:
        yield f"{_INDENT}   {output.cut(names, room - 5)}"
    if attempt.error:
        yield f"{_INDENT}   {output.cut(_printable(attempt.error), room - 5)}"


def _cost(view: RowView) -> Iterator[str]:
    if view.input_tokens is None and view.output_tokens is None:
        yield f"{_INDENT}no tokens were counted"
        return
    cached = f", {view.cached_tokens:,} of them cached" if view.cached_tokens else ""
    price = "no price is known" if view.cost is None else f"${view.cost:.6f}"
    yield f"{_INDENT}{view.input_tokens or 0:,} tokens in{cached}, {view.output_tokens or 0:,} out: {price}"


def _wrapped(text: str, room: int, depth: int = 1) -> Iterator[str]:
    indent = _INDENT * depth
    for line in _printable(text).split("\n"):
        yield from textwrap.wrap(line, room, initial_indent=indent, subsequent_indent=indent) or [""]


def _shown(value: Any) -> str:
    from batchctl.rowjson import to_json

    return _printable(value if isinstance(value, str) else to_json(value).decode())


def _printable(text: str) -> str:
    """Without what a terminal would take for commands: answers are anybody's text."""
    return _CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
