"""One batch running: its requests in shuffled order through the executor, and its result files as they grow.

Progress lives in memory and in part files: a restarted server runs the batch again from its first row, in the same
order.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures import Executor as Pool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from batchctl.executors.base import Executor, Reply
from batchctl.gateway.dialects import Dialect
from batchctl.gateway.faults import Fault, Kind
from batchctl.gateway.lines import request_lines
from batchctl.gateway.state import Batch

EXPIRED = ("batch_expired", "This request could not be executed before the completion window expired.")
CANCELLED = ("batch_cancelled", "This request was not executed because the batch was cancelled.")
_STATES = ("pending", "answered", "failed", "unanswered", "lost")
"""What became of a row: not run yet, 2xx and delivered, another status, left out, 2xx and delivered in no file."""


@dataclass(slots=True)
class Tally:
    """What has come of the rows so far."""

    completed: int = 0
    failed: int = 0
    usage: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("input", "cached", "output", "reasoning"), 0))

    def add_usage(self, usage: Mapping[str, Any]) -> None:
        """Add one answer's `usage`, in the words of chat completions or of responses."""
        self.usage["input"] += usage.get("prompt_tokens") or usage.get("input_tokens") or 0
        self.usage["output"] += usage.get("completion_tokens") or usage.get("output_tokens") or 0
        read = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
        made = usage.get("completion_tokens_details") or usage.get("output_tokens_details") or {}
        self.usage["cached"] += read.get("cached_tokens") or 0
        self.usage["reasoning"] += made.get("reasoning_tokens") or 0


class RowFaults:
    """Which rows (by position) of a batch go wrong: drawn once, from the seed.

    A wire on which no batch can fail (Anthropic's) lets each of its rows fail instead.
    """

    def __init__(self, batch: Batch, total: int, rng: random.Random) -> None:
        self._chosen: dict[Kind, tuple[Fault, frozenset[int]]] = {}
        for kind in (Kind.ROW_STATUS, Kind.MISSING_ROWS, Kind.MALFORMED_LINES, Kind.DUPLICATE_ROWS):
            fault = batch.fault(kind)
            if fault is not None and total:
                count = min(total, max(1, round(fault.share * total)))
                self._chosen[kind] = (fault, frozenset(rng.sample(range(total), count)))
        failed = batch.fault(Kind.FAIL) if batch.is_messages else None
        if failed is not None:
            every = failed.model_copy(update={"kind": Kind.ROW_STATUS, "status": failed.status or 400})
            self._chosen[Kind.ROW_STATUS] = (every, frozenset(range(total)))

    def at(self, kind: Kind, position: int) -> Fault | None:
        """The fault, where it strikes the row at this position."""
        fault, rows = self._chosen.get(kind, (None, frozenset()))
        return fault if position in rows else None


class BatchRun:
    """Runs rows on request (`advance`), then writes down those that were left out (`leave`)."""

    def __init__(
        self,
        batch: Batch,
        source: Path,
        parts: Path,
        executor: Executor,
        pool: Pool | None,
        seed: int,
        dialect: Dialect,
    ) -> None:
        self._batch = batch
        self._dialect = dialect
        self._executor = executor
        self._pool = pool
        self._source = source
        self._numbers, self._offsets = array("L"), array("Q")
        with source.open("rb") as lines:
            for number, offset, _ in request_lines(lines):
                self._numbers.append(number)
                self._offsets.append(offset)
        rng = random.Random(f"{seed}/run/{batch.seq}")
        self._order = array("L", range(self.total))
        rng.shuffle(self._order)
        self._faults = RowFaults(batch, self.total, rng)
        self.output = parts / f"{batch.id}.output"
        self.errors = self.output if dialect.one_file else parts / f"{batch.id}.errors"
        self.output.write_bytes(b"")
        self.errors.write_bytes(b"")
        self._pending: dict[Future[Reply], tuple[int, str]] = {}
        self._started = 0
        self._held: dict[Path, list[bytes]] = {self.output: [], self.errors: []}
        self._states = bytearray(self.total)
        self.tally = Tally()

    @property
    def total(self) -> int:
        return len(self._offsets)

    @property
    def done(self) -> int:
        """Rows that have an answer."""
        return self._started - len(self._pending)

    def advance(self, upto: int, budget_s: float) -> None:
        """Run rows until `upto` of them are done, or for about `budget_s` wall seconds."""
        if self.done >= upto:
            return
        stop = time.monotonic() + budget_s
        with self._source.open("rb") as source:
            while self.done < upto and time.monotonic() < stop:
                if self._pool is None:
                    position, custom_id, body = self._next(source)
                    self._record(position, custom_id, self._run(body))
                else:
                    self._top_up(self._pool, source, upto)
                    self._harvest(max(0.0, stop - time.monotonic()))
        self._flush()

    def finish_running(self) -> None:
        """Wait for the rows that are in the executor's hands; start no others."""
        for future in [future for future in self._pending if future.cancel()]:
            position, _ = self._pending.pop(future)
            self._started -= 1
            self._order.remove(position)
            self._order.append(position)
        while self._pending:
            self._harvest(None)
        self._flush()

    def leave(self, code: str, message: str) -> None:
        """Write an error line for every row that was not run."""
        with self._source.open("rb") as source:
            while self._started < self.total:
                position, custom_id, _ = self._next(source)
                self._states[position] = _STATES.index("unanswered")
                self._write(self.errors, position, self._dialect.left_out(self._id(position), custom_id, code, message))
        self._flush()

    def attempts(self) -> Iterator[tuple[int, str]]:
        """(line number, state) of all rows, for the ledger."""
        return ((number, _STATES[state]) for number, state in zip(self._numbers, self._states, strict=True))

    def _next(self, source: BinaryIO) -> tuple[int, str, dict[str, Any]]:
        position = self._order[self._started]
        self._started += 1
        source.seek(self._offsets[position])
        request = orjson.loads(source.readline())
        return position, request["custom_id"], request["body"]

    def _run(self, body: Mapping[str, Any]) -> Reply:
        try:
            return self._dialect.answer(self._executor, body)
        except Exception as error:  # an executor must not raise; if it does, one row pays for it, not the batch
            message = f"{type(error).__name__}: {error}"
            return Reply(500, {"error": {"message": message, "type": "server_error", "param": None, "code": None}})

    def _top_up(self, pool: Pool, source: BinaryIO, upto: int) -> None:
        while len(self._pending) < 2 * self._executor.concurrency and self._started < upto:
            position, custom_id, body = self._next(source)
            self._pending[pool.submit(self._run, body)] = (position, custom_id)

    def _harvest(self, timeout: float | None) -> None:
        finished, _ = wait(self._pending, timeout=timeout, return_when=FIRST_COMPLETED)
        for future in finished:
            position, custom_id = self._pending.pop(future)
            self._record(position, custom_id, future.result())

    def _record(self, position: int, custom_id: str, reply: Reply) -> None:
        struck = self._faults.at(Kind.ROW_STATUS, position)
        status, body = (reply.status, reply.body) if struck is None else _failure(struck)
        answered = 200 <= status < 300
        if answered:
            self.tally.completed += 1
            self.tally.add_usage(body.get("usage") or {})
        else:
            self.tally.failed += 1
        self._states[position] = _STATES.index("answered" if answered else "failed")
        if self._faults.at(Kind.MISSING_ROWS, position):
            self._lose(position)
            return
        target = self.output if answered or (struck is not None and struck.in_output) else self.errors
        self._write(target, position, self._dialect.result(self._id(position), custom_id, Reply(status, body)))

    def _lose(self, position: int) -> None:
        """Note that a row's answer stands readable in neither file."""
        if self._states[position] == _STATES.index("answered"):
            self._states[position] = _STATES.index("lost")

    def _id(self, position: int) -> str:
        return f"{self._batch.id.rpartition('_')[2]}{self._numbers[position]:08x}"

    def _write(self, target: Path, position: int, fields: dict[str, Any]) -> None:
        line = orjson.dumps(fields) + b"\n"
        held = self._held[target]
        malformed = self._faults.at(Kind.MALFORMED_LINES, position)
        if malformed is not None:
            held.append(_malformed(malformed.form, position, fields))
            if not malformed.extra:
                self._lose(position)
                return
        held.append(line)
        if self._faults.at(Kind.DUPLICATE_ROWS, position):
            held.append(line)

    def _flush(self) -> None:
        for path, lines in self._held.items():
            if lines:
                with path.open("ab") as part:
                    part.writelines(lines)
                lines.clear()


def _failure(fault: Fault) -> tuple[int, dict[str, Any]]:
    """The answer that a `row_status` fault puts in place of the executor's."""
    status = 500 if fault.status is None else fault.status
    if status == 0:  # seen inside completed batches (PROVIDERS.md 2.5)
        return 0, {}
    kind = "server_error" if status >= 500 else "requests" if status == 429 else "invalid_request_error"
    message = fault.message or f"The rehearsal's schedule of faults answers this row with {status}."
    return status, {"error": {"message": message, "type": kind, "param": fault.param, "code": fault.code}}


def _malformed(form: str, position: int, fields: dict[str, Any]) -> bytes:
    """A line that no row can be read from."""
    if form == "mixed":
        form = ("bad_json", "bad_utf8", "no_custom_id", "not_object")[position % 4]
    if form == "bad_json":
        return orjson.dumps(fields)[:-20] + b"\n"
    if form == "bad_utf8":
        return orjson.dumps(fields)[:-1] + b',"note":"\xff"}\n'
    if form == "no_custom_id":
        return orjson.dumps({name: value for name, value in fields.items() if name != "custom_id"}) + b"\n"
    return b"[]\n"
