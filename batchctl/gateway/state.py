"""The server's durable state: one SQLite file, and the files' bytes beside it.

One connection behind one lock; the ledger reads on a connection of its own. Moments are the server's clock.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import orjson
from filelock import FileLock, Timeout

from batchctl.errors import UsageError
from batchctl.gateway.faults import Fault, Kind
from batchctl.gateway.options import MESSAGES_ENDPOINT

TERMINAL: Final = frozenset({"failed", "completed", "expired", "cancelled"})
SAVE_EVERY_S: Final = 1.0  # wall seconds between two saves of the clock
DAY: Final = 86_400.0
FILE_LIFE: Final = 30 * DAY  # files of purpose batch, where nothing is said (PROVIDERS.md 2.1)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, project TEXT NOT NULL, filename TEXT NOT NULL,
    purpose TEXT NOT NULL, bytes INTEGER NOT NULL, created_at REAL NOT NULL, expires_at REAL NOT NULL, deleted_at REAL
);
CREATE TABLE IF NOT EXISTS batches (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, project TEXT NOT NULL, endpoint TEXT NOT NULL,
    input_file_id TEXT NOT NULL, created_at REAL NOT NULL, expires_at REAL NOT NULL, metadata BLOB,
    output_expires_s INTEGER, faults BLOB NOT NULL, status TEXT NOT NULL, model TEXT, total INTEGER NOT NULL,
    completed INTEGER NOT NULL, failed INTEGER NOT NULL, tokens INTEGER NOT NULL, usage BLOB, errors BLOB,
    output_file_id TEXT, error_file_id TEXT, in_progress_at REAL, finalizing_at REAL, completed_at REAL,
    failed_at REAL, expired_at REAL, cancelling_at REAL, cancelled_at REAL, deleted_at REAL
);
CREATE INDEX IF NOT EXISTS batches_status ON batches (status);
CREATE TABLE IF NOT EXISTS attempts (
    batch INTEGER NOT NULL, line INTEGER NOT NULL, key TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'pending',
    PRIMARY KEY (batch, line)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS attempts_key ON attempts (key);
CREATE TABLE IF NOT EXISTS calls (route TEXT PRIMARY KEY, count INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS clock (one INTEGER PRIMARY KEY CHECK (one = 1), now REAL, speed REAL, wall REAL);
"""
_JSON_COLUMNS = frozenset({"metadata", "faults", "usage", "errors"})


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as the server keeps it; gone once `deleted_at` is set or `expires_at` has passed."""

    id: str
    project: str
    filename: str
    purpose: str
    bytes: int
    created_at: float
    expires_at: float
    deleted_at: float | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as the server knows it: the truth, from which `wire` makes what clients are shown."""

    seq: int
    id: str
    project: str
    endpoint: str
    input_file_id: str
    created_at: float
    expires_at: float
    metadata: dict[str, str] | None = None
    output_expires_s: int | None = None
    faults: list[dict[str, Any]] = field(default_factory=list)
    status: str = "validating"
    model: str | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0
    tokens: int = 0
    usage: dict[str, Any] | None = None
    errors: list[dict[str, Any]] | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    in_progress_at: float | None = None
    finalizing_at: float | None = None
    completed_at: float | None = None
    failed_at: float | None = None
    expired_at: float | None = None
    cancelling_at: float | None = None
    cancelled_at: float | None = None
    deleted_at: float | None = None

    @property
    def is_messages(self) -> bool:
        """One of Anthropic's: no other wire shows it."""
        return self.endpoint == MESSAGES_ENDPOINT

    @property
    def ended_at(self) -> float | None:
        """When it reached its terminal status; None while it can still answer."""
        ends = (self.completed_at, self.failed_at, self.expired_at, self.cancelled_at)
        return next((moment for moment in ends if moment is not None), None)

    def fault(self, kind: Kind) -> Fault | None:
        """The fault of this kind that the batch carries."""
        return next((Fault.model_validate(one) for one in self.faults if one["kind"] == kind), None)


_BATCH_COLUMNS = tuple(column.name for column in fields(Batch))
_FILE_COLUMNS = tuple(column.name for column in fields(StoredFile))


def _encode(column: str, value: Any) -> Any:
    return orjson.dumps(value) if column in _JSON_COLUMNS and value is not None else value


def _batch(row: Sequence[Any]) -> Batch:
    values = dict(zip(_BATCH_COLUMNS, row, strict=True))
    for column in _JSON_COLUMNS:
        if values[column] is not None:
            values[column] = orjson.loads(values[column])
    return Batch(**values)


class State:
    """Files, batches and attempts, kept under `directory`, which one server at a time owns (else UsageError)."""

    def __init__(self, directory: Path, *, durable: bool) -> None:
        self.directory = directory
        self.files_dir = directory / "files"
        self.parts_dir = directory / "parts"
        for folder in (self.files_dir, self.parts_dir):
            folder.mkdir(parents=True, exist_ok=True)
        self._owned = FileLock(directory / "lock", timeout=0)
        try:
            self._owned.acquire()
        except Timeout:
            hint = "stop it, or use another --state"
            raise UsageError(f"another server keeps its state in {directory}", hint=hint) from None
        for leftover in self.parts_dir.iterdir():
            leftover.unlink()
        self.database = directory / "rehearsal.sqlite3"
        self._lock = threading.RLock()
        self._db = sqlite3.connect(self.database, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA synchronous = {'NORMAL' if durable else 'OFF'}")
        self._db.executescript(_SCHEMA)
        if "deleted_at" not in {column[1] for column in self._all("PRAGMA table_info(batches)")}:
            self._db.execute("ALTER TABLE batches ADD COLUMN deleted_at REAL")  # kept by a server of before

    def close(self) -> None:
        with self._lock:
            self._db.close()
        self._owned.release()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep every other thread out for several steps that belong together."""
        with self._lock:
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._db.execute("BEGIN")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _all(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._lock:
            return self._db.execute(sql, values).fetchall()

    def _one(self, sql: str, values: Sequence[Any] = ()) -> Any:
        with self._lock:
            return self._db.execute(sql, values).fetchone()

    # The clock and the calls

    def last_moment(self) -> float | None:
        """Where the clock of a restarted server begins: not before any moment that it has told anybody.

        The clock stands still while no server runs; what ran on after the last save (`SAVE_EVERY_S`) is added.
        """
        row = self._one("SELECT now, speed, wall FROM clock")
        if row is None:
            return None
        now, speed, wall = row
        unsaved = min(max(0.0, time.time() - wall), 2 * SAVE_EVERY_S)
        return float(now + unsaved * speed)

    def save_moment(self, now: float, speed: float, calls: dict[str, int]) -> None:
        """Keep the clock and add to the counts of calls."""
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO clock VALUES (1, ?, ?, ?)", (now, speed, time.time()))
            self._db.executemany(
                "INSERT INTO calls VALUES (?, ?) ON CONFLICT (route) DO UPDATE SET count = count + excluded.count",
                list(calls.items()),
            )

    # Files

    def path_of(self, file_id: str) -> Path:
        return self.files_dir / file_id

    def add_file(
        self, source: Path, *, project: str, filename: str, purpose: str, now: float, life_s: float = FILE_LIFE
    ) -> StoredFile:
        """Take the finished file `source` over (it is renamed) and register it."""
        stored = StoredFile(
            id="file-" + secrets.token_hex(12),
            project=project,
            filename=filename,
            purpose=purpose,
            bytes=source.stat().st_size,
            created_at=now,
            expires_at=now + life_s,
        )
        source.replace(self.path_of(stored.id))
        marks = ", ".join("?" * len(_FILE_COLUMNS))
        with self._lock:
            self._db.execute(
                f"INSERT INTO files ({', '.join(_FILE_COLUMNS)}) VALUES ({marks})", tuple(asdict(stored).values())
            )
        return stored

    def file(self, file_id: str, project: str, now: float) -> StoredFile | None:
        """The project's file, unless it was deleted or has expired."""
        row = self._one(
            f"SELECT {', '.join(_FILE_COLUMNS)} FROM files"
            " WHERE id = ? AND project = ? AND deleted_at IS NULL AND expires_at > ?",
            (file_id, project, now),
        )
        return StoredFile(*row) if row else None

    def files(self, project: str, now: float, *, purpose: str | None, ascending: bool) -> list[StoredFile]:
        """All of the project's files by creation."""
        rows = self._all(
            f"SELECT {', '.join(_FILE_COLUMNS)} FROM files WHERE project = ? AND deleted_at IS NULL AND expires_at > ?"
            f" AND (? IS NULL OR purpose = ?) ORDER BY seq {'ASC' if ascending else 'DESC'}",
            (project, now, purpose, purpose),
        )
        return [StoredFile(*row) for row in rows]

    def delete_file(self, file_id: str, now: float) -> None:
        """Hide the file at once; its bytes go when no batch still reads them."""
        with self._lock:
            self._db.execute("UPDATE files SET deleted_at = ? WHERE id = ?", (now, file_id))
            self.drop_bytes(file_id)

    def drop_bytes(self, file_id: str) -> None:
        """Remove the bytes of a deleted file once no open batch reads them."""
        with self._lock:
            wanted = self._one(
                "SELECT 1 FROM batches WHERE input_file_id = ?1 AND status NOT IN"
                " ('failed', 'completed', 'expired', 'cancelled')"
                " UNION ALL SELECT 1 FROM files WHERE id = ?1 AND deleted_at IS NULL LIMIT 1",
                (file_id,),
            )
            if wanted is None and file_id.startswith(("file-", "msgbatch_")) and "/" not in file_id:
                self.path_of(file_id).unlink(missing_ok=True)

    def expire_file(self, file_id: str, moment: float) -> None:
        """Let the file be gone from `moment` on."""
        with self._lock:
            self._db.execute("UPDATE files SET expires_at = ? WHERE id = ?", (moment, file_id))

    def keep_results(self, source: Path, batch: Batch) -> str:
        """Take a batch's finished results over under a name that is no file's id, and return it."""
        name = f"{batch.id}.results"
        source.replace(self.path_of(name))
        return name

    # Batches

    def add_batch(self, *, id: str | None = None, keys: Iterable[tuple[int, str]] = (), **values: Any) -> Batch:
        """Store a new batch, with its requests (line number, key) where they are known by now, and return it."""
        batch = Batch(seq=0, id=id or "batch_" + secrets.token_hex(12), **values)
        columns = [column for column in _BATCH_COLUMNS if column != "seq"]
        marks = ", ".join("?" * len(columns))
        with self._transaction():
            cursor = self._db.execute(
                f"INSERT INTO batches ({', '.join(columns)}) VALUES ({marks})",
                [_encode(column, getattr(batch, column)) for column in columns],
            )
            self._insert_attempts(cursor.lastrowid or 0, keys)
        return self.batch(batch.id)

    def batch(self, batch_id: str) -> Batch:
        """Raises KeyError where there is none."""
        row = self._one(f"SELECT {', '.join(_BATCH_COLUMNS)} FROM batches WHERE id = ?", (batch_id,))
        if row is None:
            raise KeyError(batch_id)
        return _batch(row)

    def batches(self, project: str, *, messages: bool = False) -> list[Batch]:
        """All of the project's batches of OpenAI's wire (of Anthropic's with `messages`), newest first."""
        rows = self._all(
            f"SELECT {', '.join(_BATCH_COLUMNS)} FROM batches WHERE project = ? AND (endpoint = ?) = ?"
            " AND deleted_at IS NULL ORDER BY seq DESC",
            (project, MESSAGES_ENDPOINT, messages),
        )
        return [_batch(row) for row in rows]

    def open_batches(self) -> list[Batch]:
        """Those not yet at a terminal status, oldest first."""
        rows = self._all(
            f"SELECT {', '.join(_BATCH_COLUMNS)} FROM batches"
            " WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling') ORDER BY seq"
        )
        return [_batch(row) for row in rows]

    def update_batch(self, batch_id: str, *, expect: Iterable[str], **values: Any) -> bool:
        """Change the batch if its status is one of `expect`; False where it is not (a cancel came between)."""
        statuses = tuple(expect)
        changes = ", ".join(f"{column} = ?" for column in values)
        with self._lock:
            cursor = self._db.execute(
                f"UPDATE batches SET {changes} WHERE id = ? AND status IN ({', '.join('?' * len(statuses))})",
                [*(_encode(column, value) for column, value in values.items()), batch_id, *statuses],
            )
        return cursor.rowcount == 1

    def add_fault(self, batch_id: str, fault: Fault) -> bool:
        """Let a fault strike a batch that exists; False where there is none."""
        with self._lock:
            try:
                faults = [one for one in self.batch(batch_id).faults if one["kind"] != fault.kind]
            except KeyError:
                return False
            faults.append({**fault.model_dump(mode="json", exclude_defaults=True), "op": "batch"})
            self._db.execute("UPDATE batches SET faults = ? WHERE id = ?", (orjson.dumps(faults), batch_id))
        return True

    def enqueued_tokens(self, project: str, model: str) -> int:
        """Prompt tokens of the model's batches that passed validation and have not ended."""
        row = self._one(
            "SELECT coalesce(sum(tokens), 0) FROM batches WHERE project = ? AND model = ?"
            " AND status IN ('in_progress', 'finalizing', 'cancelling')",
            (project, model),
        )
        return int(row[0])

    def queued_requests(self, project: str) -> int:
        """Requests of the project's batches of Anthropic's wire that have not ended."""
        row = self._one(
            "SELECT coalesce(sum(total), 0) FROM batches WHERE project = ? AND endpoint = ?"
            " AND status IN ('in_progress', 'finalizing', 'cancelling')",
            (project, MESSAGES_ENDPOINT),
        )
        return int(row[0])

    # Attempts: what the ledger counts

    def add_attempts(self, seq: int, keys: Iterable[tuple[int, str]]) -> None:
        """Note the requests (line number, key) that a batch's file holds."""
        with self._transaction():
            self._insert_attempts(seq, keys)

    def _insert_attempts(self, seq: int, keys: Iterable[tuple[int, str]]) -> None:
        self._db.executemany(
            "INSERT OR IGNORE INTO attempts (batch, line, key) VALUES (?, ?, ?)",
            ((seq, line, key) for line, key in keys),
        )

    def end_attempts(self, seq: int, states: Iterable[tuple[int, str]]) -> None:
        """Note what became of each request (line number, state)."""
        with self._transaction():
            self._db.executemany(
                "UPDATE attempts SET state = ? WHERE batch = ? AND line = ?",
                ((state, seq, line) for line, state in states),
            )
