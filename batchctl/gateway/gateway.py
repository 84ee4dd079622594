"""The parts of one server, put together: state, clock, faults, executor and the thread that runs batches."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from batchctl.errors import UsageError
from batchctl.executors.base import Executor
from batchctl.gateway.clock import ServerClock
from batchctl.gateway.faults import FaultPlan, FaultSchedule
from batchctl.gateway.options import ServeOptions
from batchctl.gateway.runner import Runner
from batchctl.gateway.state import SAVE_EVERY_S, State


def make_executor(options: ServeOptions) -> Executor:
    """The executor that the options name. Raises UsageError where a model file is missing."""
    if options.executor == "llamacpp":
        if options.model is None:
            raise UsageError("--executor llamacpp needs a model", hint="add --model FILE.gguf")
        from batchctl.executors.llamacpp import LlamaCppExecutor

        executor: Executor = LlamaCppExecutor(options.model)
        return executor
    from batchctl.executors.rehearsal import RehearsalExecutor

    return RehearsalExecutor(seed=options.seed, shares=options.shares)


class Gateway:
    """Everything behind the routes. `close` ends the thread and, for a temporary state, removes it."""

    def __init__(self, options: ServeOptions) -> None:
        self.options = options
        self.executor = make_executor(options)
        self._temporary = None if options.state else tempfile.TemporaryDirectory(prefix="batchctl-serve-")
        directory = options.state or Path(self._temporary.name if self._temporary else "")
        self.state = State(directory, durable=options.state is not None)
        last = self.state.last_moment()
        self.clock = ServerClock(options.speed, None if last is None else max(last, time.time()))
        self.schedule = FaultSchedule(FaultPlan(), options.seed)
        self._calls: Counter[str] = Counter()
        self._calls_lock = threading.Lock()
        self._saved_at = 0.0
        self.runner = Runner(self.state, self.clock, self.executor, options, self._save_sometimes)
        self.install(FaultPlan.model_validate(options.faults))

    def install(self, plan: FaultPlan) -> None:
        """Replace the schedule of faults; those with a `batch_id` strike that batch from now on.

        Raises WireError where there is no such batch.
        """
        from batchctl.gateway.wire import no_batch

        for fault in plan.faults:
            if fault.batch_id is not None and not self.state.add_fault(fault.batch_id, fault):
                raise no_batch(fault.batch_id)
        self.schedule.replace(plan)
        self.runner.wake()

    def count_call(self, route: str) -> None:
        with self._calls_lock:
            self._calls[route] += 1

    def save(self) -> None:
        """Write the clock and the counts of calls down."""
        with self._calls_lock:
            calls = dict(self._calls)
            self._calls.clear()
        self.state.save_moment(self.clock.now(), self.clock.speed, calls)

    def _save_sometimes(self) -> None:
        if time.monotonic() - self._saved_at >= SAVE_EVERY_S:
            self._saved_at = time.monotonic()
            self.save()

    def close(self) -> None:
        self.runner.stop()
        self.save()
        self.state.close()
        self.executor.close()
        if self._temporary is not None:
            self._temporary.cleanup()
