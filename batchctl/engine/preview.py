"""What a submit would send, found out without a store and without sending: for `validate` and `estimate`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from batchctl.engine.context import ID_WIDTH, limits_of
from batchctl.engine.intake import check_expected
from batchctl.engine.keys import Keys
from batchctl.engine.numbers import Numbers
from batchctl.engine.plan import Group, most_inputs, shards_of
from batchctl.engine.planner import Limits
from batchctl.engine.prepare import Prepared, Preparer, preparer
from batchctl.engine.tokens import tokens_of, tokens_of_messages
from batchctl.errors import InputError
from batchctl.inputs import Format, Named, Row, open_table
from batchctl.lint import lint, split
from batchctl.rowjson import to_json
from batchctl.task import Task
from batchctl_adapters.base import BatchAdapter, Kind
from batchctl_adapters.profile import Profile

_FOLDER = Path(tempfile.gettempdir())


@dataclass(slots=True)
class Preview:
    """What was found. Sizes are bytes of each line as it would be sent; tokens are estimates."""

    rows: int = 0
    columns: tuple[str, ...] = ()
    problems: list[str] = field(default_factory=list)  # whole sentences, `FILE:LINE: what; fix`
    more_problems: int = 0  # found beyond those that are listed
    warnings: list[str] = field(default_factory=list)  # of the same form; nothing that stops a submit
    repeated: int = 0  # rows that ask the same as an earlier one
    too_large: int = 0
    input_tokens: int = 0  # of what would be sent
    batches: list[tuple[int, int]] = field(default_factory=list)  # (requests, bytes)


@dataclass(frozen=True, slots=True)
class Target:
    """Where it would be sent: without one only the task and the table are looked at."""

    profile: Profile
    adapter: BatchAdapter
    max_requests: int | None = None
    max_bytes: int | None = None

    def limits(self, kind: Kind) -> Limits:
        """As a submit would have them."""
        return limits_of(self.adapter.capabilities, kind, self.max_requests, self.max_bytes)


def preview(
    task: Task,
    source: Named,
    *,
    input_format: Format | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
    target: Target | None = None,
    task_file: Path | None = None,
    most_problems: int = 100,
    dedupe: bool = True,
) -> Preview:
    """Lint the task, read the whole table and prepare every row, collecting what is wrong instead of stopping.

    With `dedupe` rows that ask the same count once in what would be sent.
    """
    seen = Preview()
    collect = _collector(seen, most_problems)
    if target is not None:
        errors, seen.warnings = split(lint(task, target.profile, target.adapter), task_file)
        seen.problems += errors
        target = None if errors else target  # what cannot be sent is not measured
    try:
        table = open_table(source, format=input_format, encoding=encoding, sheet=sheet)
        prepare = preparer(task, *((None, None) if target is None else (target.profile, target.adapter)))
        scale = _Scale(target, task, prepare, seen)
        for row in table.rows(on_error=collect):
            try:
                scale.weigh(row, prepare(row))
            except InputError as error:
                if error.fatal:
                    raise
                collect(error)
        for problem in prepare.problems():
            collect(problem)
        if scale.empty:
            what = f"{scale.empty:,} rows have an empty text, which may be refused; they fail alone"
            seen.warnings.append(f"{table.name}: {what}")
        seen.rows, seen.columns = table.row_count, prepare.columns(table.columns)
        check_expected(task, table)
    except InputError as error:
        collect(error)
        return seen
    scale.settle(dedupe=dedupe)
    return seen


class _Scale:
    """Measures requests as they would be sent; without a target it counts tokens only."""

    def __init__(self, target: Target | None, task: Task, prepare: Preparer, seen: Preview) -> None:
        self._target, self._prepare, self._seen = target, prepare, seen
        schema = task.output.json_schema
        self._fixed_tokens = 0 if schema is None else tokens_of(json.dumps(schema))
        self._groups: dict[str | None, Group] = {}
        self._measure: _Measure | None = None
        self._keys = Keys()
        self._tokens = Numbers(_FOLDER)  # of each row
        self.empty = 0  # rows with an empty text

    def weigh(self, row: Row, prepared: Prepared) -> None:
        """Count the request in. Raises InputError for one that no batch can hold."""
        number = len(self._tokens)
        self._keys.add(number, prepared.same or prepared.body or to_json([prepared.messages, prepared.texts]))
        tokens = tokens_of_messages(prepared.messages) + self._fixed_tokens + sum(map(tokens_of, prepared.texts))
        self._tokens.append(tokens)
        if prepared.texts:
            self.empty += self._prepare.kind == "embedding" and "" in prepared.texts
        if self._target is None:
            return
        measure = self._measure
        if measure is None:  # the kind may be known from the first row only
            measure = self._measure = _Measure.of(self._target, self._prepare.kind)
        size, texts = len(prepared.body) + measure.envelope, len(prepared.texts) or 1
        if size > measure.room:
            self._seen.too_large += 1
            raise InputError(row.file, row.line, f"the request has {size:,} bytes, the limit is {measure.room:,}")
        if measure.most is not None and texts > measure.most:
            what = f"the row has {texts:,} texts, the limit is {measure.most:,}"
            raise InputError(row.file, row.line, what, hint="split it into several rows")
        if prepared.group not in self._groups:
            self._groups[prepared.group] = Group.empty(_FOLDER, counted=measure.most is not None)
        self._groups[prepared.group].add(number, size, texts)

    def settle(self, *, dedupe: bool) -> None:
        """Write down what would be sent, once every row was weighed."""
        seen, unsent = self._seen, bytearray(len(self._tokens))
        for number in self._keys.repeated():
            unsent[number] = True
        seen.repeated = sum(unsent)
        if not dedupe:
            unsent = bytearray(len(self._tokens))
        seen.input_tokens = sum(tokens for tokens, out in zip(self._tokens, unsent, strict=True) if not out)
        if self._measure is None:
            return
        limits = self._measure.limits
        sent = [(name, rows.without(unsent, _FOLDER)) for name, rows in self._groups.items()]
        found = [shard for group, rows in sent for shard in shards_of(group, rows, limits)]
        seen.batches = [(shard.requests, shard.bytes) for shard in sorted(found)]


@dataclass(frozen=True, slots=True)
class _Measure:
    """What requests of one kind are held to."""

    limits: Limits
    envelope: int  # bytes of each line besides its body
    room: int
    most: int | None

    @classmethod
    def of(cls, target: Target, kind: Kind) -> _Measure:
        limits = target.limits(kind)
        envelope = len(target.adapter.encode_line("x" * ID_WIDTH, b"{}", kind=kind)) - 2
        return cls(limits, envelope, min(limits.max_line_bytes, limits.max_bytes), most_inputs(limits))


def _collector(seen: Preview, most: int) -> Callable[[InputError], None]:
    def collect(error: InputError) -> None:
        if len(seen.problems) >= most:
            seen.more_problems += 1
        else:
            seen.problems.append(f"{error.message}; {error.hint}" if error.hint else error.message)

    return collect
