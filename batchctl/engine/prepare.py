"""Row -> what will be sent for it: rendered by the task, or ready-made and kept as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from batchctl.engine.readymade import ReadyMade
from batchctl.errors import InputError
from batchctl.inputs import Row
from batchctl.render import Renderer
from batchctl.task import Task
from batchctl_adapters.base import BatchAdapter
from batchctl_adapters.profile import Profile


class Prepared(NamedTuple):
    """One row, ready to be stored."""

    raw: bytes  # what the output has of the row, one line of JSON
    body: bytes  # as it will be sent; empty where no provider is named
    group: str | None  # rows of different groups never share a batch
    messages: Sequence[Mapping[str, Any]]  # to estimate its tokens


class Preparer(Protocol):
    """Made once for a table."""

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


def model_of(task: Task, profile: Profile | None) -> str:
    """The provider's name of the task's model."""
    model = task.model or ""
    return model if profile is None else profile.models.get(model, model)


class _Rendered:
    def __init__(self, task: Task, profile: Profile | None, adapter: BatchAdapter | None) -> None:
        self._renderer = Renderer(task, model_of(task, profile))
        self._encode = _nothing if adapter is None else adapter.encode_body

    def __call__(self, row: Row) -> Prepared:
        request = self._renderer.request(row)
        try:
            return Prepared(row.raw, self._encode(request), None, request.messages)
        except ValueError as error:
            raise InputError(row.file, row.line, f"row {row.number}: {error}") from None

    def columns(self, found: Sequence[str]) -> tuple[str, ...]:
        return tuple(found)

    def problems(self) -> Iterable[InputError]:
        return ()


def _nothing(_: object) -> bytes:
    return b""
