"""What a submit would send, found out without a store and without sending: for `validate` and `estimate`."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

from batchctl.engine.context import ID_WIDTH
from batchctl.engine.intake import check_expected
from batchctl.engine.planner import Limits, partition
from batchctl.engine.prepare import Prepared, preparer
from batchctl.engine.tokens import tokens_of, tokens_of_messages
from batchctl.errors import InputError
from batchctl.inputs import Format, Named, Row, open_table
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
    source: Named,
    *,
    input_format: Format | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
    target: Target | None = None,
    most_problems: int = 100,
) -> Preview:
    """Read the whole table and prepare every row, collecting what is wrong instead of stopping at it."""
    seen = Preview()
    collect = _collector(seen, most_problems)
    groups: dict[str | None, array[int]] = {}
    try:
        table = open_table(source, format=input_format, encoding=encoding, sheet=sheet)
        prepare = preparer(task, *((None, None) if target is None else (target.profile, target.adapter)))
        look = _looker(task, target, seen, groups)
        for row in table.rows(on_error=collect):
            try:
                look(row, prepare(row))
            except InputError as error:
                if error.fatal:
                    raise
                collect(error)
        for problem in prepare.problems():
            collect(problem)
        seen.rows, seen.columns = table.row_count, prepare.columns(table.columns)
        check_expected(task, table)
    except InputError as error:
        collect(error)
        return seen
    if target is not None:
        for sizes in groups.values():
            start = 0
            for count in partition(sizes, target.limits):
                seen.batches.append((count, sum(sizes[start : start + count])))
                start += count
    return seen


def _looker(
    task: Task, target: Target | None, seen: Preview, groups: dict[str | None, array[int]]
) -> Callable[[Row, Prepared], None]:
    """Counts one row's tokens and bytes. Raises InputError where no batch can hold it."""
    schema = task.output.json_schema
    fixed_tokens = 0 if schema is None else tokens_of(json.dumps(schema))
    envelope = 0 if target is None else len(target.adapter.encode_line("x" * ID_WIDTH, b"{}")) - 2
    room = None if target is None else min(target.limits.max_line_bytes, target.limits.max_bytes)

    def look(row: Row, prepared: Prepared) -> None:
        seen.input_tokens += tokens_of_messages(prepared.messages) + fixed_tokens
        if room is None:
            return
        size = len(prepared.body) + envelope
        if size > room:
            seen.too_large += 1
            raise InputError(row.file, row.line, f"the request has {size:,} bytes, the limit is {room:,}")
        if prepared.group not in groups:
            groups[prepared.group] = array("Q")
        groups[prepared.group].append(size)

    return look


def _collector(seen: Preview, most: int) -> Callable[[InputError], None]:
    def collect(error: InputError) -> None:
        if len(seen.problems) >= most:
            seen.more_problems += 1
        else:
            seen.problems.append(f"{error.message}; {error.hint}" if error.hint else error.message)

    return collect
