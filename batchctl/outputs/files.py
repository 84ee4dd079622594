"""Output tables: each input row as it was, with the answer's columns added. Whole or not there at all.

A JSONL row keeps its own bytes, so that `1.10` and `1e5` stay what they were. Only the characters that some readers
take for line ends (U+2028, U+2029, U+0085) are written as escapes, which is the same JSON.
"""

from __future__ import annotations

import contextlib
import csv
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal, Protocol, Self

from batchctl.errors import UsageError
from batchctl.outputs.columns import ColumnType, Vectors
from batchctl.rowjson import escape_separators, parse_object, to_json

Format = Literal["jsonl", "csv", "tsv", "parquet", "openai"]
FORMATS: Mapping[Format, str] = {
    "jsonl": ".jsonl",
    "csv": ".csv",
    "tsv": ".tsv",
    "parquet": ".parquet",
    "openai": ".jsonl",  # a batch's output file, a line for each row (provider_lines.py)
}
"""What can be written, with the suffix of its files."""

SUFFIXES = tuple(dict.fromkeys(FORMATS.values()))
_OF_SUFFIX: Mapping[str, Format] = {suffix: name for name, suffix in FORMATS.items() if name != "openai"}
_BUFFER = 1024 * 1024  # bytes


Announce = Callable[[str], None]


class OutputWriter(Protocol):
    """A context manager; the file appears at the end of the `with` block, and nothing is left where that raises.

    `announce`, where set, is told the new file's `state_of` just before the file takes its place.
    """

    announce: Announce | None

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def write(self, raw: bytes, extra: Mapping[str, Any]) -> None:
        """One row: `raw` as `Row.raw` has it, `extra` the added cells by column. Raises OSError (disk full)."""
        ...


def open_output(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str],
    added: Sequence[str],
    types: Mapping[str, ColumnType | Vectors] | None = None,
    source: str | os.PathLike[str] | None = None,
    format: Format | None = None,
) -> OutputWriter:
    """A writer for `path` of the input's `columns` and the `added` ones; its suffix says the format if nothing else.

    `types` are needed for Parquet, where a column without one is text. `source` is the input file. Raises UsageError
    where the path cannot be written; ValueError where a column would be there twice.
    """
    twice = [name for name in added if name in set(columns)] or len({*added}) != len(added)
    if twice:
        raise ValueError(f"added columns collide with the input's: {twice}")
    target = check_output(path, source=source, format=format)
    names = [*columns, *added]
    match format or format_of(target):
        case "jsonl" | "openai":
            return _JsonlWriter(target, names)
        case "csv":
            return _CsvWriter(target, names)
        case "tsv":
            return _CsvWriter(target, names, delimiter="\t")
        case _:
            from batchctl.outputs.parquet import ParquetRows

            return ParquetRows(target, {name: (types or {}).get(name, ColumnType.TEXT) for name in names})


def _or(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def state_of(path: Path) -> str | None:
    """What tells a file from one that was put in its place or changed; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return f"{found.st_mtime_ns}-{found.st_size}"


def format_of(path: str | os.PathLike[str]) -> Format | None:
    """The format that a file's name stands for."""
    return _OF_SUFFIX.get(Path(path).suffix.lower())


def check_output(
    path: str | os.PathLike[str], *, source: str | os.PathLike[str] | None = None, format: Format | None = None
) -> Path:
    """The real path that will be written; raises UsageError where it cannot be (asked before anything is sent)."""
    named, target = Path(path), Path(path).resolve()
    if format is not None:
        meant = format_of(named)
        if meant is not None and FORMATS[meant] != FORMATS[format]:
            raise UsageError(
                f"{named}: the name says {meant}, --format says {format}", hint="give one of them, or both alike"
            )
    elif format_of(named) is None:
        raise UsageError(
            f"{named}: cannot tell the output's format", hint=f"end the name in {_or(SUFFIXES)}, or say --format"
        )
    elif format_of(target) is None:
        raise UsageError(
            f"{named}: is a link to {target}, whose format is unknown", hint=f"name a {_or(SUFFIXES)} file"
        )
    if (format or format_of(target)) == "parquet" and find_spec("pyarrow") is None:
        raise UsageError(f"{named}: writing Parquet needs pyarrow", hint="pip install 'batchctl[parquet]'")
    if target.is_dir():
        raise UsageError(f"{named}: is a folder", hint="name a file in it")
    if not target.parent.is_dir():
        raise UsageError(f"{named}: there is no folder {target.parent}", hint=f"mkdir -p {named.parent}")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{named}: the folder {target.parent} cannot be written", hint="choose another folder")
    if source is not None and Path(source).exists() and target.exists() and target.samefile(source):
        raise UsageError(f"{named}: the output would replace the input", hint="choose another name for the output")
    return target


class _AtomicFile:
    """A file written beside its name, fsynced and renamed."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        self.file: BinaryIO = self._temporary.open("xb", buffering=_BUFFER)

    def commit(self, announce: Announce | None) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        if announce is not None:
            announce(state_of(self._temporary) or "")
        self._temporary.replace(self._target)
        folder = os.open(self._target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def discard(self) -> None:
        # Closing flushes, and fails again where the disk is full; the file must go all the same.
        with contextlib.suppress(OSError):
            self.file.close()
        self._temporary.unlink(missing_ok=True)


class FileWriter:
    """What the formats share: a file that appears whole. `_begin` writes what comes first, `_end` what comes last."""

    def __init__(self, target: Path, columns: list[str]) -> None:
        self.announce: Announce | None = None
        self._target = target
        self._columns = columns
        self._out: _AtomicFile | None = None

    def __enter__(self) -> Self:
        self._out = _AtomicFile(self._target)
        try:
            self._begin(self._out.file)
        except BaseException:
            self._out.discard()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._out is not None
        try:
            if kind is None:
                self._end()
                self._out.commit(self.announce)
        finally:
            self._out.discard()

    def _begin(self, file: BinaryIO) -> None:
        """Write what stands before the first row."""

    def _end(self) -> None:
        """Nothing more."""


class _JsonlWriter(FileWriter):
    def _begin(self, file: BinaryIO) -> None:
        self._write = file.write

    def write(self, raw: bytes, extra: Mapping[str, Any]) -> None:
        self._write(jsonl_line(raw, extra))


def jsonl_line(raw: bytes, extra: Mapping[str, Any]) -> bytes:
    """One row of JSONL with its line end."""
    opened = raw[:-1].rstrip()  # without its closing brace
    comma = b"" if opened == b"{" else b","
    return escape_separators(opened + comma + to_json(extra)[1:] + b"\n" if extra else raw + b"\n")


class _CsvWriter(FileWriter):
    def __init__(self, target: Path, columns: list[str], *, delimiter: str = ",") -> None:
        super().__init__(target, columns)
        self._delimiter = delimiter

    def _begin(self, file: BinaryIO) -> None:
        self._rows = csv.writer(_LineFeeds(file), lineterminator="\r\n", delimiter=self._delimiter)
        self._rows.writerow(self._columns)

    def write(self, raw: bytes, extra: Mapping[str, Any]) -> None:
        cells = {**parse_object(raw), **extra}
        row = map(cells.get, self._columns)
        self._rows.writerow([cell if type(cell) in _WRITTEN_AS_IS else cell_text(cell) for cell in row])


class _LineFeeds:
    """Takes the csv module's lines, which end in CR LF: only then does it quote a carriage return (before 3.13)."""

    def __init__(self, file: BinaryIO) -> None:
        self._write = file.write

    def write(self, line: str) -> None:
        # A lone surrogate in an answer must not lose the row.
        self._write(line[:-2].encode("utf-8", "backslashreplace") + b"\n")


_WRITTEN_AS_IS = frozenset({str, int, type(None)})


def cell_text(value: Any) -> str:
    """A cell as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else to_json(value).decode()
