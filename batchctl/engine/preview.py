"""What a submit would send, found out without a store and without sending: for `validate` and `estimate`."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from batchctl.engine.context import ID_WIDTH, limits_of
from batchctl.engine.intake import unsendable
from batchctl.engine.plan import most_inputs
from batchctl.engine.planner import Limits, partition
from batchctl.engine.tokens import tokens_of, tokens_of_messages
from batchctl.errors import InputError
from batchctl.inputs import Format, Row, open_table
from batchctl.lint import lint, model_of, split
from batchctl.render import Renderer
from batchctl.task import Task
from batchctl_adapters.base import BatchAdapter, Kind, Request
from batchctl_adapters.profile import Profile


@dataclass(slots=True)
class Preview:
    """What was found. Sizes are bytes of each line as it would be sent; tokens are estimates."""

    rows: int = 0
    columns: tuple[str, ...] = ()
    problems: list[str] = field(default_factory=list)  # whole sentences, `FILE:LINE: what; fix`
    more_problems: int = 0  # found beyond those that are listed
    warnings: list[str] = field(default_factory=list)  # of the same form; nothing that stops a submit
    sizes: array[int] = field(default_factory=lambda: array("Q"))
    inputs: array[int] = field(default_factory=lambda: array("Q"))  # texts of each embedding request
    too_large: int = 0
    input_tokens: int = 0
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
    source: Path,
    *,
    input_format: Format | None = None,
    target: Target | None = None,
    task_file: Path | None = None,
    most_problems: int = 100,
) -> Preview:
    """Lint the task, read the whole table and render every row, collecting what is wrong instead of stopping at it."""
    seen = Preview()
    collect = _collector(seen, most_problems)
    if target is not None:
        errors, seen.warnings = split(lint(task, target.profile, target.adapter), task_file)
        seen.problems += errors
        target = None if errors else target  # what cannot be sent is not measured
    model = task.model if target is None else model_of(task, target.profile)
    schema = task.output.json_schema
    fixed_tokens = 0 if schema is None else tokens_of(json.dumps(schema))
    try:
        renderer = Renderer(task, model, source=str(source))
        table = open_table(source, format=input_format)
        scale = None if target is None else _Scale(target, task, seen)
        empty = 0
        for row in table.rows(on_error=collect):
            try:
                request = renderer.request(row)
                seen.input_tokens += _tokens(request) + fixed_tokens
                empty += task.kind == "embedding" and "" in request.input
                if scale is not None:
                    scale.weigh(request, row, source)
            except InputError as error:
                collect(error)
        if empty:
            seen.warnings.append(f"{source}: {empty:,} rows have an empty text, which may be refused; they fail alone")
        seen.rows, seen.columns = table.row_count, tuple(table.columns)
        _check_columns(task, source, seen, collect)
    except InputError as error:
        collect(error)
        return seen
    if scale is not None:
        start = 0
        for count in partition(seen.sizes, scale.limits, seen.inputs or None):
            seen.batches.append((count, sum(seen.sizes[start : start + count])))
            start += count
    return seen


def _check_columns(task: Task, source: Path, seen: Preview, collect: Callable[[InputError], None]) -> None:
    if task.expected is not None and task.expected not in seen.columns:
        what = f"has no column {task.expected!r}, which the task names as `expected`"
        collect(InputError(str(source), None, what))


def _collector(seen: Preview, most: int) -> Callable[[InputError], None]:
    def collect(error: InputError) -> None:
        if len(seen.problems) >= most:
            seen.more_problems += 1
        else:
            seen.problems.append(f"{error.message}; {error.hint}" if error.hint else error.message)

    return collect


class _Scale:
    """Measures requests as they would be sent."""

    def __init__(self, target: Target, task: Task, seen: Preview) -> None:
        self.limits = target.limits(task.kind)
        self._room, self._most = min(self.limits.max_line_bytes, self.limits.max_bytes), most_inputs(self.limits)
        self._encode = target.adapter.encode_body
        self._envelope = len(target.adapter.encode_line("x" * ID_WIDTH, b"{}", kind=task.kind)) - 2
        self._several = task.each is not None
        self._seen = seen

    def weigh(self, request: Request, row: Row, source: Path) -> None:
        """Count the request in. Raises InputError for one that no batch can hold."""
        try:
            size = len(self._encode(request)) + self._envelope
        except ValueError as error:
            raise unsendable(source, row, error) from None
        if size > self._room:
            self._seen.too_large += 1
            raise InputError(str(source), row.line, f"the request has {size:,} bytes, the limit is {self._room:,}")
        if self._several:
            if self._most is not None and len(request.input) > self._most:
                what = f"the row has {len(request.input):,} texts, the limit is {self._most:,}"
                raise InputError(str(source), row.line, what, hint="split it into several rows")
            self._seen.inputs.append(len(request.input))
        self._seen.sizes.append(size)


def _tokens(request: Request) -> int:
    return tokens_of_messages(request.messages) if request.messages else sum(map(tokens_of, request.input))
