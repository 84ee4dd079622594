"""What must hold whatever went wrong. Each check returns what is violated, in words; an empty list is good."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby
from typing import Any

from batchctl_store.records import BATCH_MOVES, CLOSED, BatchState, Job
from tests.simulation.remote import AUTOMATIC, FOREVER, RESULTS, Batch, Row
from tests.simulation.world import World

FINAL = ("succeeded", "failed", "canceled")


def may_be_sent(world: World, batch: Batch) -> Iterator[str]:
    """Promise 2: no row goes out while an earlier batch may still answer it, nor where one has answered it."""
    texts = [row.text for row in batch.rows]
    for text in sorted({text for text in texts if texts.count(text) > 1}):
        yield f"{text!r} is more than once in {batch.remote_id}"
    for row in batch.rows:
        for earlier in world.remote.by_text[row.text]:
            before = next(r for r in earlier.rows if r.text == row.text)
            kind = earlier.kind_of(before, batch.created_at)
            if kind in AUTOMATIC or is_waste(world, earlier, batch):
                continue
            if world.retried.get(row.text, 0.0) > earlier.created_at:
                continue  # the user asked for it
            what = "may still answer" if kind is None else f"answered ({kind})"
            yield f"{row.text!r} is sent in {batch.remote_id} although {earlier.remote_id} {what}"


def is_waste(world: World, earlier: Batch, later: Batch) -> bool:
    """The stated exception: a batch that came into view only after it had been proved absent, as long as that takes.

    One that the provider lost for ever before it was ever seen never does.
    """
    hidden = earlier.visible_at - earlier.created_at > world.profile.proof_span_s or earlier.not_found_looks == FOREVER
    waited = later.created_at - earlier.created_at >= world.profile.proof_span_s
    return hidden and waited and earlier.told_at > later.created_at


def may_be_deleted(world: World, handle: str) -> Iterator[str]:
    """A file goes once its job is merged and no try of its batch may answer or turn up, or as a fence, or unsent."""
    file = world.remote.files.get(handle)
    tag = world.remote.batches[handle.partition("/")[0]].tag if file is None else file.name
    batch = world.store.batches.get(int(tag.split("-")[1]))
    if file is not None and batch.state not in CLOSED - {BatchState.CANCELED}:
        return  # a fence, an orphan, or dropped with a batch that was never sent
    if file is not None and batch.state is BatchState.CANCELED and not batch.submissions:
        return
    job, now = world.store.jobs.get(batch.job_id), world.clock.now()
    if job.merged_at is None:
        yield f"{handle} is deleted although {job.name} is not merged"
    if batch.open_submission or batch.live or any(s.watched(now) for s in batch.submissions):
        yield f"{handle} is deleted although a try of batch {batch.id} may still answer or turn up"


def cheap(world: World) -> list[str]:
    """Checked after every pass, from the database alone."""
    found = list(world.violations)
    with closing(_open(world)) as db:
        found += _tallies(db)
        found += _submissions(db)
        found += _holders(db)
        found += _followers(db)
    return found


def thorough(world: World) -> list[str]:
    """Checked when a run is over."""
    found = cheap(world)
    with closing(_open(world)) as db:
        found += _replay(db)
        found += _attempts(world, db)
        found += _known(world, db)
        found += _waste_is_told(world, db)
        found += _cleaned(world, db)
    for job in world.store.jobs.all():
        found += _finished(world, job)
    return found


def _open(world: World) -> sqlite3.Connection:
    db = sqlite3.connect(f"file:{world.folder / 'store.db'}?mode=ro", uri=True)
    db.row_factory = sqlite3.Row
    return db


def _tallies(db: sqlite3.Connection) -> Iterator[str]:
    rows = db.execute(
        "SELECT job_id, batch_id, outcome, count(*) AS n FROM request"
        " WHERE state IN ('succeeded', 'failed', 'canceled') GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    ).fetchall()
    tallies = db.execute(
        "SELECT job_id, batch_id, outcome, sum(count) AS n FROM tally GROUP BY 1, 2, 3 HAVING n <> 0 ORDER BY 1, 2, 3"
    ).fetchall()
    if [tuple(row) for row in rows] != [tuple(row) for row in tallies]:
        yield f"tallies {[tuple(t) for t in tallies]} are not the rows {[tuple(r) for r in rows]}"


def _submissions(db: sqlite3.Connection) -> Iterator[str]:
    for row in db.execute(
        "SELECT b.id, b.state, count(s.id) AS n FROM batch b LEFT JOIN submission s ON s.batch_id = b.id AND"
        " s.state = 'open' GROUP BY b.id"
    ):
        expected = row["state"] in ("submitting", "in_doubt")
        if row["n"] != expected:
            yield f"batch {row['id']} is {row['state']} with {row['n']} open submissions"


def _holders(db: sqlite3.Connection) -> Iterator[str]:
    """A row has a batch exactly while it is assigned, and an open batch has as many rows as it says."""
    for row in db.execute(
        "SELECT b.id, b.state, b.requests, count(r.row) AS n FROM batch b LEFT JOIN request r ON r.job_id = b.job_id"
        " AND r.batch_id = b.id AND r.state = 'assigned' GROUP BY b.id"
    ):
        is_open = row["state"] not in ("collected", "rejected", "canceled", "gone")
        if row["n"] != (row["requests"] if is_open else 0):
            yield f"batch {row['id']} is {row['state']} and holds {row['n']} of {row['requests']} rows"
    count = db.execute(
        "SELECT count(*) FROM request WHERE (state IN ('pending', 'following')) <> (batch_id IS NULL)"
    ).fetchone()[0]
    if count:
        yield f"{count} rows are pending in a batch, or neither"


def _followers(db: sqlite3.Connection) -> Iterator[str]:
    """A row that asks the same as another stands as that one does, and was never sent itself."""
    for row in db.execute(
        "SELECT r.job_id, r.row, r.state, r.attempts, l.state AS leads FROM request r LEFT JOIN request l"
        " ON l.job_id = r.source_job AND l.row = r.source_row WHERE r.source_job = r.job_id"
    ):
        expected = "following" if row["leads"] in ("pending", "assigned") else row["leads"]
        if (row["state"], row["attempts"]) != (expected, 0):
            yield f"row {row['row']} of job {row['job_id']} is {row['state']}, the one it follows is {row['leads']}"
    for row in db.execute(
        "SELECT id, following, (SELECT count(*) FROM request r WHERE r.job_id = j.id AND r.state = 'following') AS n"
        " FROM job j"
    ):
        if row["following"] != row["n"]:
            yield f"job {row['id']} counts {row['following']} rows that follow another, there are {row['n']}"


def _replay(db: sqlite3.Connection) -> Iterator[str]:
    """The event log leads each batch along legal moves to where it is."""
    states = dict(db.execute("SELECT id, state FROM batch").fetchall())
    events = db.execute("SELECT batch_id, source, target FROM event WHERE target IS NOT NULL ORDER BY batch_id, id")
    seen = dict.fromkeys(states, "planned")
    for batch_id, moves in groupby(events, key=lambda event: event["batch_id"]):
        for move in moves:
            pair = (BatchState(move["source"]), BatchState(move["target"]))
            if move["source"] != seen[batch_id] or pair not in BATCH_MOVES:
                yield f"batch {batch_id} was {seen[batch_id]} and moved {' -> '.join(pair)}"
            seen[batch_id] = move["target"]
    if seen != states:
        yield f"the events lead to {seen}, the batches are {states}"


def _attempts(world: World, db: sqlite3.Connection) -> Iterator[str]:
    for row in db.execute(
        "SELECT j.id, j.max_attempts, max(r.attempts) AS most FROM job j"
        " JOIN request r ON r.job_id = j.id GROUP BY j.id"
    ):
        allowed = row["max_attempts"] + world.retries.get(row["id"], 0)
        if row["most"] > allowed:
            yield f"job {row['id']} made {row['most']} attempts at a row of {allowed}"


def _known(world: World, db: sqlite3.Connection) -> Iterator[str]:
    """Every batch is in the store, or out of sight with its tag watched for; a file says by its name whose it is."""
    submissions = {row["tag"]: row for row in db.execute("SELECT * FROM submission")}
    batches = {row["id"] for row in db.execute("SELECT id FROM batch")}
    now = world.clock.now()
    for batch in world.remote.batches.values():
        known = submissions.get(batch.tag)
        if batch.told_at == FOREVER and (batch.not_found_looks == FOREVER or world.faults.no_tags):
            continue  # lost by the provider before it was ever seen, or not to be known again after its file is deleted
        if known is None:
            yield f"{batch.remote_id} has the tag {batch.tag}, which the store does not know"
        elif known["remote_id"] is None:
            watched = (known["watch_until"] or 0) > now or known["state"] == "open"
            if batch.visible_at <= now and not watched and batch.visible_at < (known["watch_until"] or 0):
                yield f"{batch.remote_id} ({batch.tag}) is in lists since {batch.visible_at}, and unknown to the store"
        elif known["remote_id"] != batch.remote_id:
            yield f"{batch.tag} is {batch.remote_id} at the provider and {known['remote_id']} in the store"
    for file in world.remote.files.values():
        store_id, batch_id, _ = file.name.split("-")
        if store_id != world.store.store_id or int(batch_id) not in batches:
            yield f"the file {file.file_id} is called {file.name}: nobody could tell whose it is"


def _waste_is_told(world: World, db: sqlite3.Connection) -> Iterator[str]:
    texts = [row[0] for row in db.execute("SELECT text FROM event")]
    for batch in world.remote.batches.values():
        others = [b for row in batch.rows for b in world.remote.by_text[row.text] if b.created_at > batch.created_at]
        wasted = batch.told_at != FOREVER and any(
            is_waste(world, batch, other) and other.fate == "runs" for other in others
        )
        known = db.execute("SELECT remote_id FROM submission WHERE tag = ?", (batch.tag,)).fetchone()
        if wasted and known and known[0] and not any(batch.remote_id in text or batch.tag in text for text in texts):
            yield f"{batch.remote_id} was paid for twice and no event says so"


def _cleaned(world: World, db: sqlite3.Connection) -> Iterator[str]:
    """Nothing of a merged job is left at the provider, but where a row is missing, or deleting failed at the end."""
    if world.retention.keep_remote_files or any(spell.kind == "rotated" for spell in world.faults.spells):
        return  # a key that sees no file takes it for deleted
    now = world.clock.now()
    for row in db.execute(
        "SELECT b.id, b.cleaned_at, b.clean_at FROM batch b JOIN job j ON j.id = b.job_id WHERE j.merged_at IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM tally t WHERE t.batch_id = b.id AND t.outcome IN ('missing', 'gone'))"
        " AND NOT EXISTS (SELECT 1 FROM event e WHERE e.batch_id = b.id AND e.text LIKE '%left to their expiry%')"
    ):
        batch = world.store.batches.get(row["id"])
        awaited = batch.live or any(s.watched(now) for s in batch.submissions)
        if awaited or row["clean_at"] is not None:
            continue
        if row["cleaned_at"] is None:
            waiting = db.execute("SELECT 1 FROM batch WHERE clean_at > ?", (now,)).fetchone()
            if not waiting and not any(account.paused_at for account in world.store.batches.accounts().values()):
                yield f"batch {batch.id} is not cleaned up behind"
            continue
        results = {file for s in batch.submissions for file in s.files} - world.remote.deleted
        names = {f.name: f.file_id for f in world.remote.files.values() if not f.deleted}
        uploads = {file for name, file in names.items() if name.startswith(f"{world.store.store_id}-{batch.id}-")}
        for handle in results | uploads:
            yield f"{handle} of batch {batch.id} is still at the provider"


def _finished(world: World, job: Job) -> Iterator[str]:
    if job.open:
        reasons = _reasons(world, job)
        if not reasons:
            yield f"{job.name} is not finished and nothing says why"
        return
    output = world.output(job)
    texts = world.texts[job.id]
    if [row["text"] for row in output] != texts or [row["n"] for row in output] != [
        f"{n:03d}" for n in range(len(texts))
    ]:
        yield f"{job.name}: the output's rows are not the input's"
        return
    first: dict[str, dict[str, Any]] = {}
    for row in output:
        yield from _right(world, job, row)
        leader = first.setdefault(row["text"], row)
        if leader is not row:
            told = [[one[key] for key in ("outcome", "echo", "error", "finish_reason")] for one in (leader, row)]
            spent = (row["attempts"], row["input_tokens"] or 0, row["output_tokens"] or 0, row["batch"])
            if told[0] != told[1] or spent != (0, 0, 0, None):
                yield f"{job.name}: {row['text']!r} is {told[1]} at a cost of {spent}, its first row is {told[0]}"


def _reasons(world: World, job: Job) -> list[str]:
    """Why a job is not finished: only a batch in doubt that nothing can decide, or one that may be gone, counts."""
    return [
        batch.note for batch in world.store.batches.load(job_id=job.id) if batch.note and "cannot tell" in batch.note
    ]


def _right(world: World, job: Job, row: dict[str, Any]) -> Iterator[str]:
    text, outcome = row["text"], row["outcome"]
    if outcome == "succeeded":
        if row["echo"] != text or row["label"] not in ("yes", "no"):
            yield f"{job.name}: {text!r} has the answer {row['echo']!r}"
        return
    if row["echo"] is not None or row["label"] is not None:
        yield f"{job.name}: {text!r} is {outcome} and has an answer"
    for batch in world.remote.by_text[text]:
        known = world.store.batches.get(int(batch.tag.split("-")[1]))
        if known.job_id != job.id:
            continue
        sent = next(r for r in batch.rows if r.text == text)
        late = batch.told_at - batch.created_at > world.profile.proof_span_s
        if late and outcome not in ("missing", "gone"):
            continue  # the first answer stays
        kind = _delivered(world, batch, sent)
        if late and kind != "ok":
            continue  # only an answer is worth taking late
        own = f"b{known.ordinal}" == row["batch"]
        if kind == "ok" or (kind and own and outcome == "missing"):
            yield f"{job.name}: {text!r} is {outcome} although {batch.remote_id} has its result ({kind})"


def _delivered(world: World, batch: Batch, row: Row) -> str | None:
    """What the batch says of the row in a file that nothing but the client's own doing could have lost."""
    kind = batch.kind_of(row, world.clock.now())
    if kind in (None, "unrun") or batch.told_at == FOREVER or row.line != "whole":
        return None
    which = ("output", "error").index("error" if RESULTS[kind][2] else "output")
    if batch.not_found_looks == FOREVER or batch.file_delays[which] == FOREVER:
        return None
    return None if ("output", "error")[which] in batch.gone_files else kind
