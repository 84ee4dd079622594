"""What `submit` checks before anything is stored or sent, for the command line and for Python."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from batchctl.errors import UsageError

if TYPE_CHECKING:
    from batchctl.config import Settings
    from batchctl.engine.context import Engine
    from batchctl.engine.intake import Order
    from batchctl.inputs import Format, Table
    from batchctl.task import Task


@dataclass(frozen=True, slots=True)
class Asked:
    """The task and the inputs of one command line, with how the inputs are to be read."""

    task: Path | None  # None: the inputs are ready-made requests
    inputs: tuple[str, ...]
    format: Format | None
    encoding: str | None
    sheet: str | None

    def load(self) -> Task:
        """The task. Raises TaskError."""
        from batchctl.task import Task, load_task

        return load_task(self.task) if self.task is not None else Task.model_validate({"samples": "requests"})

    def open(self) -> Table:
        """The table. Raises InputError."""
        from batchctl.inputs import open_table

        return open_table(self.inputs, format=self.format, encoding=self.encoding, sheet=self.sheet)

    @property
    def words(self) -> str:
        """As they were typed."""
        return " ".join(["--requests"] if self.task is None else [str(self.task)]) + " " + " ".join(self.inputs)


@dataclass(frozen=True, slots=True)
class Options:
    """What else `submit` is told."""

    provider: str | None = None
    output: Path | None = None
    force: bool = False
    again: bool = False
    dedupe: bool = True
    reuse: bool = False
    keep_remote: bool = False
    max_batch_requests: int | None = None
    max_batch_bytes: int | None = None
    max_attempts: int = 3


def provider_of(given: str | None, settings: Settings) -> str:
    """The profile to use. Raises UsageError where neither the command line nor batchctl.toml names one."""
    chosen = given or settings.provider
    if not chosen:
        hint = 'add --provider PROFILE, or write provider = "..." in batchctl.toml'
        raise UsageError("no provider is named", hint=hint)
    return chosen


def order_of(asked: Asked, options: Options, settings: Settings) -> Order:
    """The order, after all checks that need no store. Raises UsageError, TaskError or InputError."""
    from batchctl.composition import find_profile, require_key
    from batchctl.engine.intake import Order
    from batchctl.outputs.delivery import require_free
    from batchctl.outputs.files import check_output

    chosen = provider_of(options.provider, settings)
    task = asked.load()
    require_key(settings, find_profile(settings, chosen))
    table = asked.open()
    if options.output is not None:
        check_output(options.output)
        for source in table.paths:
            check_output(options.output, source=source)
        require_free(options.output, force=options.force)
    return Order(
        task=task,
        source=table,
        profile=chosen,
        output=options.output,
        max_batch_requests=options.max_batch_requests,
        max_batch_bytes=options.max_batch_bytes,
        max_attempts=options.max_attempts,
        again=options.again,
        dedupe=options.dedupe,
        reuse=options.reuse,
        keep_remote=options.keep_remote,
    )


def doubts(engine: Engine, order: Order, task_file: Path | None) -> list[str]:
    """Warnings about the order. Raises TaskError for what the provider would refuse in every row."""
    from batchctl.lint import lint, refuse

    profile, adapter = engine.profile(order.profile), engine.adapter(order.profile)
    return refuse(lint(order.task, profile, adapter), task_file)
