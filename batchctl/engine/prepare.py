"""Row -> what will be sent for it: rendered by the task, or ready-made and kept as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from batchctl.engine.readymade import ReadyMade
from batchctl.errors import InputError
from batchctl.inputs import Row
from batchctl.render import Renderer, model_of
from batchctl.task import Task
from batchctl_adapters.base import BatchAdapter, Kind
from batchctl_adapters.profile import Profile


class Prepared(NamedTuple):
    """One row, ready to be stored."""

    raw: bytes  # what the output has of the row, one line of JSON
    body: bytes  # as it will be sent; empty where no provider is named
    group: str | None = None  # rows of different groups never share a batch
    messages: Sequence[Mapping[str, Any]] = ()  # what is asked, to estimate its tokens
    texts: Sequence[str] = ()  # the same for kinds that are not asked in messages; an embedding may have several
    same: bytes | None = None  # equal for rows that ask the same, where the body's own bytes may not be


class Preparer(Protocol):
    """Made once for a table."""

    kind: Kind  # of the requests; known once a row was seen
    several: bool  # a row may have several texts

    def __call__(self, row: Row) -> Prepared:
        """Raises InputError where the row cannot be sent."""
        ...

    def columns(self, found: Sequence[str]) -> tuple[str, ...]:
        """The output's columns before the answer's, given those of the table."""
        ...

    def problems(self) -> Iterable[InputError]:
        """What only shows once all rows were seen."""
        ...


def preparer(task: Task, profile: Profile | None, adapter: BatchAdapter | None) -> Preparer:
    """What prepares the rows for this task. Raises UsageError where the provider cannot take them."""
    if task.samples == "requests":
        return ReadyMade(profile, adapter, Prepared)
    return _Rendered(task, profile, adapter)


class _Rendered:
    def __init__(self, task: Task, profile: Profile | None, adapter: BatchAdapter | None) -> None:
        self._renderer = Renderer(task, model_of(task, profile))
        self._encode = _nothing if adapter is None else adapter.encode_body
        self.kind: Kind = task.kind
        self.several = task.has_several_texts

    def __call__(self, row: Row) -> Prepared:
        request = self._renderer.request(row)
        try:
            return Prepared(row.raw, self._encode(request), None, request.messages, request.input)
        except ValueError as error:
            raise InputError(
                row.file, row.line, f"row {row.number}: {error}", hint="mend the row or the task"
            ) from None

    def columns(self, found: Sequence[str]) -> tuple[str, ...]:
        return tuple(found)

    def problems(self) -> Iterable[InputError]:
        return ()


def _nothing(_: object) -> bytes:
    return b""
