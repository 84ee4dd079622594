"""The one door: named sources become a table, whatever they are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import assert_never

from batchctl.errors import InputError
from batchctl.inputs.row import OnError, Progress, Row
from batchctl.inputs.sources import Format, Named, Source, find_sources

_TEXT = ("csv", "tsv", "jsonl")
_SHOWN = 3  # names of files in the table's own


Reader = Callable[[Source, Progress, list[str], str | None], Iterator[Row]]
"""What each format's module has as `read`: the source's rows. The list gets the hash of its bytes once they are read;
the last argument is the encoding of text, the sheet of Excel."""


def open_table(
    named: Named, *, format: Format | None = None, encoding: str | None = None, sheet: str | None = None
) -> Table:
    """The table in one source or several: paths, globs, `-` (standard input), `hf:NAME[:CONFIG]:SPLIT`.

    A file's suffix says its format unless `format` does; `.gz` and `.zst` are unpacked. `encoding` is that of text
    (default UTF-8), `sheet` the one of Excel (default: the only one). Raises InputError.
    """
    sources = find_sources(named, format)
    for source in sources:
        if encoding is not None and source.format not in _TEXT:
            raise source.problem(None, f"is {source.format}, which has no --encoding", hint="leave --encoding out")
        if sheet is not None and source.format != "excel":
            raise source.problem(None, f"is {source.format}, which has no sheets", hint="leave --sheet out")
    return Table(sources, encoding or sheet)


class Table:
    """Rows of one source or several. `rows()` may be called again; what it found out is there once it was read."""

    def __init__(self, sources: tuple[Source, ...], option: str | None = None) -> None:
        self.sources = sources
        self._option = option
        self._progress = Progress()
        self._sha256: str | None = None

    @property
    def name(self) -> str:
        """As messages and the job call it."""
        names = [source.name for source in self.sources]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return ", ".join(names[:_SHOWN]) + more

    @property
    def stem(self) -> str:
        """A short name: the first source's without folder and suffixes."""
        return self.sources[0].stem

    @property
    def format(self) -> str:
        """Of its sources, such as `csv` or `csv+jsonl`."""
        return "+".join(sorted({source.format for source in self.sources}))

    @property
    def paths(self) -> tuple[Path, ...]:
        """The user's own files."""
        return tuple(source.path for source in self.sources if source.path is not None and source.held is None)

    @property
    def columns(self) -> tuple[str, ...]:
        """The union of all rows' keys, in the order they were first seen."""
        self._require_read()
        return tuple(self._progress.columns)

    @property
    def sha256(self) -> str:
        """Of the file's bytes, in hex; of several: of their hashes, in order. A dataset's is that of its rows."""
        self._require_read()
        return self._sha256 or ""

    @property
    def row_count(self) -> int:
        """Rows read, without those that `on_error` was told of."""
        self._require_read()
        return self._progress.number - self._progress.refused

    def rows(self, on_error: OnError | None = None) -> Iterator[Row]:
        """Every row in order, in flat memory.

        Raises InputError at the first thing that is wrong. With `on_error` that is called instead, the row is left out
        and reading goes on; only what makes the rest unreadable (a CSV header, no rows at all) is still raised.
        """
        self._sha256 = None
        progress = self._progress = Progress(on_error)
        hashes: list[str] = []
        for source in self.sources:
            read = _reader(source)
            try:
                yield from read(source, progress, hashes, self._option)
            except OSError as error:
                raise source.problem(None, f"cannot be read: {error.strerror or error}") from error
        if not progress.number:
            raise InputError(self.name, None, "has no rows", hint="is it the right file?")
        together = hashlib.sha256("".join(hashes).encode()).hexdigest()
        self._sha256 = hashes[0] if len(hashes) == 1 else together

    def _require_read(self) -> None:
        if self._sha256 is None:
            raise RuntimeError("the table has not been read to its end")


def _reader(source: Source) -> Reader:
    """Imported where it is used: a table of text pays for no other format."""
    match source.format:
        case "jsonl":
            from batchctl.inputs import jsonl

            return jsonl.read
        case "csv" | "tsv":
            from batchctl.inputs import delimited

            return delimited.read
        case "parquet":
            from batchctl.inputs import parquet

            return parquet.read
        case "excel":
            from batchctl.inputs import excel

            return excel.read
        case "dataset":
            from batchctl.inputs import huggingface

            return huggingface.read
        case _:
            assert_never(source.format)
