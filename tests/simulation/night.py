"""A whole run from one seed: trouble drawn, a job or two submitted, passes and deaths until everything is over."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from batchctl.engine import wishes
from batchctl.errors import UsageError
from batchctl_adapters.base import Outcome
from batchctl_adapters.profile import Profile
from batchctl_store.records import Job
from tests.simulation import invariants
from tests.simulation.faults import DAY, HOUR, draw
from tests.simulation.world import START, Killed, Process, World, Worlds

ANY_FAILURE = frozenset(Outcome) - {Outcome.SUCCEEDED}


class Violated(AssertionError):
    """An invariant does not hold; the message is the trace."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How this run's user and machine behave."""

    kills: float  # share of passes that are killed
    stops: bool  # the process is sometimes stopped for an hour
    cron_s: float | None  # seconds between passes; None: each when the last one said
    cancels: float | None  # when a job is canceled
    pauses: float | None
    retries: int  # how often failed rows are sent again once a job is over
    collects: bool = False  # and what nothing needs is deleted before


def run_seed(worlds: Worlds, seed: int) -> World:
    """Play one seed to its end and check everything. Raises Violated."""
    random = Random(seed)
    faults = draw(random, START)
    habits = replace(_habits(random), collects=Random(f"{seed}/collects").random() < 0.5)
    profile = Profile(
        name="model",
        models={"m": "model-1"},
        window_s=random.choice([2 * HOUR, DAY]),
        poll_interval_s=random.choice([120.0, 600.0]),
        concurrent_uploads=1,
    )
    world = worlds.make(seed, faults, profile=profile, run_s=random.choice([600.0, 2 * HOUR]))
    _submit(world, random, habits)
    _live(world, random, habits)
    found = invariants.thorough(world)
    if found:
        raise Violated(_report(world, seed, found))
    return world


def _habits(random: Random) -> Habits:
    def at(share: float) -> float | None:
        return START + random.uniform(0, 6) * HOUR if random.random() < share else None

    return Habits(
        kills=random.choice([0.0, 0.1, 0.5]),
        stops=random.random() < 0.2,
        cron_s=random.choice([None, 900.0, 1_800.0]),
        cancels=at(0.15),
        pauses=at(0.15),
        retries=random.choice([0, 0, 1, 2]),
    )


def _submit(world: World, random: Random, habits: Habits) -> None:
    """One or two jobs are taken in; a submit that is killed is typed again."""
    for name in ("a", "b")[: random.choice([1, 1, 2])]:
        texts = world.repeating(name, random.randint(1, 24))
        most, attempts = random.randint(1, world.faults.queue_room or 10), random.randint(1, 3)
        for _ in range(20):
            dies = random.randint(1, 25) if random.random() < habits.kills else None
            world.process = Process(world, dies)
            try:
                world.submit(len(texts), job=name, texts=texts, max_batch_requests=most, max_attempts=attempts)
            except Killed:
                world.restart()
                continue
            except UsageError:  # the killed one was complete
                world.texts[world.store.jobs.all()[-1].id] = texts
            finally:
                world.process = Process(world)
            break


def _live(world: World, random: Random, habits: Habits) -> None:
    end = world.faults.heal_at + 5 * DAY
    retries = habits.retries
    while world.clock.now() < end:
        now = world.clock.now()
        sick = now < world.faults.heal_at
        dies = random.randint(1, 60) if sick and random.random() < habits.kills else None
        report = world.tick(dies_after=dies, stops=random if habits.stops and sick else None)
        if found := invariants.cheap(world):
            raise Violated(_report(world, world.seed, found))
        jobs = world.store.jobs.all()
        _wish(world, random, habits, jobs)
        if not any(job.open for job in jobs):
            if habits.collects:
                world.collect(dies_after=random.randint(1, 12) if habits.kills else None)
            if retries and any(world.retry(job, _named(random)) for job in jobs):
                retries -= 1
                continue
            retries = 0
            if not world.store.batches.load(open_at=world.clock.now()):
                if _comes_back(world):
                    continue
                world.tick()  # the pass before may have been killed; this one only cleans up behind
                return
            world.clock.sleep(6 * HOUR)  # only watched from here on
            continue
        if now > world.faults.heal_at + 12 * HOUR:
            world.clock.sleep(2 * HOUR)
        elif habits.cron_s is not None:
            world.clock.sleep(habits.cron_s)
        elif report is not None and report.next_at is not None:
            world.clock.sleep(min(max(report.next_at - world.clock.now(), 1.0), HOUR))
        else:
            world.clock.sleep(300.0)


def _comes_back(world: World) -> bool:
    """Once, the first job's table has a few rows more and is submitted again for those; true where it is."""
    random = Random(f"{world.seed}/comes back")
    if random.random() < 0.5 or (world.folder / "c.jsonl").exists():
        return False
    first = world.store.jobs.all()[0]
    texts = [*world.texts[first.id], *(f"c row {n}" for n in range(random.randint(0, 3)))]
    answered = {row["text"] for row in world.output(first) if row["outcome"] == "succeeded"}
    world.retried |= dict.fromkeys({*texts} - answered, world.clock.now())
    most = world.faults.queue_room  # a larger batch would never fit into the queue
    job = world.submit(len(texts), job="c", texts=texts, reuse=True, max_batch_requests=most)
    if job.reused != sum(text in answered for text in texts):
        world.violations.append(f"{job.name} took {job.reused} answers of {first.name}, which has {len(answered)}")
    world.say(f"{job.name} reuses {job.reused} of {job.rows}")
    return True


def _named(random: Random) -> frozenset[Outcome]:
    return random.choice([wishes.RETRIED_BY_DEFAULT, ANY_FAILURE])


def _wish(world: World, random: Random, habits: Habits, jobs: list[Job]) -> None:
    now, job = world.clock.now(), jobs[0]
    wanted = habits.cancels is not None and now >= habits.cancels and not world.retries
    if wanted and job.cancel_requested_at is None and wishes.cancel(world.engine, job):
        world.say(f"cancel of {job.name}")
    if habits.pauses is None:
        return
    if habits.pauses <= now < habits.pauses + 2 * HOUR and job.paused_at is None:
        wishes.pause(world.engine, job)
        world.say(f"pause of {job.name}")
    elif now >= habits.pauses + 2 * HOUR and job.paused_at is not None:
        wishes.resume(world.engine, job)
        world.say(f"resume of {job.name}")


def _report(world: World, seed: object, found: list[str]) -> str:
    again = f"SEED={seed} pytest tests/simulation/test_simulation.py"
    return "\n".join([*found[:10], f"again: {again}", str(world.faults), world.story()])
