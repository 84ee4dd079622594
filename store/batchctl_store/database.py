"""The connection: SQLite set up for several processes, short transactions, migrations under a lock."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

from filelock import FileLock
from sqlalchemy import Connection, Engine, Table, create_engine, event, insert, inspect, text
from sqlalchemy.engine.interfaces import Compiled

from batchctl_store.migrations import HEAD
from batchctl_store.records import StoreError

BUSY_TIMEOUT_MS = 30_000
_READS = "batchctl_reads"  # an option of connections that take no lock


class Database:
    """A store's database, migrated when opened. `begin` writes, `read` reads; neither is held over a network call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.engine = _sqlite(path)
        if self._is_new() or self._version() != HEAD:
            self._migrate()

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A short write transaction; takes the write lock at once, so that what it read stays true."""
        with self.engine.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A read that blocks no writer; all its statements see one state of the store."""
        with self.engine.connect() as connection:
            yield connection.execution_options(**{_READS: True})

    def compact(self) -> None:
        """Write the file anew without its free pages; no transaction may be open. Needs its size on disk meanwhile."""
        with closing(self.engine.raw_connection()) as connection:
            cursor = connection.cursor()
            cursor.execute("VACUUM")
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            cursor.close()

    def close(self) -> None:
        """Give the connections back."""
        self.engine.dispose()

    def _is_new(self) -> bool:
        """True where the file has nothing in it yet: who connects now would race to make it a write-ahead store."""
        try:
            return self.path.stat().st_size == 0
        except FileNotFoundError:
            return True

    def _migrate(self) -> None:
        with FileLock(self.path.with_suffix(".migrate.lock"), timeout=120, mode=0o600):
            if not self.path.exists():
                # created here so that the file is private from its first byte on
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            version = self._version()
            if version != HEAD:
                self._upgrade(version)

    def _version(self) -> str | None:
        with self.read() as connection:
            if not inspect(connection).has_table("alembic_version"):
                return None
            version = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
            return None if version is None else str(version)

    def _upgrade(self, version: str | None) -> None:
        from alembic import command
        from alembic.config import Config
        from alembic.script import ScriptDirectory
        from alembic.util import CommandError

        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        if version is not None:
            try:
                ScriptDirectory.from_config(config).get_revision(version)
            except CommandError as error:
                raise StoreError(
                    f"{self.path} was written by a newer batchctl (schema {version}, this one knows {HEAD}): upgrade it"
                ) from error
        with self.engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


def insert_many(connection: Connection, table: Table, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Insert rows with values in the order of `names`, straight through the driver.

    SQLAlchemy's own way makes a dictionary a row and looks at each value, which costs as much as the insert itself.
    """
    compiled = insert(table).compile(dialect=connection.dialect, column_keys=list(names))
    execute_many(connection, compiled, names, rows)


def execute_many(
    connection: Connection, compiled: Compiled, names: Sequence[str], rows: Iterable[Sequence[Any]]
) -> int:
    """Run a compiled statement for each row of values in the order of `names`, its parameters. Returns rows changed."""
    places = getattr(compiled, "positiontup", None)
    values: list[Any]
    if places is None:  # a driver that wants names
        values = [dict(zip(names, row, strict=True)) for row in rows]
    elif tuple(places) == tuple(names):
        values = [tuple(row) for row in rows]
    else:
        chosen = itemgetter(*map(names.index, places))
        values = [chosen(row) for row in rows]
    return connection.exec_driver_sql(str(compiled), values).rowcount if values else 0


def _sqlite(path: Path) -> Engine:
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": BUSY_TIMEOUT_MS / 1000})

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # transactions are begun below, not by the driver
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")  # an intent must be on disk before its call is made
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        reads = connection.get_execution_options().get(_READS, False)
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine
