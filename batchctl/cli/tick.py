"""`batchctl tick`: one idempotent pass, for cron."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchctl.cli import output
from batchctl.cli.base import FAILED_ROWS, LATE, PAUSED, RUNNING, command, json_option, on_interrupt

if TYPE_CHECKING:
    from batchctl.engine.context import Engine
    from batchctl.engine.locks import Busy
    from batchctl.engine.tick import Report

QUIET = ("poll",)
"""Steps that are nothing to tell of."""


@command("tick", exits=(FAILED_ROWS, RUNNING, LATE, PAUSED))
@click.option("--strict", is_flag=True, help="Exit 3 to 6 as the open jobs, and those that finished now, stand.")
@click.option(
    "--max-runtime",
    type=click.FloatRange(1),
    metavar="SECONDS",
    default=600,
    show_default=True,
    help="Begin no further step after this; a tick that is at work for longer is reported as stalled.",
)
@json_option
def tick(strict: bool, max_runtime: float, as_json: bool) -> int:
    """Do all that can be done now for every job: send, ask, collect, merge.

    May be called at any time and be killed at any time. Exits 0 whenever the pass itself worked, also where another
    tick is at work already. Prints a line when something happened.
    """
    from batchctl.cli import passes
    from batchctl.cli.reading import read
    from batchctl.engine.locks import Busy

    on_interrupt("no cancel was sent; the next tick goes on")
    if not (read().settings.home / "store.db").exists():
        if as_json:
            output.emit("tick", _payload(None, None))
        return 0
    with passes.opened() as engine:
        report = None
        try:
            report = passes.run(engine, max_runtime_s=max_runtime)
        except Busy as busy:
            _say_busy(engine, busy, max_runtime)
            if as_json:
                output.emit("tick", _payload(None, busy.holder))
        else:
            passes.tell(report)
            if as_json:
                output.emit("tick", _payload(report, None))
            elif summary := _summary(report):
                output.data(summary)
    return _strict(report) if strict else 0


def _strict(report: Report | None) -> int:
    from batchctl import verdict
    from batchctl.cli.reading import read
    from batchctl.verdict import codes

    reading = read()
    finished = () if report is None else report.finished
    jobs = [job for job in reading.views.jobs() if job["state"] != "finished" or job["name"] in finished]
    return verdict.worst(codes(reading, jobs).values())


def _say_busy(engine: Engine, busy: Busy, max_runtime: float) -> None:
    from batchctl.cli.passes import holder

    stalled = busy.since is not None and engine.clock.now() - busy.since > engine.clock.real(max_runtime)
    if stalled:
        output.say(f"stalled: {holder(engine, busy)} has been at work for longer than --max-runtime")
        output.say("  look at that process; ending it loses nothing, the next tick takes over")
    else:
        output.say(f"{holder(engine, busy)} is at work; nothing to do here")


def _summary(report: Report) -> str | None:
    told = {kind: count for kind, count in report.done.items() if kind not in QUIET}
    if not told and not report.cut_short:
        return None
    words = {
        "plan": "planned",
        "upload": "uploads",
        "submit": "creates",
        "recover": "looked for",
        "collect": "collected",
        "cancel": "cancels",
        "finish": "finished",
        "merge": "merged",
        "clean": "cleaned up behind",
    }
    parts = [f"{words.get(kind, kind)} {count}" for kind, count in told.items()]
    parts += [f"jobs finished: {', '.join(report.finished)}"] if report.finished else []
    parts += ["cut short by --max-runtime, the next tick goes on"] if report.cut_short else []
    parts += [f"next at {output.local(report.next_at)}"] if report.next_at is not None else []
    return "; ".join(parts)


def _payload(report: Report | None, holder: str | None) -> dict[str, object]:
    return {
        "busy": holder,
        "done": {} if report is None else report.done,
        "finished": [] if report is None else report.finished,
        "notes": [] if report is None else report.notes,
        "next_at": None if report is None else output.iso(report.next_at),
        "cut_short": report is not None and report.cut_short,
    }
