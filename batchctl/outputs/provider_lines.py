"""Rows as the lines of a provider's output file: what was received, in input order, under the user's ids.

    {"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error"}      PROVIDERS.md 2.5

The lines lie in the spool as they came. What is not there (never sent, in no file, deleted by `gc`) is put together
from what the store knows.
"""

from __future__ import annotations

import re
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from batchctl.answers import Judge
from batchctl.engine.collect import row_result
from batchctl.engine.context import Engine, row_of
from batchctl.errors import UsageError
from batchctl.outputs.joining import Joined, Joiner
from batchctl.outputs.rebuilding import rebuilt
from batchctl.rowjson import parse_exactly, parse_object, to_json
from batchctl_adapters.base import BadLine
from batchctl_store.records import Batch, Job
from batchctl_store.spool import SpoolError

ID_COLUMNS = ("custom_id", "id")
"""Where the user's id of a row is looked for, if nothing is said."""

_PART_BYTES = 32 * 1024 * 1024  # of lines, sorted in memory at a time
_MOST_PARTS = 128  # files open at once
_CUSTOM_ID = re.compile(rb'("custom_id"\s*:\s*)"([A-Za-z0-9_-]+)"')
_HASHES = 16  # parts that repeated ids are looked for in, to hold a fraction of them in memory


@contextmanager
def provider_lines(
    engine: Engine, joiner: Joiner, rows: Iterable[Joined], id_column: str | None = None
) -> Iterator[Iterator[tuple[bytes, Mapping[str, Any]]]]:
    """An iterator over one line, without its end, for each of `rows` (ascending), as an output writer takes it.

    Raises UsageError where the table has no column `id_column`. What the user should know is noted in the joiner's
    accounting once the last row is out.
    """
    name = _id_column(joiner.job, id_column)
    with tempfile.TemporaryDirectory(dir=engine.home) as folder:
        received = _Received(engine, joiner.job, Path(folder))
        yield ((line, {}) for line in _lines(received, joiner, rows, _Ids(name)))


def _lines(received: _Received, joiner: Joiner, rows: Iterable[Joined], ids: _Ids) -> Iterator[bytes]:
    judge = Judge(joiner.task)
    for row in rows:
        custom_id = ids.of(row)
        line = received.line(row, joiner, judge) if row.is_final else None
        yield to_json(rebuilt(row, custom_id, joiner.task.kind)) if line is None else renamed(line, custom_id)
    joiner.accounting.notes += [*ids.notes(), *received.notes()]


def _id_column(job: Job, named: str | None) -> str | None:
    if named is not None and named not in job.columns:
        raise UsageError(f"the table has no column {named!r}", hint=f"there are: {', '.join(job.columns)}")
    return named or next((name for name in ID_COLUMNS if name in job.columns), None)


def renamed(line: bytes, custom_id: str) -> bytes:
    """The line with another custom_id, and nothing else changed."""
    theirs = to_json(custom_id)
    found, count = _CUSTOM_ID.subn(lambda match: match[1] + theirs, line, count=1)
    return found if count else to_json({**parse_exactly(line), "custom_id": custom_id})


class _Ids:
    """The user's ids: a column's cells, or the row's number (from 1) where there is none."""

    def __init__(self, column: str | None) -> None:
        self._column = column
        self._hashes = array("q")

    def of(self, row: Joined) -> str:
        cell = None if self._column is None else parse_object(row.raw).get(self._column)
        custom_id = str(row.number + 1) if cell in (None, "") else cell if isinstance(cell, str) else _text(cell)
        if self._column is not None:
            self._hashes.append(hash(custom_id))
        return custom_id

    def notes(self) -> list[str]:
        again = 0
        for part in range(_HASHES):
            found = [value for value in self._hashes if value % _HASHES == part]
            again += len(found) - len(set(found))
        if not again:
            return []
        return [f"{self._column} repeats: {again:,} line{'s' * (again > 1)} with the custom_id of another"]


def _text(cell: Any) -> str:
    return to_json(cell).decode()


class _Received:
    """The lines that had the last word on their rows, sorted into parts on disk and read back a part at a time."""

    def __init__(self, engine: Engine, job: Job, folder: Path) -> None:
        self._engine, self._job, self._folder = engine, job, folder
        self._width = 0  # rows of a part; 0: not sorted yet
        self._part: int | None = None
        self._held: dict[int, list[bytes]] = {}
        self._gone: set[int] = set()  # ordinals of batches whose files are not in the spool any more
        self._rebuilt = 0

    def line(self, row: Joined, joiner: Joiner, judge: Judge) -> bytes | None:
        """The line of a row, None where there is none; rows must ascend."""
        if not self._width:
            self._sort()
        part = row.number // self._width
        if part != self._part:
            self._part, self._held = part, self._load(part)
        lines = self._held.get(row.number)
        if lines is None:
            self._rebuilt += row.stored[4] in self._gone
            return None
        return lines[0] if len(lines) == 1 else self._first_success(lines, row.number, joiner, judge)

    def notes(self) -> list[str]:
        if not self._rebuilt:
            return []
        what = "the provider's own lines are not kept any more"
        return [f"{self._rebuilt:,} lines were put together from the store: {what}"]

    def _first_success(self, lines: Sequence[bytes], number: int, joiner: Joiner, judge: Judge) -> bytes:
        """As the store chose where a row has several lines."""
        parse, kind = self._engine.adapter(self._job.profile).parse, joiner.task.kind
        words = (row_result(number, parse(line, kind=kind), judge).outcome for line in lines)
        return next((line for line, word in zip(lines, words, strict=True) if word == "succeeded"), lines[0])

    def _load(self, part: int) -> dict[int, list[bytes]]:
        held: dict[int, list[bytes]] = {}
        path = self._folder / str(part)
        if path.exists():
            for line in path.read_bytes().split(b"\n")[:-1]:
                number, _, content = line.partition(b" ")
                held.setdefault(int(number), []).append(content)
        return held

    def _sort(self) -> None:
        batches = self._engine.store.batches.load(job_id=self._job.id)
        if self._engine.adapter(self._job.profile).capabilities.wire != "openai":
            batches = []  # lines of another shape: all are put together from the store
        found = [(batch, names) for batch in batches if (names := self._files(batch))]
        size = sum(self._size(name) for _, names in found for name in names)
        parts = min(_MOST_PARTS, size // _PART_BYTES + 1)
        self._width = -(-self._job.rows // parts)
        with ExitStack() as stack:
            files = [stack.enter_context((self._folder / str(part)).open("wb")) for part in range(parts)]
            for batch, names in found:
                self._sort_batch(batch, names, lambda number: files[number // self._width].write)

    def _size(self, name: str) -> int:
        try:
            with self._engine.spool.reader(name) as reader:
                return reader.size
        except SpoolError:
            return 0

    def _files(self, batch: Batch) -> list[str]:
        """Names of its result files, in the order they were taken in."""
        return [
            f"{self._job.spool}/results/{submission.tag}-{index}"
            for submission in batch.submissions
            for index in range(len(submission.files))
        ]

    def _sort_batch(
        self, batch: Batch, names: Sequence[str], place: Callable[[int], Callable[[bytes], object]]
    ) -> None:
        store, parse = self._engine.store, self._engine.adapter(batch.profile).parse
        rows = frozenset(store.rows.of_batch(batch))  # those that it had the last word on
        if not rows:
            return
        for name in names:
            if not self._engine.spool.exists(name):
                self._gone.add(batch.ordinal)
                continue
            with self._engine.spool.reader(name) as reader:
                for line in reader.lines():
                    number = _row_of(line, parse, store.store_id, batch)
                    if number in rows:
                        place(number)(b"%d " % number + line + b"\n")


def _row_of(line: bytes, parse: Callable[[bytes], Any], store_id: str, batch: Batch) -> int:
    """The row that a line is about; -1 where it names none."""
    try:
        number = row_of(parse(line).custom_id, store_id, batch) if line.strip() else None
    except BadLine:
        return -1
    return -1 if number is None else number
