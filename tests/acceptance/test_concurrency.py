"""Case 89: many commands at once on one SQLite store."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

from tests.acceptance.conftest import MakeDesk
from tests.acceptance.desk import PROFILE, Desk, interpreter, numbered, outcomes


def test_case_89_ten_first_starts_make_one_store(desk: Desk) -> None:
    task = desk.task()
    tables = [desk.table(numbered(20 + number), f"t{number}.csv") for number in range(6)]
    started = [desk.start("submit", task, table, "--provider", PROFILE, "--no-tick") for table in tables]
    started += [desk.start(*words) for words in (("tick",), ("status",), ("jobs",), ("tick",))]
    ended = [command.wait(0) for command in started]
    assert not any("locked" in done.err or "busy" in done.err for done in ended)
    assert sorted(job["rows"] for job in desk.views.jobs()) == list(range(20, 26))
    assert len({done.out for done in ended[:6]}) == 6


def test_case_89_first_starts_with_an_interpreter_each(make_desk: MakeDesk) -> None:
    desk = make_desk(launch=interpreter)
    task = desk.task()
    tables = [desk.table(numbered(5 + number), f"t{number}.csv") for number in range(4)]
    started = [desk.start("submit", task, table, "--provider", PROFILE, "--no-tick") for table in tables]
    assert not any("locked" in command.wait(0).err for command in started)
    assert len(desk.views.jobs()) == 4


def test_case_89_twenty_looks_a_merge_and_a_tick_at_once(desk: Desk) -> None:
    rows = 5_000
    job = desk.submit(desk.task(), desk.table(numbered(rows)))
    desk.settle(job)
    other = desk.submit(desk.task(), desk.table(numbered(200), "other.csv"), "--max-batch-requests", 10, "--no-tick")
    output = desk.folder / "all.jsonl"
    merge, tick = desk.start("results", job, "-o", output), desk.start("tick")
    looks = [desk.start("status", *([job] if number % 2 else [])) for number in range(20)]
    ended = [command.wait(0) for command in (merge, tick, *looks)]
    assert not any("locked" in done.err or "busy" in done.err for done in ended)
    assert all(job in done.out for done in ended[2:])
    assert output.read_bytes().count(b"\n") == rows
    desk.settle(other)
    assert outcomes(desk.results(other, codes=(0,))) == {"succeeded": 200}


def test_case_89_a_writer_that_takes_long_delays_a_tick_and_no_look(desk: Desk) -> None:
    job = desk.submit(desk.task(), desk.table(numbered(20)))
    desk.server.advance(300)
    with closing(sqlite3.connect(desk.home / "store.db", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        tick = desk.start("tick")
        began = time.monotonic()
        for words in (["status"], ["status", job], ["jobs"], ["logs", job]):
            desk.run(*words)
        time.sleep(max(0.0, 3 - (time.monotonic() - began)))
        assert tick.running(), "it waits for its turn"
        holder.execute("ROLLBACK")
    tick.wait(0)
    desk.settle(job)
    assert outcomes(desk.results(job, codes=(0,))) == {"succeeded": 20}
