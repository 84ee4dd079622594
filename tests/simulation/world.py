"""One simulated user, machine and provider: the real engine over the real store, ticked as cron would, and killed.

Everything random comes from one seed. A process ends at an effect (a call to the provider, a transaction, a spool
object): from there on each further effect of it fails too, whatever its handlers try, and the next pass begins anew.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection

from batchctl.engine import keep, wishes
from batchctl.engine.context import Engine
from batchctl.engine.holdings import alone
from batchctl.engine.intake import Order, create_job
from batchctl.engine.tick import Report, run_pass
from batchctl.retention import Retention
from batchctl.task import Task
from batchctl_adapters.base import BatchAdapter, Outcome
from batchctl_adapters.profile import Profile
from batchctl_store.records import Job
from batchctl_store.repository import Repository
from batchctl_store.spool import FrameWriter, Spool
from tests.simulation.faults import Faults
from tests.simulation.model import ModelAdapter, SimulatedClock
from tests.simulation.remote import FOREVER, Batch, Plan, Remote

START = 1_800_000_000.0
STORE_ID = "simula"

LABELS = {"type": "string", "enum": ["yes", "no"]}
SCHEMA = {"type": "object", "properties": {"echo": {"type": "string"}, "label": LABELS}, "required": ["echo", "label"]}
TASK = Task.model_validate(
    {"name": "sim", "model": "m", "prompt": "{{ text }}", "output": {"json_schema": SCHEMA}}, strict=True
)


class Killed(BaseException):
    """The process is gone; nothing catches this but the world."""


class KillableSpool(Spool):
    """The real spool, with the effects named."""

    def __init__(self, root: Path, effect: Callable[[str], None]) -> None:
        super().__init__(root)
        self._effect = effect

    def writer(self, name: str) -> FrameWriter:
        plain = super().writer(name)
        writer = KillableWriter.__new__(KillableWriter)
        writer.__dict__.update(plain.__dict__)
        writer.effect = self._effect
        return writer

    def delete(self, name: str) -> None:
        self._effect("spool.delete")
        super().delete(name)

    def drop(self, folder: str) -> None:
        self._effect("spool.drop")
        super().drop(folder)


class KillableWriter(FrameWriter):
    """An object that may be lost before it is put in place."""

    effect: Callable[[str], None]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            try:
                self.effect("spool.before")
            except Killed as killed:
                super().__exit__(Killed, killed, trace)
                raise
        super().__exit__(kind, error, trace)
        if kind is None:
            self.effect("spool.after")


@dataclass(slots=True)
class Process:
    """One run of the program: the effects so far, and which of them is its last."""

    world: World
    dies_after: int | None = None
    dies_at: str | None = None
    stops: Random | None = None
    count: int = 0
    dead: bool = False

    def effect(self, name: str) -> None:
        """Something is about to happen, or has just happened, that outlives the process."""
        if self.dead:
            raise Killed(name)
        self.count += 1
        if self.count == self.dies_after or name == self.dies_at:
            self.dead = True
            self.world.say(f"killed at {name}")
            raise Killed(name)
        if self.stops is not None and self.stops.random() < 0.002:
            self.world.say(f"stopped for an hour at {name}")
            self.world.clock.sleep(3_600)


@dataclass
class World:
    """A store in a folder, a provider, a clock; the process comes and goes."""

    folder: Path
    seed: object = 0
    faults: Faults = field(default_factory=Faults)
    profile: Profile = field(
        default_factory=lambda: Profile(
            name="model", models={"m": "model-1"}, window_s=86_400, poll_interval_s=300, concurrent_uploads=1
        )
    )
    run_s: float = 600.0
    retention: Retention = field(default_factory=Retention)

    def __post_init__(self) -> None:
        self.random = Random(f"{self.seed}/world")
        self.clock = SimulatedClock(START)
        self.remote = Remote(self.clock, self.seed, self.faults, window_s=self.profile.window_s, run_s=self.run_s)
        self.remote.on_create = self._created
        self.remote.on_delete = self._deleted
        self.trace: list[str] = []
        self.notes: list[str] = []
        self.process = Process(self)
        self.connection = Random(f"{self.seed}/connection")
        self.adapter = ModelAdapter(self.profile, self.remote, self.clock, self.connection, self._effect)
        self.retried: dict[str, float] = {}
        self.retries: dict[int, int] = {}
        self.texts: dict[int, list[str]] = {}
        self.violations: list[str] = []
        self._engine: Engine | None = None

    def _effect(self, name: str) -> None:
        self.process.effect(name)

    def say(self, text: str) -> None:
        """One line of the trace that a failing seed prints."""
        self.trace.append(f"{self.clock.now() - START:10.0f}  {text}")

    @property
    def engine(self) -> Engine:
        """The engine of the process that is running; made anew after a death."""
        if self._engine is None:
            self._engine = self.compose()
        return self._engine

    @property
    def store(self) -> Repository:
        """The store as the running process has it."""
        return self.engine.store

    def compose(self) -> Engine:
        """A process of its own starts: nothing in memory is shared with another."""
        store = open_store(self.folder, self._effect)
        spool = KillableSpool(self.folder / "spool", self._effect)

        def adapter(name: str) -> BatchAdapter:
            return self.adapter

        return Engine(
            store=store,
            spool=spool,
            clock=self.clock,
            home=self.folder,
            profile=lambda _: self.profile,
            adapter=adapter,
            retention=self.retention,
        )

    def submit(self, rows: int, *, job: str = "a", texts: Sequence[str] | None = None, **order: Any) -> Job:
        """Take a table of `rows` rows in; their texts are `<job> row <n>`, unless `texts` are given."""
        texts = self.rows_of(job, rows) if texts is None else list(texts)
        source = self.folder / f"{job}.jsonl"
        lines = [json.dumps({"text": text, "n": f"{n:03d}"}) for n, text in enumerate(texts)]
        source.write_text("\n".join(lines) + "\n", encoding="utf-8")
        output = self.folder / f"{job}.out.jsonl"
        found = create_job(self.engine, Order(TASK, source, self.profile.name, output, **order))
        self.texts[found.id] = texts
        return found

    @staticmethod
    def rows_of(job: str, rows: int) -> list[str]:
        """The texts of a table; each of them is its own."""
        return [f"{job} row {n:03d}{'!' * (n % 3)}" for n in range(rows)]

    def repeating(self, job: str, rows: int) -> list[str]:
        """The texts of a table in which some rows ask what another one asks; the same each time it is asked for."""
        random = Random(f"{self.seed}/{job}/repeats")
        share = random.choice([0.0, 0.2, 0.6])
        texts = self.rows_of(job, rows)
        return [random.choice(texts) if random.random() < share else text for text in texts]

    def tick(
        self, *, dies_after: int | None = None, dies_at: str | None = None, stops: Random | None = None
    ) -> Report | None:
        """One pass, by the process that runs or by a new one; None where it was killed."""
        self.process = Process(self, dies_after, dies_at, stops)
        try:
            report = run_pass(self.engine)
        except Killed:
            self.restart()
            return None
        finally:
            self.process = Process(self)
            self._forget_unrecorded()
        self.notes += [note for note in report.notes if note not in self.notes]
        if report.done:
            self.say("pass: " + ", ".join(f"{kind} {count}" for kind, count in report.done.items()))
        return report

    def _forget_unrecorded(self) -> None:
        """What was told to a process that died before it wrote it down has been told to nobody."""
        known = self.store.batches.known_remote_ids(self.profile.account_name)
        for batch in self.remote.batches.values():
            if batch.remote_id not in known:
                batch.told_at = FOREVER

    def restart(self) -> None:
        """The process ends, if it has not; what it held in memory is gone."""
        if self._engine is not None:
            self._engine.store.close()
        self._engine = None

    def run(self, until: Callable[[], bool] | None = None, *, hours: float = 48) -> None:
        """Passes as `wait` makes them, each when the last one said, until nothing is open (or `until`)."""
        end = self.clock.now() + hours * 3_600
        while self.clock.now() < end:
            report = self.tick()
            if until() if until else not self.store.jobs.all(open_only=True):
                return
            later = None if report is None else report.next_at
            self.clock.sleep(max(1.0, min(later or 0, self.clock.now() + 900) - self.clock.now()) if later else 300)
        raise AssertionError("not finished in time\n" + self.story())

    def retry(self, job: Job, outcomes: frozenset[Outcome] = wishes.RETRIED_BY_DEFAULT) -> int:
        """The user's `retry`, remembered: what it names may be sent once more."""
        names = {outcome.value for outcome in outcomes}
        rows = [
            row[0] for row in self.store.rows.merged(job.id) if row[1] in ("failed", "canceled") and row[2] in names
        ]
        count = wishes.retry(self.engine, self.store.jobs.get(job.id), outcomes)
        if count:
            self.say(f"retry of {job.name}: {count} rows")
            self.retries[job.id] = self.retries.get(job.id, 0) + 1
            self.retried.update({self.texts[job.id][row]: self.clock.now() for row in rows})
        return count

    def collect(self, *, dies_after: int | None = None) -> None:
        """The user's `gc --older-than 0s`; it may be killed, and is typed again then."""
        for dies in (dies_after, None):
            self.process = Process(self, dies)
            gone = keep.Gone()
            try:
                with alone(self.engine):
                    keep.let_go(self.engine, keep.choose(self.engine, files_s=0.0, jobs_s=None), gone)
            except Killed:
                self.restart()
                continue
            finally:
                self.process = Process(self)
            self.say(f"collected {gone.total} bytes of {', '.join(gone.trimmed)}")
            return

    def output(self, job: Job) -> list[dict[str, Any]]:
        """The merged file, as records."""
        path = Path(job.output_path or "")
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]

    def plan(self, **plan: Any) -> None:
        """What the next batch that is created does; see `remote.Plan`."""
        self.remote.plans.append(Plan(**plan))

    def force(self, call: str, *fates: str) -> None:
        """Fates of the next calls of this name; `ok` for none."""
        self.adapter.forced[call].extend(fates)

    def story(self) -> str:
        """The end of the trace and of each job's history."""
        lines = self.trace[-60:]
        for job in self.store.jobs.all():
            lines += [f"-- {job.name}: {job}", *(_told(event) for event in self.store.jobs.events(job.id)[-60:])]
        lines += [f"-- {batch}" for batch in self.store.batches.load(open_at=self.clock.now())]
        return "\n".join(lines)

    def _created(self, batch: Batch) -> None:
        """Promise 2, checked where it matters: at the moment a batch comes to be."""
        from tests.simulation.invariants import may_be_sent

        self.say(f"{batch.remote_id} of {batch.upload_id} as {batch.tag}: {len(batch.rows)} rows, {batch.fate}")
        self.violations += may_be_sent(self, batch)

    def _deleted(self, handle: str) -> None:
        """Promise 1, likewise: at the moment a file is deleted."""
        from tests.simulation.invariants import may_be_deleted

        self.say(f"{handle} is deleted")
        self.violations += may_be_deleted(self, handle)


def _told(event: Any) -> str:
    moved = f" {event.source} -> {event.target}" if event.target else ""
    where = "" if event.batch is None else f" b{event.batch}"
    return f"{event.at - START:10.0f} {where}{moved}  {event.text}"


def open_store(folder: Path, effect: Callable[[str], None]) -> Repository:
    """The real repository; its write transactions are effects."""
    store = Repository(folder / "store.db")
    database = store._db
    plain = database.begin

    @contextmanager
    def begin() -> Iterator[Connection]:
        effect("commit.before")
        with plain() as connection:
            yield connection
        effect("commit.after")

    database.begin = begin  # type: ignore[method-assign]  # the one seam that a kill needs
    return store


class Worlds:
    """Makes worlds in memory-backed folders, each from a copy of one migrated store."""

    def __init__(self) -> None:
        shared = Path("/dev/shm")
        self._root = Path(tempfile.mkdtemp(prefix="simulation-", dir=shared if shared.is_dir() else None))
        template = Repository(self._root / "template.db")
        template.put_setting("store_id", STORE_ID)
        template.close()
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._root, ignore_errors=True)

    def make(self, seed: object = 0, faults: Faults | None = None, **settings: Any) -> World:
        """A new world."""
        self._count += 1
        folder = self._root / f"w{self._count}"
        folder.mkdir()
        shutil.copy(self._root / "template.db", folder / "store.db")
        return World(folder, seed, faults or Faults(), **settings)

    def drop(self, world: World) -> None:
        """Its folder is no longer needed."""
        world.restart()
        shutil.rmtree(world.folder, ignore_errors=True)
