"""Row -> request: the task's templates filled in with one row, in no provider's words."""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import Any

from batchctl.errors import InputError
from batchctl.images import Images
from batchctl.inputs import Row
from batchctl.samples import sample_messages
from batchctl.task import ITEM, Task
from batchctl.templates import MissingColumn, PromptTemplate, TemplateProblem
from batchctl_adapters.base import ASKED_IN_MESSAGES, Request
from batchctl_adapters.profile import Profile


def model_of(task: Task, profile: Profile | None) -> str:
    """The provider's name of the task's model."""
    model = task.model or ""
    return model if profile is None else profile.models.get(model, model)


class Renderer:
    """Compiled once for a job. What is the same for every row (system text, few-shot, settings) is made here once.

    The messages that do not change are the same objects in every request: read them, never change them.
    """

    def __init__(self, task: Task, model: str) -> None:
        """`model` is the provider's name for the task's alias.

        Raises TemplateProblem, MissingColumn where a few-shot example lacks a column.
        """
        self._model = model
        self._prompt = None if task.prompt is None else PromptTemplate(task.prompt)
        self._source = task.prompt or ""
        self._system = None if task.system is None else PromptTemplate(task.system)
        self._images = Images(task.images)
        self._has_images = bool(task.images)
        self._shots = [
            message
            for shot in task.few_shot
            for message in (
                {"role": "user", "content": self._text(shot.input) if shot.input is not None else shot.user},
                {"role": "assistant", "content": shot.answer},
            )
        ]
        self._fixed: list[dict[str, Any]] | None = None
        if self._system is None or self._system.is_constant:
            self._fixed = self._opening({})
        self._kind, self._each = task.kind, task.each
        self._in_messages = task.kind in ASKED_IN_MESSAGES
        self._output = task.output.shape
        self._max_output_tokens = task.max_output_tokens
        self._params = task.params.given if task.dimensions is None else {"dimensions": task.dimensions}
        self._provider_params = task.provider_params

    def request(self, row: Row) -> Request:
        """The row's request. Raises InputError that names row, line and column."""
        values = row.values
        if not self._in_messages:
            return self._of_texts(self._texts(row))
        try:
            fixed = self._fixed
            opening = fixed if fixed is not None else self._opening(values)
            if self._prompt is None:
                messages = self._with_sample(opening, row)
            else:
                messages = [*opening, {"role": "user", "content": self._prompt.render(values)}]
            if self._has_images:
                messages[-1] = self._with_images(messages[-1], row)
        except TemplateProblem as problem:
            raise self._refusal(problem, row) from problem
        return Request(
            self._model,
            messages,
            self._output,
            self._max_output_tokens,
            self._params,
            self._provider_params,
            self._kind,
        )

    def sample(self) -> Request:
        """A request with the templates as they stand, no row in them: for what is the same in every row."""
        if not self._in_messages:
            return self._of_texts([self._source])
        system = [] if self._system is None else [{"role": "system", "content": self._system.source}]
        messages = [*system, *self._shots, {"role": "user", "content": self._source}]
        return replace(self._of_texts([]), messages=messages)

    def _of_texts(self, texts: list[str]) -> Request:
        return Request(
            self._model,
            [],
            self._output,
            self._max_output_tokens,
            self._params,
            self._provider_params,
            self._kind,
            texts,
        )

    def _texts(self, row: Row) -> list[str]:
        """The row's input: one text, or one for each item of its column `each`."""
        values = row.values
        try:
            if self._each is None:
                return [self._text(values)]
            if self._each not in values:
                raise MissingColumn(self._each)
            items = values[self._each]
            if not isinstance(items, list) or not items:
                what = f"row {row.number}: {self._each} must be a list with at least one text, it is {_shown(items)}"
                hint = f'give a JSON list, such as ["a", "b"], or leave `each: {self._each}` out of the task'
                raise InputError(row.file, row.line, what, hint=hint)
            return [self._text({**values, ITEM: item}) for item in items]
        except TemplateProblem as problem:
            raise self._refusal(problem, row) from problem

    def _text(self, values: Any) -> str:
        return "" if self._prompt is None else self._prompt.render(values)

    def _with_sample(self, opening: list[dict[str, Any]], row: Row) -> list[dict[str, Any]]:
        """The sample's own system messages stand before the task's examples."""
        sample = sample_messages(row, self._images)
        if not self._shots:
            return [*opening, *sample]
        systems = 0
        while systems < len(sample) - 1 and sample[systems]["role"] in ("system", "developer"):
            systems += 1
        place = len(opening) - len(self._shots)
        return [*opening[:place], *sample[:systems], *opening[place:], *sample[systems:]]

    def _with_images(self, message: dict[str, Any], row: Row) -> dict[str, Any]:
        """The same message with the row's images after its text."""
        if message["role"] != "user":
            what = f"row {row.number}: the last message is the {message['role']}'s, and images belong to the user's"
            raise InputError(row.file, row.line, what, hint="put them into `input` itself")
        content = message["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}] if content else []
        return {**message, "content": [*content, *self._images.parts(row)]}

    def _opening(self, values: Any) -> list[dict[str, Any]]:
        system = [] if self._system is None else [{"role": "system", "content": self._system.render(values)}]
        return [*system, *self._shots]

    def _refusal(self, problem: TemplateProblem, row: Row) -> InputError:
        if not isinstance(problem, MissingColumn):
            return InputError(row.file, row.line, f"row {row.number}: {problem.what}", hint="mend the template")
        near = difflib.get_close_matches(problem.column, row.values, 1)
        has = ", ".join(row.values) or "nothing"
        hint = f"did you mean {near[0]!r}?" if near else "add the column, or test it: {% if NAME is defined %}"
        what = f"row {row.number}: the task uses the column {problem.column!r}, this row has: {has}"
        return InputError(row.file, row.line, what, hint=hint)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
