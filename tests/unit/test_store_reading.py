"""Reading a store while it is written: a reader holds nobody up, and sees one state from its first row to its last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from batchctl_store.repository import Repository
from tests.unit.test_store import NEW

ROWS = 20_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[Repository]:
    opened = Repository(path)
    yield opened
    opened.close()


def test_a_long_read_holds_no_writer_up(store: Repository, path: Path) -> None:
    job = store.jobs.create(replace(NEW, rows=ROWS), now=1.0, owner="me", again=False, same_within_s=0)
    store.rows.add(job.id, ((row, 10) for row in range(ROWS)))
    other = Repository(path)
    with other._db.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA busy_timeout = 100")  # the pool's first connection: the one used below
    reading = store.rows.merged(job.id)
    try:
        assert next(reading)[0] == 0
        other.jobs.update(job.id, now=2.0, event="written meanwhile", paused_at=2.0)
        assert sum(1 for _ in reading) == ROWS - 1
    finally:
        reading.close()
        other.close()
    assert store.jobs.get(job.id).paused_at == 2.0


def test_a_read_sees_one_state_over_all_its_statements(store: Repository, path: Path) -> None:
    with Repository(path)._db.read() as connection:
        count = text("SELECT count(*) FROM setting")
        before = connection.execute(count).scalar()
        store.put_setting("more", "1")
        assert connection.execute(count).scalar() == before
