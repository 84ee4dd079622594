"""The background thread that moves batches along, on the server's clock.

validating -> failed | in_progress -> finalizing -> completed, or expired; cancelling -> cancelled. One of Anthropic's
begins in_progress: its rows are checked as they run. Where rows have a
modelled duration, what is done by a moment follows from that moment alone and not from how fast this machine is.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from batchctl.executors.base import Executor
from batchctl.gateway.clock import ServerClock
from batchctl.gateway.dialects import dialect_of
from batchctl.gateway.faults import Kind
from batchctl.gateway.lines import Report, batch_error, validate
from batchctl.gateway.options import OPENAI_LIMITS, ServeOptions, Timing
from batchctl.gateway.run import CANCELLED, EXPIRED, BatchRun
from batchctl.gateway.state import FILE_LIFE, Batch, State

_STEP_S: Final = 0.05  # wall seconds that one batch may take before the next one has its turn
_PROGRESS_S: Final = 0.02  # wall seconds between two looks at a batch that is running
_IDLE_S: Final = 1.0  # the longest sleep: the clock is saved this often
_MIN_S: Final = 0.001

_log = logging.getLogger(__name__)


class Runner(threading.Thread):
    """Owns every move of a batch but create and cancel. `wake` after each of those."""

    def __init__(
        self,
        state: State,
        clock: ServerClock,
        executor: Executor,
        options: ServeOptions,
        save: Callable[[], None],
    ) -> None:
        super().__init__(name="batches", daemon=True)
        self._state, self._clock, self._executor, self._options = state, clock, executor, options
        self._save = save
        self._pool = ThreadPoolExecutor(executor.concurrency, "executor") if executor.concurrency > 1 else None
        self._reports: dict[str, Report] = {}
        self._runs: dict[str, BatchRun] = {}
        self._changed = threading.Condition()
        self._asked = 0  # looks asked for
        self._calm = 0  # the last of them after which nothing was due
        self._stopping = False

    def wake(self) -> None:
        """Something changed: look again now."""
        with self._changed:
            self._asked += 1
            self._changed.notify_all()

    def settle(self, timeout_s: float = 30.0) -> bool:
        """Wait until everything that is due now is done; False where that takes longer than `timeout_s` (wall)."""
        with self._changed:
            self._asked += 1
            mine = self._asked
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._calm >= mine, timeout=timeout_s)

    def stop(self) -> None:
        """Finish the step in hand and end."""
        self._stopping = True
        self.wake()
        if self.is_alive():
            self.join()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(self) -> None:
        while not self._stopping:
            asked = self._asked
            try:
                pause = self._pass()
            except Exception:
                _log.exception("a batch could not be moved; trying again")
                pause = _IDLE_S
            self._save()
            with self._changed:
                if pause > _MIN_S:
                    self._calm = asked
                    self._changed.notify_all()
                if self._asked == asked:
                    self._changed.wait(pause)

    def _pass(self) -> float:
        """Move every open batch; returns the wall seconds until the next one is due.

        All of a pass happens at one moment, so that batches pass validation in the order of their creation even
        where the clock jumps.
        """
        now = self._clock.now()
        following = math.inf
        for batch in self._state.open_batches():
            if self._stopping:
                break
            following = min(following, self._moves[batch.status](self, batch, now))
        pause = self._clock.wall(max(0.0, following - self._clock.now()))
        return min(max(pause, _MIN_S), _IDLE_S)

    def _timing(self, batch: Batch) -> Timing:
        plain = self._options.timing
        if not plain.jitter:
            return plain
        rng = random.Random(f"{self._options.seed}/timing/{batch.seq}")

        def vary(seconds: float) -> float:
            return seconds * (1 + plain.jitter * rng.uniform(-1, 1))

        return Timing(
            validation_s=vary(plain.validation_s),
            queue_s=vary(plain.queue_s),
            row_s=vary(plain.row_s),
            finalizing_s=vary(plain.finalizing_s),
            cancelling_s=vary(plain.cancelling_s),
        )

    # Each move below returns the moment of the batch's next one; `now` where there is more to do at once.

    # validating

    def _validating(self, batch: Batch, now: float) -> float:
        report = self._reports.get(batch.id)
        if report is None:
            report = self._reports[batch.id] = self._validate(batch, now)
            self._state.add_attempts(batch.seq, report.keys)
            report.keys = []  # many batches may wait here, each with tens of thousands of rows
        due = batch.created_at + self._timing(batch).validation_s
        if now < due:
            return due
        error = report.error or self._refusal(batch, report, due)
        del self._reports[batch.id]
        if error is not None:
            self._state.update_batch(
                batch.id, expect=["validating"], status="failed", failed_at=due, errors=[error], model=report.model
            )
            self._state.drop_bytes(batch.input_file_id)
        else:
            self._state.update_batch(
                batch.id,
                expect=["validating"],
                status="in_progress",
                in_progress_at=due,
                model=report.model,
                total=report.total,
                tokens=report.tokens,
            )
        return now

    def _validate(self, batch: Batch, now: float) -> Report:
        stored = self._state.file(batch.input_file_id, batch.project, now)
        if stored is None or stored.purpose != "batch":
            return Report(error=_bad_file(batch))
        return validate(
            self._state.path_of(stored.id),
            batch.endpoint,
            models=self._options.models,
            max_requests=self._options.limits(OPENAI_LIMITS).max_requests,
            ledger_field=self._options.ledger_field,
        )

    def _refusal(self, batch: Batch, report: Report, now: float) -> dict[str, object] | None:
        """What fails a file whose lines are good: a fault, the file deleted meanwhile, the queue's limit."""
        fault = batch.fault(Kind.FAIL)
        if fault is not None:
            message = fault.message or "The rehearsal's schedule of faults fails this batch."
            return batch_error(fault.code or "invalid_request", message, line=fault.line, param=fault.param)
        if self._state.file(batch.input_file_id, batch.project, now) is None:
            return _bad_file(batch)
        limits = self._options.queue_limits
        limit = limits.get(report.model or "", limits.get("*"))
        if limit is None or not report.model:
            return None
        if self._state.enqueued_tokens(batch.project, report.model) + report.tokens <= limit:
            return None
        message = (
            f"Enqueued token limit reached for {report.model} in organization org-rehearsal. Limit: {limit:,} enqueued"
            " tokens. Please try again once some in_progress batches have been completed."
        )
        return batch_error("token_limit_exceeded", message)

    # in_progress, finalizing

    def _run_of(self, batch: Batch) -> BatchRun:
        run = self._runs.get(batch.id)
        if run is None:
            source = self._state.path_of(batch.input_file_id)
            options = self._options
            dialect = dialect_of(batch, options)
            parts = self._state.parts_dir
            run = BatchRun(batch, source, parts, self._executor, self._pool, options.seed, dialect)
            self._runs[batch.id] = run
        return run

    def _start(self, batch: Batch) -> float:
        overdue = batch.fault(Kind.OVERDUE)
        late = overdue.seconds if overdue else 0.0
        return (batch.in_progress_at or batch.created_at) + self._timing(batch).queue_s + late

    def _due(self, batch: Batch, run: BatchRun, moment: float) -> int:
        """How many rows have an answer at `moment`."""
        row_s = self._timing(batch).row_s
        passed = moment - self._start(batch)
        most = run.total
        expire = batch.fault(Kind.EXPIRE)
        if expire is not None:
            most = int(expire.share * run.total + 1e-9)
        if passed < 0:
            return 0
        return most if row_s == 0 else min(most, int(passed / row_s + 1e-9))

    def _in_progress(self, batch: Batch, now: float) -> float:
        expires = math.inf if batch.fault(Kind.OVERDUE) else batch.expires_at
        if now < min(self._start(batch), expires):
            return min(self._start(batch), expires)
        run = self._run_of(batch)
        row_s = self._timing(batch).row_s
        due = self._due(batch, run, min(now, expires))
        before = run.done
        run.advance(due, _STEP_S)
        if run.done != before:
            self._state.update_batch(
                batch.id,
                expect=["in_progress"],
                completed=run.tally.completed,
                failed=run.tally.failed,
                usage=run.tally.usage,
            )
        if run.done == run.total:
            ended = self._start(batch) + run.total * row_s if row_s else self._clock.now()
            self._state.update_batch(batch.id, expect=["in_progress"], status="finalizing", finalizing_at=ended)
            return now
        if now >= expires and (row_s == 0 or run.done >= due):
            run.finish_running()
            run.leave(*EXPIRED)
            self._end(batch, run, "in_progress", "expired", "expired_at", expires)
            return now
        if run.done < due:
            return now
        return min(expires, now + _PROGRESS_S * self._clock.speed)

    def _finalizing(self, batch: Batch, now: float) -> float:
        due = (batch.finalizing_at or batch.created_at) + self._timing(batch).finalizing_s
        if now < due:
            return due
        run = self._run_of(batch)
        while run.done < run.total:  # only after a restart is there anything left to run
            run.advance(run.total, _STEP_S)
        self._end(batch, run, "finalizing", "completed", "completed_at", due)
        return now

    # cancelling

    def _cancelling(self, batch: Batch, now: float) -> float:
        """Rows keep finishing during the first half of the time that a cancel takes."""
        asked = batch.cancelling_at or batch.created_at
        timing = self._timing(batch)
        due = asked + timing.cancelling_s
        if batch.in_progress_at is None:
            if now < due:
                return due
            self._reports.pop(batch.id, None)
            self._state.update_batch(batch.id, expect=["cancelling"], status="cancelled", cancelled_at=due)
            self._state.drop_bytes(batch.input_file_id)
            return now
        run = self._run_of(batch)
        last = min(asked + timing.cancelling_s / 2, batch.expires_at)
        if timing.row_s or now < last:
            rows = self._due(batch, run, min(now, last))
            run.advance(rows, _STEP_S)
            if run.done < rows:
                return now
        if now < due:
            return min(due, now + _PROGRESS_S * self._clock.speed)
        run.finish_running()
        run.leave(*CANCELLED)
        self._end(batch, run, "cancelling", "cancelled", "cancelled_at", due)
        return now

    # the end

    def _end(self, batch: Batch, run: BatchRun, source: str, status: str, column: str, moment: float) -> None:
        """Register the result files that are not empty and reach the terminal status, unless a cancel came first."""
        with self._state.exclusive():
            if self._state.batch(batch.id).status == source:
                self._write_end(batch, run, status, column, moment)

    def _write_end(self, batch: Batch, run: BatchRun, status: str, column: str, moment: float) -> None:
        ids = self._keep_files(batch, run, moment)
        self._state.end_attempts(batch.seq, run.attempts())
        del self._runs[batch.id]
        self._state.update_batch(
            batch.id,
            expect=[batch.status],
            status=status,
            completed=run.tally.completed,
            failed=run.tally.failed,
            usage=run.tally.usage,
            output_file_id=ids["output"],
            error_file_id=ids["error"],
            **{column: moment},
        )
        self._state.drop_bytes(batch.input_file_id)

    def _keep_files(self, batch: Batch, run: BatchRun, moment: float) -> dict[str, str | None]:
        """Put the results where downloads find them; returns the ids of `output` and `error`."""
        if batch.is_messages:
            return {"output": self._state.keep_results(run.output, batch), "error": None}
        life = float(batch.output_expires_s or FILE_LIFE)
        ids: dict[str, str | None] = {}
        for name, part in (("output", run.output), ("error", run.errors)):
            ids[name] = None
            if part.stat().st_size == 0:
                part.unlink()
                continue
            stored = self._state.add_file(
                part,
                project=batch.project,
                filename=f"{batch.id}_{name}.jsonl",
                purpose="batch_output",
                now=moment,
                life_s=life,
            )
            ids[name] = stored.id
            gone = batch.fault(Kind.FILES_GONE)
            if gone is not None and gone.file in (name, "both"):
                self._state.expire_file(stored.id, moment + gone.seconds)
        return ids

    _moves: Final[dict[str, Callable[[Runner, Batch, float], float]]] = {
        "validating": _validating,
        "in_progress": _in_progress,
        "finalizing": _finalizing,
        "cancelling": _cancelling,
    }


def _bad_file(batch: Batch) -> dict[str, object]:
    message = f"The input file {batch.input_file_id} was not found or cannot be used for a batch."
    return batch_error("invalid_request", message, param="file_id")
