"""Rows of different groups never share a batch; stores from before there were groups go on."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine, inspect, text

from batchctl.engine.plan import plan_rows
from batchctl.engine.planner import Limits
from batchctl_store.database import Database
from batchctl_store.migrations import HEAD
from batchctl_store.records import IllegalMove, Job, NewJob, Shard
from batchctl_store.repository import Repository


class _Engine:
    """What planning needs of an engine."""

    def __init__(self, store: Repository, limits: Limits) -> None:
        self.store, self._limits, self.clock = store, limits, self
        self.home = Path(tempfile.gettempdir())

    def limits(self, _: Job) -> Limits:
        return self._limits

    def now(self) -> float:
        return 0.0


def new_job(store: Repository, rows: int) -> Job:
    fields: dict[str, Any] = dict.fromkeys(NewJob.__dataclass_fields__, "x")
    fields |= {"columns": (), "rows": rows, "max_attempts": 3, "output_path": None, "deadline": None}
    fields |= {
        "max_batch_requests": None,
        "max_batch_bytes": None,
        "spool": f"s{len(store.jobs.all())}",
        "keep_remote": False,
    }
    return store.jobs.create(NewJob(**fields), now=0.0, owner="o", again=True, same_within_s=0.0)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("store") / "store.db")


@given(
    rows=st.lists(st.tuples(st.integers(1, 9), st.sampled_from([None, "a", "b"])), min_size=1, max_size=30),
    most=st.integers(1, 6),
    size=st.integers(6, 30),
)
def test_every_batch_has_rows_of_one_group_and_every_row_that_fits_a_batch(
    store: Repository, rows: list[tuple[int, str | None]], most: int, size: int
) -> None:
    job = new_job(store, len(rows))
    store.rows.add(job.id, enumerate(one for one, _ in rows), [group for _, group in rows])
    engine: Any = _Engine(store, Limits(max_requests=most, max_bytes=size, max_line_bytes=size))
    count = plan_rows(engine, job)
    batches = [batch for batch in store.batches.load() if batch.job_id == job.id]
    assert len(batches) == count
    held = [store.rows.of_batch(batch) for batch in batches]
    assert sorted(row for batch in held for row in batch) == [n for n, (one, _) in enumerate(rows) if one <= size]
    for batch, numbers in zip(batches, held, strict=True):
        assert len({rows[number][1] for number in numbers}) == 1
        assert numbers == sorted(numbers)
        assert len(numbers) == batch.requests <= most
        assert sum(rows[number][0] for number in numbers) == batch.bytes <= size
    assert [batch.first_row for batch in batches] == sorted(batch.first_row for batch in batches)


def test_a_shard_of_another_group_is_no_legal_move(store: Repository) -> None:
    job = new_job(store, 2)
    store.rows.add(job.id, [(0, 1), (1, 1)], ["a", "b"])
    for wrong in (Shard(0, 1, 2, 2, "a"), Shard(0, 1, 2, 2), Shard(0, 0, 1, 1, "b")):
        with pytest.raises(IllegalMove):
            store.rows.assign(job, [wrong], now=0.0)
    assert [(row, group) for row, _, group in store.rows.pending(job.id)] == [(0, "a"), (1, "b")]


def at_first_version(path: Path) -> None:
    """A store as migration 0001 made it, with a job of two rows."""
    from alembic import command
    from alembic.config import Config

    import batchctl_store

    config = Config()
    config.set_main_option("script_location", str(Path(batchctl_store.__file__).parent / "migrations"))
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        columns = {one["name"]: one for one in inspect(connection).get_columns("job")}
        given = {name: 1 if "INT" in str(one["type"]) else "[]" for name, one in columns.items() if not one["nullable"]}
        connection.execute(text(f"INSERT INTO job ({', '.join(given)}) VALUES (:{', :'.join(given)})"), given)
        for row in (0, 1):
            sql = "INSERT INTO request (job_id, row, state, attempts, size) VALUES (1, :row, 'pending', 0, 7)"
            connection.execute(text(sql), {"row": row})
    engine.dispose()


def test_a_store_of_the_first_version_is_migrated_and_its_rows_are_of_one_group(tmp_path: Path) -> None:
    at_first_version(tmp_path / "old.db")
    old = Repository(tmp_path / "old.db")
    assert list(old.rows.pending(1)) == [(0, 7, None), (1, 7, None)]
    engine: Any = _Engine(old, Limits(max_requests=10, max_bytes=100, max_line_bytes=100))
    assert plan_rows(engine, old.jobs.get(1)) == 1
    old.close()
    schemas = []
    for name in ("old.db", "new.db"):
        database = Database(tmp_path / name)
        with database.read() as connection:
            assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == HEAD
            found = inspect(connection)
            tables = found.get_table_names()
            schemas.append(
                {name: [f"{one['name']} {one['type']}" for one in found.get_columns(name)] for name in tables}
            )
        database.close()
    assert schemas[0] == schemas[1]
