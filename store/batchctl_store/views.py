"""What people look at all day, read through the database driver alone: no ORM, no migration, no write.

The views are made by the migrations (`job_status`, `batch_status`), so these queries stay one line each.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any


class Views:
    """A read-only look at a store. A store that does not exist yet reads as empty."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def jobs(self, name: str | None = None) -> list[dict[str, Any]]:
        """Rows of `job_status`, oldest first; `name` is a job's name or number."""
        if name is None:
            return self._query("SELECT * FROM job_status ORDER BY id")
        if name.isdecimal():
            return self._query("SELECT * FROM job_status WHERE id = ?", int(name))
        return self._query("SELECT * FROM job_status WHERE name = ?", name)

    def batches(self, job_id: int) -> list[dict[str, Any]]:
        """Rows of `batch_status` of one job, in the order they were planned."""
        return self._query("SELECT * FROM batch_status WHERE job_id = ? ORDER BY ordinal", job_id)

    def open_batches(self, job_id: int) -> list[dict[str, Any]]:
        """Of one job's batches that are not closed, what says how the job stands: thousands are read in no time."""
        return self._query(
            "SELECT ordinal, state, note, window_ends_at FROM batch WHERE job_id = ?"
            " AND state NOT IN ('collected', 'rejected', 'canceled', 'gone') ORDER BY ordinal",
            job_id,
        )

    def tally(self, job_id: int) -> list[dict[str, Any]]:
        """Rows by outcome and error code of one job, with one error text each, the most frequent first."""
        return self._query(
            "SELECT outcome, code, sum(count) AS count, min(sample) AS sample FROM tally WHERE job_id = ?"
            " GROUP BY outcome, code ORDER BY count DESC, outcome",
            job_id,
        )

    def events(self, job_id: int) -> list[dict[str, Any]]:
        """The job's history, oldest first."""
        return self._query(
            "SELECT e.at, e.kind, e.text, b.ordinal AS batch, e.source, e.target, e.count FROM event e"
            " LEFT JOIN batch b ON b.id = e.batch_id WHERE e.job_id = ? ORDER BY e.id",
            job_id,
        )

    def accounts(self) -> list[dict[str, Any]]:
        """Accounts that are paused, with the reason."""
        return self._query("SELECT * FROM account WHERE paused_at IS NOT NULL ORDER BY name")

    def setting(self, key: str) -> str | None:
        """A fact about the store itself."""
        rows = self._query("SELECT value FROM setting WHERE key = ?", key)
        return None if not rows else str(rows[0]["value"])

    def _query(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        try:
            return self._ask("mode=ro", sql, values)
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []  # the first command on a new store is still making it
            if not error.sqlite_errorname.startswith("SQLITE_IOERR_SHM") or self._is_being_written():
                raise
            return self._ask("mode=ro&immutable=1", sql, values)  # a full disk has no room for the shared memory

    def _ask(self, how: str, sql: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
        connection = sqlite3.connect(f"{self._path.absolute().as_uri()}?{how}", uri=True, timeout=30)
        try:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(sql, values)]
        finally:
            connection.close()

    def _is_being_written(self) -> bool:
        """True where the write-ahead log holds anything: the file alone is not the whole store then."""
        log = self._path.with_name(f"{self._path.name}-wal")
        return log.exists() and log.stat().st_size > 0
