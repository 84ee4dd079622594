"""What a submit would send, found out without a store and without sending: for `validate` and `estimate`."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from batchctl.engine.context import ID_WIDTH
from batchctl.engine.intake import model_of
from batchctl.engine.planner import Limits, partition
from batchctl.engine.tokens import tokens_of, tokens_of_messages
from batchctl.errors import InputError
from batchctl.inputs import Format, open_table
from batchctl.render import Renderer
from batchctl.task import Task
from batchctl_adapters.base import BatchAdapter, Capabilities
from batchctl_adapters.profile import Profile


@dataclass(slots=True)
class Preview:
    """What was found. Sizes are bytes of each line as it would be sent; tokens are estimates."""

    rows: int = 0
    columns: tuple[str, ...] = ()
    problems: list[str] = field(default_factory=list)  # whole sentences, `FILE:LINE: what; fix`
    more_problems: int = 0  # found beyond those that are listed
    sizes: array[int] = field(default_factory=lambda: array("Q"))
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

    @property
    def limits(self) -> Limits:
        """As a submit would have them."""
        found: Capabilities = self.adapter.capabilities
        return Limits(
            max_requests=min(found.max_requests, self.max_requests or found.max_requests),
            max_bytes=min(found.max_bytes, self.max_bytes or found.max_bytes),
            max_line_bytes=min(found.max_line_bytes, found.max_bytes),
        )


def preview(
    task: Task,
    source: Path,
    *,
    input_format: Format | None = None,
    target: Target | None = None,
    most_problems: int = 100,
) -> Preview:
    """Read the whole table and render every row, collecting what is wrong instead of stopping at it."""
    seen = Preview()
    collect = _collector(seen, most_problems)
    model = task.model if target is None else model_of(task, target.profile)
    schema = task.output.json_schema
    fixed_tokens = 0 if schema is None else tokens_of(json.dumps(schema))
    try:
        renderer = Renderer(task, model, source=str(source))
        table = open_table(source, format=input_format)
        line_size = _measure(target)
        limits = None if target is None else target.limits
        room = None if limits is None else min(limits.max_line_bytes, limits.max_bytes)
        for row in table.rows(on_error=collect):
            try:
                request = renderer.request(row)
            except InputError as error:
                collect(error)
                continue
            seen.input_tokens += tokens_of_messages(request.messages) + fixed_tokens
            if target is not None and room is not None:
                size = line_size(target.adapter.encode_body(request))
                if size > room:
                    seen.too_large += 1
                    collect(InputError(str(source), row.line, f"the request has {size:,} bytes, the limit is {room:,}"))
                else:
                    seen.sizes.append(size)
        seen.rows, seen.columns = table.row_count, tuple(table.columns)
        _check_columns(task, source, seen, collect)
    except InputError as error:
        collect(error)
        return seen
    if limits is not None:
        start = 0
        for count in partition(seen.sizes, limits):
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


def _measure(target: Target | None) -> Callable[[bytes], int]:
    envelope = 0 if target is None else len(target.adapter.encode_line("x" * ID_WIDTH, b"{}")) - 2
    return lambda body: len(body) + envelope
