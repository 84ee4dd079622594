"""Errors that are shown to the user as they are: what happened, where, and what to type or change next."""

from __future__ import annotations

from collections.abc import Sequence


class UserError(Exception):
    """A failure the user can act on. Printed without a traceback, ends the command with `exit_code`."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(UserError):
    """The command line, a setting or a file's content is wrong; nothing was sent."""

    exit_code = 2


class TaskError(UsageError):
    """A task file is wrong. `problems` are whole sentences `FILE:LINE: KEY: what; fix`."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class InputError(UsageError):
    """An input table is wrong at `path:line[:column]` (1-based); nothing was sent.

    `fatal`: the other rows are wrong in the same way, so that one is enough to be told of.
    """

    def __init__(
        self,
        path: str,
        line: int | None,
        what: str,
        *,
        column: int | None = None,
        hint: str | None = None,
        fatal: bool = False,
    ):
        where = ":".join(str(part) for part in (path, line, column) if part is not None)
        super().__init__(f"{where}: {what}", hint=hint)
        self.path, self.line, self.column, self.fatal = path, line, column, fatal
