"""What the server counted, so that promises can be proved from the other side.

`sent` counts requests of batches that ran (they reached in_progress); `received` counts those of every accepted file.
`answered` are 2xx answers that stand readable in a result file; `lost` were answered and stand in none.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

_END = "coalesce(completed_at, failed_at, expired_at, cancelled_at, 9e18)"


def ledger(database: Path, *, bodies: bool) -> dict[str, Any]:
    """The counts; with `bodies` also those of each distinct request, by its key."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        report = {**_totals(db), **_repeats(db), **_traffic(db)}
        if bodies:
            report["bodies"] = {
                key: {"sent": sent, "answered": answered, "lost": lost} for key, sent, answered, lost in _by_key(db)
            }
    return report


def _by_key(db: sqlite3.Connection) -> sqlite3.Cursor:
    return db.execute(
        "SELECT a.key, count(*), sum(a.state = 'answered'), sum(a.state = 'lost') FROM attempts a"
        " JOIN batches b ON b.seq = a.batch WHERE b.in_progress_at IS NOT NULL GROUP BY a.key"
    )


def _totals(db: sqlite3.Connection) -> dict[str, int]:
    received = db.execute("SELECT count(*) FROM attempts").fetchone()[0]
    states = dict(
        db.execute(
            "SELECT a.state, count(*) FROM attempts a JOIN batches b ON b.seq = a.batch"
            " WHERE b.in_progress_at IS NOT NULL GROUP BY a.state"
        )
    )
    totals = {"requests_received": received, "requests_sent": sum(states.values())}
    for state in ("answered", "failed", "unanswered", "lost", "pending"):
        totals[state] = states.get(state, 0)
    distinct, once, often = db.execute(
        "SELECT count(*), coalesce(sum(answered = 1), 0), coalesce(sum(answered > 1), 0) FROM"
        " (SELECT sum(a.state = 'answered') AS answered FROM attempts a JOIN batches b ON b.seq = a.batch"
        " WHERE b.in_progress_at IS NOT NULL GROUP BY a.key)"
    ).fetchone()
    return {**totals, "distinct": distinct, "answered_once": once, "answered_more_than_once": often}


def _repeats(db: sqlite3.Connection) -> dict[str, int]:
    """Bodies that stood in more than one batch, and whether that was safe."""
    lives: dict[str, list[tuple[float, float, bool]]] = {}
    rows = db.execute(
        f"SELECT a.key, b.created_at, {_END}, max(a.state IN ('answered', 'lost')) FROM attempts a"
        " JOIN batches b ON b.seq = a.batch WHERE a.key IN"
        " (SELECT key FROM attempts GROUP BY key HAVING min(batch) < max(batch))"
        " GROUP BY a.key, b.seq ORDER BY b.created_at"
    )
    for key, begin, end, answered in rows:
        lives.setdefault(key, []).append((begin, end, bool(answered)))
    after_answer = overlapping = 0
    for spans in lives.values():
        answered_from = [end for _, end, answered in spans if answered]
        after_answer += sum(any(begin >= end for end in answered_from) for begin, _, _ in spans)
        latest = 0.0
        overlaps = False
        for (_, end, _), (begin, _, _) in pairwise(spans):
            latest = max(latest, end)
            overlaps = overlaps or begin < latest
        overlapping += overlaps
    return {"sent_after_answered": after_answer, "max_in_flight_twice": overlapping}


def _traffic(db: sqlite3.Connection) -> dict[str, Any]:
    return {
        "creates": db.execute("SELECT count(*) FROM batches").fetchone()[0],
        "uploads": db.execute("SELECT count(*) FROM files WHERE purpose = 'batch'").fetchone()[0],
        "batches": dict(db.execute("SELECT status, count(*) FROM batches GROUP BY status")),
        "calls": dict(db.execute("SELECT route, count FROM calls")),
    }
