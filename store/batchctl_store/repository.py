"""The store as the engine sees it: jobs, batches and rows over one database."""

from __future__ import annotations

import secrets
from pathlib import Path

from sqlalchemy import insert, select, text, update

from batchctl_store import models
from batchctl_store.batches import Batches
from batchctl_store.database import Database
from batchctl_store.jobs import Jobs
from batchctl_store.keeping import Keeping
from batchctl_store.outcomes import Outcomes
from batchctl_store.rows import Rows
from batchctl_store.sources import Sources

SETTING = models.metadata.tables["setting"]
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # no letters that are misread


class Repository:
    """One store. `store_id` is part of every tag at a provider, so that stores know their own batches."""

    def __init__(self, path: Path) -> None:
        self._db = Database(path)
        self.jobs = Jobs(self._db)
        self.batches = Batches(self._db)
        self.rows = Rows(self._db, self.batches)
        self.outcomes = Outcomes(self._db)
        self.sources = Sources(self._db)
        self.keeping = Keeping(self._db, self.jobs, self.batches)
        self.store_id = self._store_id()

    def close(self) -> None:
        """Give the connections back."""
        self._db.close()

    def setting(self, key: str) -> str | None:
        """A fact about the store itself."""
        with self._db.read() as connection:
            return connection.execute(select(SETTING.c.value).where(SETTING.c.key == key)).scalar()

    def put_setting(self, key: str, value: str) -> None:
        """Store a fact about the store itself."""
        with self._db.begin() as connection:
            if not connection.execute(update(SETTING).where(SETTING.c.key == key).values(value=value)).rowcount:
                connection.execute(insert(SETTING).values(key=key, value=value))

    def check(self) -> list[str]:
        """What is wrong with the database file itself; empty where nothing is."""
        with self._db.read() as connection:
            found = [row[0] for row in connection.execute(text("PRAGMA quick_check"))]
        return [] if found == ["ok"] else found

    def _store_id(self) -> str:
        known = self.setting("store_id")
        if known:
            return known
        with self._db.begin() as connection:
            raced = connection.execute(select(SETTING.c.value).where(SETTING.c.key == "store_id")).scalar()
            if raced:
                return str(raced)
            fresh = "".join(secrets.choice(_ALPHABET) for _ in range(6))
            connection.execute(insert(SETTING).values(key="store_id", value=fresh))
        return fresh
