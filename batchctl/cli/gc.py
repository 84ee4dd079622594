"""`batchctl gc`: what lies on this disk, and letting go of what nothing needs."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import click

from batchctl.cli import output
from batchctl.cli.base import ERROR, command, json_option, on_interrupt
from batchctl.cli.reading import JOB
from batchctl.errors import UsageError, UserError
from batchctl.retention import NEVER, parse_span

if TYPE_CHECKING:
    from batchctl.engine.context import Engine
    from batchctl.engine.holdings import Holding
    from batchctl.engine.keep import Chosen, Gone
    from batchctl_store.records import Job


class Span(click.ParamType[float]):
    """`30d`, as seconds."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            seconds = parse_span(value)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)
        return self.fail(f"{NEVER!r} takes nothing", param, ctx) if seconds is None else seconds


@command("gc")
@click.argument("jobs", nargs=-1, type=JOB, metavar="[JOB]...")
@click.option("--dry-run", is_flag=True, help="Show what lies there and what would go; delete nothing.")
@click.option(
    "--older-than",
    "age",
    type=Span(),
    metavar="SPAN",
    help="Of jobs over for at least this long, such as 30d or 12h; default: `files` in [retention], 30d.",
)
@click.option("--forget", is_flag=True, help="Forget whole jobs, rows and answers too; needs JOB or --older-than.")
@click.option("--yes", is_flag=True, help="Forget without asking.")
@json_option
def gc(jobs: tuple[str, ...], dry_run: bool, age: float | None, forget: bool, yes: bool, as_json: bool) -> int:
    """Let go of rendered requests and raw results of JOBs that are over, or of all such jobs, and of leftovers.

    Input rows, answers and history stay, so `results` works as before, and so does `retry`: requests that it would send
    are kept. Nothing of a job goes that is not over, or a batch of which may still answer (docs/retention.md).
    """
    from batchctl.cli import passes
    from batchctl.engine import holdings
    from batchctl.engine.locks import Busy

    on_interrupt("what was not deleted yet is still there; run the same command again")
    if forget and not jobs and age is None:
        raise UsageError("--forget needs to know what", hint="name a job, or give an age: --older-than 365d")
    with passes.opened(offline=True) as engine:
        named = [passes.named(engine, job) for job in jobs]
        only = {job.id for job in named} or None
        chosen = _choose(engine, named, age, forget)
        found = holdings.survey(engine, chosen, only)
        if dry_run:
            names = [job.name for job in chosen.trim], [job.name for job in chosen.forget]
            if as_json:
                freed = {kind: goes for kind, _, goes in _sums(found, "kind")}
                _emit(found, freed, *names, dry=True, compacted=False)
            else:
                _report(found, kinds="WOULD GO", whole=names[1])
            return 0
        if forget and chosen.forget and not yes:
            _ask(engine, chosen.forget)
        try:
            with holdings.alone(engine):
                gone = _let_go(engine, chosen, leftovers=only is None)
        except Busy as busy:
            output.say(f"{passes.holder(engine, busy)} is at work; nothing was deleted, run the same command later")
            return ERROR
        compacted = _compact(engine) if gone.forgotten else False
    if as_json:
        freed = {str(kind): count for kind, count in gone.freed.items()}
        _emit(found, freed, gone.trimmed, gone.forgotten, dry=False, compacted=compacted)
    else:
        _tell(gone, compacted=compacted)
    return 0


def _choose(engine: Engine, named: list[Job], age: float | None, forget: bool) -> Chosen:
    """Raises UserError where a job that is to be forgotten cannot be; says why nothing of a named job goes."""
    from batchctl.engine.holdings import why_kept
    from batchctl.engine.keep import choose

    settings, only = engine.retention, {job.id for job in named} or None
    if forget:
        chosen = choose(engine, files_s=None, jobs_s=age or 0.0, only=only)
        for job in named:
            if job.id not in {found.id for found in chosen.forget}:
                why = why_kept(engine, job, age or 0.0)
                raise UserError(f"{job.name} cannot be forgotten: {why or 'it is not there any more'}")
        return chosen
    files_s = settings.files_s if age is None else age
    chosen = choose(engine, files_s=files_s, jobs_s=None if named else settings.jobs_s, only=only)
    for job in named:
        if job not in chosen.trim:
            output.say(f"{job.name} stays as it is: {why_kept(engine, job, files_s) or 'nothing is left to go'}")
    return chosen


def _ask(engine: Engine, jobs: tuple[Job, ...]) -> None:
    names = ", ".join(job.name for job in jobs)
    rows = output.counted(sum(job.rows for job in jobs), "row")
    if not sys.stdin.isatty():
        raise UsageError(f"forgetting {names} ({rows}) cannot be undone", hint="add --yes where nobody can be asked")
    left = sum(engine.store.keeping.left_at_provider(job) for job in jobs)
    if left:
        output.say(f"{output.counted(left, 'batch')} may still have files at the provider: left to their expiry there")
    click.confirm(f"Forget {names} with {rows} and all answers? This cannot be undone.", abort=True, err=True)


def _let_go(engine: Engine, chosen: Chosen, *, leftovers: bool) -> Gone:
    from batchctl.engine import keep

    gone = keep.Gone()
    keep.let_go(engine, chosen, gone)
    if leftovers:
        for kind, count in keep.leftovers(engine).items():
            gone.add(kind, count)
    return gone


def _compact(engine: Engine) -> bool:
    from batchctl.engine.holdings import compacting

    plan = compacting(engine)
    if not plan.worth_it:
        return False
    if not plan.fits:
        output.say(
            f"{output.size(plan.free)} in the store's file are free and used again; giving them back to the disk needs"
            f" {output.size(plan.needs)} meanwhile, and {output.size(plan.room)} are there"
        )
        return False
    engine.store.keeping.compact()
    return True


def _report(found: list[Holding], *, kinds: str, whole: Collection[str]) -> None:
    """Two tables, by kind and by job."""
    rows = [(kind, output.size(size), output.size(goes)) for kind, size, goes in _sums(found, "kind")]
    for line in output.table(("KIND", "TAKES", kinds), rows, right=("TAKES", kinds), room=output.width()):
        output.data(line)
    jobs = [
        (name, output.size(size), output.size(goes), "all of it" if name in whole else "")
        for name, size, goes in _sums(found, "job")
    ]
    if jobs:
        output.data()
        header = ("JOB", "TAKES", kinds, "")
        for line in output.table(header, jobs, right=("TAKES", kinds), shrink=("JOB",), room=output.width()):
            output.data(line)


def _sums(found: list[Holding], by: str) -> list[tuple[str, int, int]]:
    """(kind or job, bytes, bytes that go): kinds in their own order, jobs as found."""
    from batchctl.engine.keep import Kind

    order = {str(kind): place for place, kind in enumerate(Kind)}
    sums: dict[str, tuple[int, int]] = {}
    for holding in found:
        if (key := getattr(holding, by)) is not None:
            size, goes = sums.get(str(key), (0, 0))
            sums[str(key)] = size + holding.bytes, goes + holding.goes
    return sorted(((key, *both) for key, both in sums.items()), key=lambda found: order.get(found[0], 0))


def _tell(gone: Gone, *, compacted: bool) -> None:
    if gone.forgotten:
        output.say(f"forgotten: {', '.join(gone.forgotten)}")
    if gone.trimmed:
        output.say(f"requests and raw results gone: {', '.join(gone.trimmed)}")
    if compacted:
        output.say("the store's file was written anew without its free pages")
    parts = ", ".join(f"{kind} {output.size(count)}" for kind, count in gone.freed.items())
    output.data(f"freed {output.size(gone.total)}{f': {parts}' if parts else ''}")


def _emit(
    found: list[Holding],
    freed: Mapping[str, int],
    trimmed: list[str],
    forgotten: list[str],
    *,
    dry: bool,
    compacted: bool,
) -> None:
    payload = {
        "dry_run": dry,
        "freed": sum(freed.values()),
        "kinds": [{"kind": kind, "bytes": size, "freed": freed.get(kind, 0)} for kind, size, _ in _sums(found, "kind")],
        "jobs": [{"job": name, "bytes": size} for name, size, _ in _sums(found, "job")],
        "trimmed": trimmed,
        "forgotten": forgotten,
        "compacted": compacted,
    }
    output.emit("gc", payload)
