"""`results --follow`: rows written as they become final; whole lines only, whenever it is interrupted."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from batchctl.cli import interrupts, output
from batchctl.cli.base import PAUSED, on_interrupt
from batchctl.errors import UsageError

if TYPE_CHECKING:
    from batchctl.engine.context import Engine
    from batchctl.outputs.files import Format
    from batchctl.outputs.joining import Accounting
    from batchctl.outputs.picking import Pick
    from batchctl_store.records import Job

_HELD = 256  # lines written at once


class _Stuck(Exception):
    """Nothing moves on without a person."""


class _Lines:
    """Lines on their way out, in whole pieces."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._held: list[bytes] = []

    def add(self, line: bytes) -> None:
        self._held.append(line)
        if len(self._held) >= _HELD:
            self.flush()

    def flush(self) -> None:
        if self._held:
            with interrupts.deferred():
                self._file.write(b"".join(self._held))
                self._file.flush()
                self._held.clear()


def trail(
    engine: Engine, job: Job, pick: Pick, target: Path | None, format: Format | None
) -> tuple[int | None, Accounting]:
    """Write the job's rows as they become final. Returns 6 where a person is needed (else None), and the accounting."""
    from batchctl.outputs.delivery import LOOK_S, Followed
    from batchctl.outputs.files import check_output, format_of, jsonl_line

    if (format or (format_of(target) if target else None) or "jsonl") != "jsonl":
        raise UsageError("--follow writes JSONL only", hint="write other formats once the job is finished")
    if target is not None:
        check_output(target, format=format)
    followed = Followed(engine, job, pick)
    with ExitStack() as stack:
        file = sys.stdout.buffer if target is None else stack.enter_context(target.open("wb"))
        lines, reason = _Lines(file), None

        def idle() -> None:
            lines.flush()
            on_interrupt(f"{followed.written:,} rows were written; nothing was sent or canceled")
            if needed := _needs_person(job):
                raise _Stuck(needed)
            time.sleep(LOOK_S)

        try:
            for row in followed.rows(idle):
                lines.add(jsonl_line(row.raw, followed.joiner.cells(row)))
        except _Stuck as stuck:
            reason = str(stuck)
        lines.flush()
    if reason is None:
        return None, followed.accounting
    output.say(f"{job.name}: needs you: {reason}\n  when that is mended: batchctl resume {job.name}")
    return PAUSED, followed.so_far()


def _needs_person(job: Job) -> str | None:
    from batchctl import verdict
    from batchctl.cli.reading import read

    reading = read()
    return verdict.reason(reading, reading.job(str(job.id)))
