"""Thousands of batches that are out: what a tick asks, over real HTTP, and what a look at the store reads."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from batchctl.composition import open_engine
from batchctl.config import load_settings
from batchctl.engine.tick import Report, run_pass
from batchctl_store.views import Views
from bench.crowd import fill
from bench.processes import provider


def tick(home: Path) -> Report:
    engine = open_engine(load_settings(home, {"BATCHCTL_HOME": str(home)}))
    with closing(engine):
        return run_pass(engine)


def test_a_tick_over_a_thousand_open_batches_makes_ten_list_calls_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    home = tmp_path / "home"
    with provider(tmp_path / "provider", "--open", "1000") as served:
        fill(home, served.url, jobs=2, batches=500, rows=50_000)
        report = tick(home)
        assert served.counts() == {"lists": 10}
        assert not report.notes
        tick(home)
        assert served.counts() == {"lists": 10}, "nothing is due so soon"
    batches = [batch for job in (1, 2) for batch in Views(home / "store.db").batches(job)]
    assert len(batches) == 1_000
    assert {(batch["state"], batch["raw_status"], batch["counted"]) for batch in batches} == {
        ("submitted", "in_progress", 0)
    }
    events = Views(home / "store.db").events(2)
    assert [event["text"] for event in events][-1] == "batch_open_1000 is in_progress"
    assert len(events) == 1_000, "one for each batch that was made, and one for each that was seen in another status"


def test_batches_of_others_in_between_do_not_make_a_tick_ask_for_each_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    home = tmp_path / "home"
    with provider(tmp_path / "provider", "--open", "1350") as served:  # the newest 350 are not in the store
        fill(home, served.url, jobs=1, batches=1_000, rows=50_000)
        tick(home)
        assert served.counts() == {"lists": 14}


@pytest.mark.parametrize("look", ["jobs", "batches", "tally", "accounts"])
def test_no_look_at_a_job_reads_its_rows(look: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "http://127.0.0.1:9/v1", jobs=1, batches=2, rows=10, requests=True)
    read = set[str | None]()

    def note(action: int, table: str | None, *_rest: str | None) -> int:
        if action == sqlite3.SQLITE_READ:
            read.add(table)
        return sqlite3.SQLITE_OK

    def watched(*args: Any, **settings: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **settings)
        connection.set_authorizer(note)
        return connection

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", watched)
    views = Views(tmp_path / "store.db")
    getattr(views, look)(*([1] if look in ("batches", "tally") else []))
    assert read
    assert not read & {"request", "result"}
