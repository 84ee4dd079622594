"""Printing: data to stdout, talk to stderr, tables that fit the terminal, times as people say them."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import click

from batchctl.spelling import cut_path, duration, iso

__all__ = [
    "counted",
    "cut",
    "cut_path",
    "data",
    "duration",
    "emit",
    "iso",
    "local",
    "say",
    "styled",
    "table",
    "warn",
    "width",
]

LEAST_WIDTH, UNWATCHED_WIDTH = 60, 80


def say(text: str) -> None:
    """Talk to the user, on stderr."""
    click.echo(text, err=True)


def warn(text: str) -> None:
    """Something doubtful that stops nothing, on stderr."""
    click.echo(f"warning: {text}", err=True)


def data(text: str = "") -> None:
    """What the command was asked for, on stdout."""
    click.echo(text)


def emit(command: str, payload: dict[str, Any]) -> None:
    """The `--json` answer of a command; docs/json.md has the schema."""
    click.echo(json.dumps({"schema": f"batchctl/{command}/1", **payload}, ensure_ascii=False))


def width() -> int:
    """Columns to print in."""
    return max(LEAST_WIDTH, shutil.get_terminal_size((UNWATCHED_WIDTH, 24)).columns)


def styled(text: str, **style: Any) -> str:
    """Coloured where stdout is a terminal and NO_COLOR is not set."""
    return click.style(text, **style) if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


def cut(text: str, room: int) -> str:
    """At most `room` characters, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= room else f"{text[: max(0, room - 1)]}…"


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    shrink: Sequence[str] = (),
    room: int,
) -> list[str]:
    """Lines of a table at most `room` wide. Where that is too little the columns in `shrink` are cut, in that order.

    `right` are aligned to the right; `shrink` is by default the last and the first.
    """
    cells = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    over = sum(widths) + 2 * (len(header) - 1) - room
    for least in (12, 4):
        for name in shrink or (header[-1], header[0]):
            column = header.index(name)
            spared = min(max(0, over), max(0, widths[column] - least))
            widths[column] -= spared
            over -= spared
    lines = []
    for row in cells:
        parts = [
            cut(cell, size).rjust(size) if name in right else cut(cell, size).ljust(size)
            for name, cell, size in zip(header, row, widths, strict=True)
        ]
        lines.append("  ".join(parts).rstrip())
    return lines


def local(at: float) -> str:
    """A time as people read it, in their zone."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def counted(number: int, word: str) -> str:
    """`1 row`, `2,000 rows`, `3 batches`."""
    plural = f"{word}es" if word.endswith(("ch", "s")) else f"{word}s"
    return f"{number:,} {word if number == 1 else plural}"


def size(number: int) -> str:
    """Bytes as people read them, in decimal units: `812 B`, `3.4 MB`."""
    amount, unit = float(number), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1_000:
            break
        amount, unit = amount / 1_000, larger
    return f"{number:,} B" if unit == "B" else f"{amount:,.1f} {unit}"
