"""Errors become messages and exit codes here and nowhere else: what happened, where, and what to type next."""

from __future__ import annotations

import errno
import sys
from dataclasses import dataclass

from batchctl.errors import TaskError, UserError

DISK_FULL = "the disk is full: nothing that was stored or answered is lost"
DISK_FULL_HINT = "free some space and run `batchctl tick` again"


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as it is shown."""

    message: str
    hint: str | None
    code: int = 1


def explain(error: BaseException) -> Failure | None:
    """How to show an error; None for a defect of batchctl's own, which keeps its traceback."""
    from batchctl_adapters.errors import AdapterError, Auth, Billing

    if isinstance(error, TaskError):
        count = len(error.problems)
        return Failure(f"{count} problem{'s' * (count > 1)} in the task\n{error.message}", error.hint, error.exit_code)
    if isinstance(error, UserError):
        return Failure(error.message, error.hint, error.exit_code)
    if isinstance(error, Auth):
        return Failure(error.message, "then run the same command again; `batchctl resume JOB` lifts a pause")
    if isinstance(error, Billing):
        return Failure(error.message, "then lift the pause with `batchctl resume JOB`")
    if isinstance(error, AdapterError):
        return Failure(error.message, "nothing is lost; `batchctl tick` tries again")
    if _is_a(error, "batchctl_adapters.registry", "ProfileError"):
        return Failure(str(error), None, 2)
    if _is_a(error, "batchctl_store.records", "StoreError") or _is_a(error, "batchctl_store.spool", "SpoolError"):
        return _disk_full(error) or Failure(str(error), None)
    if isinstance(error, OSError):
        return _disk_full(error) or _os_error(error)
    if _is_a(error, "sqlite3", "Error") or _is_a(error, "sqlalchemy.exc", "DBAPIError"):
        return _database(error)
    return None


def _is_a(error: BaseException, module: str, name: str) -> bool:
    """isinstance without importing what was not imported: an error of a module exists only once that is loaded."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(error, getattr(loaded, name))


_SQLITE_FULL = ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE")
"""The second one: there is no room for the memory that processes share beside the store."""


def _disk_full(error: BaseException) -> Failure | None:
    """Looks through causes: drivers and the store wrap what the system said."""
    seen: BaseException | None = error
    while seen is not None:
        by_system = isinstance(seen, OSError) and seen.errno in (errno.ENOSPC, errno.EDQUOT)
        by_sqlite = getattr(seen, "sqlite_errorname", "") in _SQLITE_FULL or "database or disk is full" in str(seen)
        if by_system or by_sqlite:
            where = f" ({seen.filename})" if isinstance(seen, OSError) and seen.filename else ""
            return Failure(f"{DISK_FULL}{where}", DISK_FULL_HINT)
        seen = seen.__cause__ or seen.__context__
    return None


def _os_error(error: OSError) -> Failure | None:
    if error.errno == errno.EPIPE:
        return None  # click ends quietly where nobody reads on
    if error.filename is None or error.strerror is None:
        return None
    return Failure(f"{error.filename}: {error.strerror}", "check the path and its permissions")


def _database(error: BaseException) -> Failure | None:
    if full := _disk_full(error):
        return full
    said = str(getattr(error, "orig", None) or error)
    if "locked" in said or "busy" in said:
        return Failure("the store is busy: another command writes to it", "run the same command again")
    if "readonly" in said or "unable to open" in said:
        return Failure(f"the store cannot be written: {said}", "check the permissions of BATCHCTL_HOME")
    if "disk I/O error" in said:
        return Failure(
            f"the store cannot be read or written: {said}", "check the disk; nothing that was stored is lost"
        )
    if "not a database" in said or "malformed" in said:
        return Failure(f"the store is damaged: {said}", "keep the folder as it is and restore a copy")
    return None
