"""The pure parts of the command line: verdicts, words, tables, durations, failures."""

from __future__ import annotations

import errno
import sqlite3
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError

from batchctl import verdict, words
from batchctl.cli import output
from batchctl.engine.doubt import UNSURE, UNSURE_GONE
from batchctl.errors import TaskError, UsageError, UserError
from batchctl.failures import explain
from batchctl_adapters.errors import Auth, Billing, Transient
from batchctl_store.records import StoreError
from batchctl_store.spool import SpoolError

NOW = 1_000_000.0


def job(**values: Any) -> dict[str, Any]:
    return {
        "state": "running",
        "rows": 10,
        "final_rows": 0,
        "succeeded_rows": 0,
        "deadline": None,
        "paused_at": None,
        "cancel_requested_at": None,
        **values,
    }


def batch(**values: Any) -> dict[str, Any]:
    return {
        "state": "submitted",
        "ordinal": 1,
        "note": None,
        "window_ends_at": NOW + 100,
        "next_poll_at": NOW + 40,
        "not_before": None,
        **values,
    }


def account(kind: str) -> dict[str, Any]:
    return {"name": "openai", "pause_kind": kind, "pause_reason": "why"}


@pytest.mark.parametrize(
    ("found", "batches", "paused", "code"),
    [
        (job(state="finished", final_rows=10, succeeded_rows=10), [], None, 0),
        (job(state="finished", final_rows=10, succeeded_rows=9), [], None, 3),
        (job(), [batch()], None, 4),
        (job(), [batch(window_ends_at=NOW - 1)], None, 5),
        (job(deadline=NOW + 50), [batch()], None, 5),
        (job(deadline=NOW - 1), [], None, 5),
        (job(deadline=NOW + 500), [batch()], None, 4),
        (job(state="account paused"), [batch()], account("auth"), 6),
        (job(state="account paused"), [batch(state="ready")], account("billing"), 6),
        (job(state="running"), [batch()], account("billing"), 4),
        (job(state="account paused"), [batch(state="ready")], account("queue"), 4),
        (job(state="in doubt"), [batch(state="in_doubt", note="not seen at the provider in 1 looks")], None, 4),
        (job(state="in doubt"), [batch(state="in_doubt", note=f"{UNSURE}: no control")], None, 6),
        (job(), [batch(state="submitted", note=f"{UNSURE_GONE}: no control")], None, 6),
        (job(state="paused", paused_at=NOW), [batch(state="planned")], None, 6),
        (job(state="paused", paused_at=NOW), [batch()], None, 4),
    ],
)
def test_the_exit_code_of_a_job(
    found: dict[str, Any], batches: list[dict[str, Any]], paused: dict[str, Any] | None, code: int
) -> None:
    assert verdict.of_job(found, batches, paused, NOW) == code


def test_the_worst_of_several_jobs_counts() -> None:
    assert verdict.worst([0, 4, 3]) == 4
    assert verdict.worst([]) == 0


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (batch(), "ask the provider in 40s"),
        (batch(next_poll_at=NOW - 1), "ask the provider at the next tick"),
        (batch(window_ends_at=NOW - 1), "overdue, ask the provider in 40s"),
        (batch(state="planned"), "upload at the next tick"),
        (batch(state="ready", not_before=NOW + 120, note="429"), "create in 2m: 429"),
        (batch(state="in_doubt", not_before=NOW + 450), "look for it at the provider in 7m"),
        (batch(state="in_doubt", note=f"{UNSURE}: x"), f"in doubt, needs you: {UNSURE}: x"),
        (batch(state="ended"), "fetch its results at the next tick"),
        (batch(state="collected"), ""),
    ],
)
def test_what_happens_next_to_a_batch(found: dict[str, Any], said: str) -> None:
    assert words.batch_next(found, job(), None, NOW) == said


def test_what_holds_a_batch() -> None:
    ready = batch(state="ready")
    assert words.batch_next(ready, job(paused_at=NOW), None, NOW) == "held: the job is paused"
    assert words.batch_next(ready, job(), account("billing"), NOW) == "held: account paused (billing)"
    assert words.batch_next(ready, job(cancel_requested_at=NOW), None, NOW).startswith("drop (canceled)")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "-"),
        (0, "0s"),
        (99, "99s"),
        (100, "1m"),
        (5_999, "99m"),
        (6_000, "1h40m"),
        (200_000, "2d07h"),
        (-90, "-90s"),
    ],
)
def test_durations(seconds: float | None, said: str) -> None:
    assert output.duration(seconds) == said


@given(
    st.lists(st.lists(st.text(max_size=60), min_size=3, max_size=3), max_size=5),
    st.integers(min_value=60, max_value=200),
)
def test_a_table_is_never_wider_than_its_room(rows: list[list[str]], room: int) -> None:
    short = [[first, "x" * 10, last] for first, _, last in rows]
    lines = output.table(("FIRST", "SECOND", "THIRD"), short, room=room)
    assert all(len(line) <= room for line in lines)


def test_plurals() -> None:
    assert [output.counted(1, "batch"), output.counted(2, "batch"), output.counted(2_000, "row")] == [
        "1 batch",
        "2 batches",
        "2,000 rows",
    ]


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (UserError("what", hint="do"), 1, "what"),
        (UsageError("what"), 2, "what"),
        (TaskError(["a.yaml:1: x", "a.yaml:2: y"]), 2, "2 problems in the task\na.yaml:1: x\na.yaml:2: y"),
        (Auth("no key"), 1, "no key"),
        (Billing("no credit"), 1, "no credit"),
        (Transient("busy"), 1, "busy"),
        (StoreError("newer schema"), 1, "newer schema"),
        (SpoolError("damaged"), 1, "damaged"),
        (OSError(errno.ENOSPC, "No space left on device", "/spool/x"), 1, "the disk is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 1, "the disk is full"),
        (sqlite3.OperationalError("database or disk is full"), 1, "the disk is full"),
        (OperationalError("INSERT", {}, sqlite3.OperationalError("database or disk is full")), 1, "the disk is full"),
        (OperationalError("INSERT", {}, sqlite3.OperationalError("database is locked")), 1, "the store is busy"),
        (sqlite3.OperationalError("unable to open database file"), 1, "cannot be written"),
        (sqlite3.DatabaseError("file is not a database"), 1, "damaged"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), 1, "/x: Permission denied"),
    ],
)
def test_errors_become_messages(error: Exception, code: int, says: str) -> None:
    failure = explain(error)
    assert failure is not None
    assert failure.code == code
    assert says in failure.message


def test_a_wrapped_full_disk_is_still_told() -> None:
    try:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            raise SpoolError("could not be written") from error
    except SpoolError as wrapped:
        failure = explain(wrapped)
    assert failure is not None
    assert failure.message.startswith("the disk is full")


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), sqlite3.OperationalError("no such column: x")])
def test_a_defect_keeps_its_traceback(error: Exception) -> None:
    assert explain(error) is None
