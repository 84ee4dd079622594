"""A provider's side of things, modelled: files, batches on their own timelines, what becomes of each row.

Nothing here knows the client. A batch's whole life is drawn when it is created, from the seed and its number alone, so
that looking at it changes nothing.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from batchctl.clock import Clock
from batchctl_adapters.base import BatchError, Counts, Phase, RemoteBatch
from tests.simulation.faults import HOUR, MINUTE, Faults

FOREVER = float("inf")

Result = tuple[str, str | None, str | None, str | None]
RESULTS: Mapping[str, Result] = {  # kind -> outcome, finish reason, error code, error
    "ok": ("succeeded", "stop", None, None),
    "invalid": ("succeeded", "stop", None, None),  # an answer, but not what was asked for
    "truncated": ("truncated", "length", None, None),
    "filtered": ("filtered", "content_filter", None, None),
    "refused": ("refused", "stop", None, None),
    "empty": ("empty", "stop", None, None),
    "bad_request": ("errored", None, "invalid_request_error", "400: no such parameter"),
    "rate_limited": ("errored_transient", None, "rate_limit_exceeded", "429: slow down"),
    "server_error": ("errored_transient", None, "server_error", "500: try again"),
    "expired": ("expired", None, "batch_expired", "not executed before the window ended"),
    "canceled": ("canceled", None, "batch_cancelled", "not executed because the batch was canceled"),
}
AUTOMATIC = frozenset({"rate_limited", "server_error", "expired", "canceled", "unrun"})
"""Kinds after which the row may go out again without being asked for."""

Fate = Literal["runs", "queue_full", "rejected", "bad_file"]
BadFetch = Literal["cut", "torn", "short", "gone"]


@dataclass(slots=True)
class File:
    """An uploaded file; `lines` as they came."""

    file_id: str
    name: str
    lines: tuple[bytes, ...]
    created_at: float
    deleted: bool = False


@dataclass(slots=True)
class Row:
    """One request in one batch: what becomes of it, and when it is done."""

    custom_id: str
    text: str
    kind: str
    done_at: float
    line: Literal["whole", "mangled", "lost"] = "whole"  # in the result file; a lost one is in neither


@dataclass(slots=True)
class Batch:
    """One batch as the provider has it. Times are of the simulated clock, `inf` for never."""

    remote_id: str
    tag: str
    upload_id: str
    rows: list[Row]
    created_at: float
    visible_at: float  # in lists
    starts_at: float
    expires_at: float
    fate: Fate = "runs"
    errors: tuple[BatchError, ...] = ()
    hidden_counts: bool = False  # null where it failed
    cancel_at: float = FOREVER
    cancel_takes_s: float = 10 * MINUTE
    unrun: bool = False  # expires before its first row
    unknown: tuple[float, float] = (FOREVER, FOREVER)
    not_found_at: float = FOREVER
    not_found_looks: float = 0  # how many more times it answers 404 from then on
    file_delays: tuple[float, float] = (0.0, 0.0)  # output, errors
    counts: Literal["honest", "none", "high", "low", "reset"] = "honest"
    bad_fetches: dict[str, list[BadFetch]] = field(default_factory=lambda: {"output": [], "error": []})
    gone_files: tuple[str, ...] = ()
    noise: list[bytes] = field(default_factory=list)  # lines that name no row, for the output file
    told_at: float = FOREVER  # when the client first heard of it
    duplicated: frozenset[str] = frozenset()

    @property
    def done_at(self) -> float:
        """When the last row would be done, were there no window."""
        return FOREVER if self.unrun else max(row.done_at for row in self.rows)

    @property
    def ended_at(self) -> float:
        """When it is or will be terminal."""
        if self.fate != "runs":
            return self.starts_at
        natural = min(self.done_at + MINUTE, self.expires_at)
        return natural if natural <= self.cancel_at else min(self.cancel_at + self.cancel_takes_s, natural)

    def ended(self, now: float) -> bool:
        """Terminal: nothing more is answered, whatever the client knows."""
        return now >= self.ended_at

    def status(self, now: float) -> tuple[str, Phase]:
        """The raw status and the phase."""
        if self.unknown[0] <= now < self.unknown[1]:
            return "pre_schedule", Phase.UNKNOWN
        if now >= self.ended_at:
            return self._last_status(), Phase.ENDED
        if now >= self.cancel_at:
            return "cancelling", Phase.ENDING
        if now < self.starts_at:
            return "validating", Phase.WAITING
        return ("in_progress", Phase.RUNNING) if now < self.done_at else ("finalizing", Phase.ENDING)

    def _last_status(self) -> str:
        if self.fate != "runs":
            return "failed"
        if self.cancel_at < self.ended_at:
            return "cancelled"
        return "completed" if self.done_at < self.expires_at else "expired"

    def kind_of(self, row: Row, now: float) -> str | None:
        """What became of the row; None while it may still be answered."""
        if self.fate != "runs" and self.ended(now):
            return "unrun"
        if row.done_at <= min(now, self.ended_at) and not self.unrun:
            return row.kind
        if not self.ended(now):
            return None
        return "canceled" if self._last_status() == "cancelled" else "expired"

    def lines(self, which: str) -> list[bytes]:
        """The lines of one result file, once it has ended; none where the file would not exist."""
        if self.fate != "runs":
            return []
        found = []
        for row in self.rows:
            kind = self.kind_of(row, self.ended_at)
            if kind is None or kind == "unrun":
                continue
            outcome, finish, code, error = RESULTS[kind]
            if (code is None) is not (which == "output"):
                continue
            if row.line == "lost":
                continue
            text = answer(row.text, kind)
            said = {
                "id": row.custom_id,
                "outcome": outcome,
                "text": text,
                "finish": finish,
                "code": code,
                "error": error,
            }
            line = json.dumps(said).encode()
            if row.line == "mangled":
                line = line[:20]
            found += [line] * (2 if row.custom_id in self.duplicated else 1)
        if found and which == "output":
            found += self.noise
        Random(f"{self.remote_id}/{which}").shuffle(found)
        return found

    def files(self, now: float) -> tuple[str, ...]:
        """Handles of the result files that are named at the moment."""
        names = ("output", "error")
        return tuple(
            f"{self.remote_id}/{name}"
            for name, delay in zip(names, self.file_delays, strict=True)
            if now >= self.ended_at + delay and self.lines(name)
        )

    def counted(self, now: float) -> Counts | None:
        """The counts as the provider tells them, which need not be the truth."""
        if self.counts == "none" or (self.fate != "runs" and self.hidden_counts):
            return None
        if self.fate != "runs":
            return Counts(0, 0, 0)
        kinds = [self.kind_of(row, now) for row in self.rows]
        done = sum(kind is not None and RESULTS[kind][2] is None for kind in kinds)
        failed = sum(kind in ("bad_request", "rate_limited", "server_error") for kind in kinds)
        if self.counts == "reset" and now >= self.cancel_at:
            return Counts(len(self.rows), 0, 0)
        if self.counts == "high":
            return Counts(len(self.rows), len(self.rows), 2)
        return Counts(len(self.rows), 0 if self.counts == "low" else done, failed)


def answer(text: str, kind: str) -> str | None:
    """The model's words for a row: they carry its text, so that an answer on the wrong row shows."""
    if kind == "ok":
        return json.dumps({"echo": text, "label": "yes" if len(text) % 2 else "no"})
    if kind == "invalid":
        return json.dumps({"echo": text, "label": "perhaps"})
    return json.dumps({"echo": text})[:9] if kind == "truncated" else None


@dataclass(slots=True)
class Plan:
    """What a test wants of the next batch: fields of `Batch`; rows' kinds, seconds until done and losses by text."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    done_after: Mapping[str, float] = field(default_factory=dict)
    visible_after: float | None = None
    lost: Sequence[str] = ()


class Remote:
    """The provider. It outlives every client; `on_create` hears of each batch before it counts as created, `on_delete`
    of each file, uploaded or of results, before it is deleted."""

    def __init__(
        self, clock: Clock, seed: object, faults: Faults, *, window_s: float, run_s: float = 10 * MINUTE
    ) -> None:
        self.clock, self.seed, self.faults = clock, seed, faults
        self.window_s, self.run_s = window_s, run_s
        self.files: dict[str, File] = {}
        self.batches: dict[str, Batch] = {}
        self.by_text: dict[str, list[Batch]] = defaultdict(list)
        self.plans: list[Plan] = []
        self.on_create: Callable[[Batch], None] = lambda batch: None
        self.on_delete: Callable[[str], None] = lambda handle: None
        self.deleted: set[str] = set()  # handles of result files
        self.sent: dict[str, int] = defaultdict(int)  # text -> how often it was in a batch that ran or may run

    def store(self, name: str, lines: Sequence[bytes]) -> File:
        """A file is uploaded."""
        file = File(f"file-{len(self.files) + 1}", name, tuple(lines), self.clock.now())
        self.files[file.file_id] = file
        return file

    def create(self, file: File, tag: str) -> Batch:
        """A batch is created of a file that is there."""
        now = self.clock.now()
        number = len(self.batches) + 1
        random = Random(f"{self.seed}/{number}")
        plan = self.plans.pop(0) if self.plans else Plan()
        starts = now + random.uniform(20, 120)
        rows = [_row(line, random, starts, self.run_s) for line in file.lines]
        batch = Batch(f"batch-{number}", tag, file.file_id, rows, now, now, starts, now + self.window_s)
        self._trouble(batch, random)
        if self._enqueued() + len(rows) > (self.faults.queue_room or FOREVER) and batch.fate == "runs":
            batch.fate = "queue_full"
        _apply(batch, plan)
        self.on_create(batch)
        self.batches[batch.remote_id] = batch
        for row in batch.rows:
            self.by_text[row.text].append(batch)
            self.sent[row.text] += batch.fate == "runs"
        return batch

    def delete(self, handle: str) -> None:
        """A file is deleted, uploaded or of results; one that is not there is passed over."""
        self.on_delete(handle)
        if file := self.files.get(handle):
            file.deleted = True
        elif handle.partition("/")[0] in self.batches:
            self.deleted.add(handle)

    def _enqueued(self) -> int:
        now = self.clock.now()
        return sum(len(batch.rows) for batch in self.batches.values() if not batch.ended(now) and batch.fate == "runs")

    def _trouble(self, batch: Batch, random: Random) -> None:
        """What goes wrong with this batch; drawn whether or not it is used, so that runs stay comparable."""
        f, now = self.faults, batch.created_at
        if now >= f.heal_at:
            return

        def chance(name: str) -> bool:
            return random.random() < float(getattr(f, name))

        self._row_trouble(batch, random)
        self._file_trouble(batch, random)
        batch.hidden_counts = random.random() < 0.5
        batch.cancel_takes_s = random.uniform(0, 25 * MINUTE)
        if chance("lags"):
            batch.visible_at = now + random.uniform(0, 14 * MINUTE)
        if chance("lags_beyond"):
            batch.visible_at = now + random.uniform(25 * MINUTE, 10 * HOUR)
        if chance("rejected_line"):
            line = random.randint(1, len(batch.rows))
            batch.fate, batch.errors = "rejected", (BatchError("invalid_request", "line refused", line),)
        if chance("rejected_whole"):
            batch.fate, batch.errors = "rejected", (BatchError("model_not_found", "no such model"),)
        if chance("expires"):
            batch.expires_at = batch.starts_at + random.random() * self.run_s
        if chance("unknown_status"):
            begin = now + random.uniform(0, 20 * MINUTE)
            batch.unknown = (begin, begin + random.uniform(MINUTE, HOUR))
        if chance("not_found"):
            batch.not_found_at, batch.not_found_looks = now + random.uniform(0, HOUR), random.randint(1, 2)
        if chance("not_found_ever"):
            batch.not_found_at, batch.not_found_looks = now + random.uniform(0, HOUR), FOREVER

    def _row_trouble(self, batch: Batch, random: Random) -> None:
        f = self.faults
        kinds, weights = ["ok", *f.rows], [1.0, *f.rows.values()]
        for row in batch.rows:
            row.kind = random.choices(kinds, weights)[0]
            row.line = (
                "mangled" if random.random() < f.mangled else "lost" if random.random() < f.in_neither else "whole"
            )
        batch.duplicated = frozenset(row.custom_id for row in batch.rows if random.random() < f.duplicated)
        if random.random() < f.stray:
            batch.noise = [
                b"not json",
                b"[]",
                b"{}",
                b'{"id":"other1-1-1-00000000000000000000000001"}',
                b'{"id":"\xff"}',
            ]

    def _file_trouble(self, batch: Batch, random: Random) -> None:
        f = self.faults
        if random.random() < f.false_counts:
            batch.counts = random.choice(["none", "high", "low", "reset"])
        if random.random() < f.late_files:
            batch.file_delays = (random.choice([0.0, 15 * MINUTE]), random.choice([0.0, 10 * MINUTE]))
        if random.random() < f.expires_unrun:
            batch.unrun = True
            batch.file_delays = random.choice([(0.0, 0.0), (FOREVER, FOREVER)])
        for name in ("output", "error"):
            if random.random() < f.bad_file:
                # a file that ends early at a line end shows only where the counts are true and no line is there twice
                plain = batch.counts == "honest" and not batch.duplicated and not batch.noise
                kinds: list[BadFetch] = ["cut", "torn", "gone"]
                if plain:
                    kinds.append("short")
                batch.bad_fetches[name] = [random.choice(kinds)]
            if random.random() < f.file_gone:
                batch.gone_files += (name,)

    def view(self, batch: Batch) -> RemoteBatch:
        """The batch as it is told to clients at the moment."""
        now = self.clock.now()
        raw, phase = batch.status(now)
        ended = phase is Phase.ENDED
        resend: Literal["queue_full", "file"] | None = None
        errors = batch.errors if ended else ()
        if ended and batch.fate in ("queue_full", "bad_file"):
            resend = "queue_full" if batch.fate == "queue_full" else "file"
            errors = (
                BatchError(resend, f"the {'queue is full' if resend == 'queue_full' else 'file cannot be read'}"),
            )
        return RemoteBatch(
            remote_id=batch.remote_id,
            raw_status=raw,
            phase=phase,
            created_at=batch.created_at,
            expires_at=batch.expires_at,
            ended_at=batch.ended_at if ended else None,
            counts=batch.counted(now),
            files=batch.files(now) if ended else (),
            errors=errors,
            resend=resend,
            tag=None if self.faults.no_tags else batch.tag,
            upload_id=batch.upload_id,
        )

    def listed(self) -> list[Batch]:
        """What lists show, newest first."""
        now = self.clock.now()
        lost = [b.remote_id for b in self.batches.values() if b.not_found_looks == FOREVER and b.not_found_at <= now]
        found = [batch for batch in self.batches.values() if batch.visible_at <= now and batch.remote_id not in lost]
        return found[::-1]


def _row(line: bytes, random: Random, starts: float, run_s: float) -> Row:
    sent = json.loads(line)
    return Row(sent["id"], sent["body"]["text"], "ok", starts + random.random() * run_s)


def _apply(batch: Batch, plan: Plan) -> None:
    for name, value in plan.fields.items():
        setattr(batch, name, value)
    for row in batch.rows:
        row.kind = plan.kinds.get(row.text, row.kind)
        if row.text in plan.done_after:
            row.done_at = batch.created_at + plan.done_after[row.text]
        if row.text in plan.lost:
            row.line = "lost"
    if plan.visible_after is not None:
        batch.visible_at = batch.created_at + plan.visible_after
