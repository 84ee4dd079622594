"""What the user wishes: cancel, pause, retry; and two processes that want the same."""

from __future__ import annotations

import pytest

from batchctl.engine import wishes
from batchctl.engine.intake import Order, create_job, sweep
from batchctl.engine.locks import Busy, exclusive
from batchctl.errors import UserError
from batchctl.retention import Retention
from batchctl_adapters.base import Outcome
from batchctl_store.records import Job
from tests.simulation.conftest import Make
from tests.simulation.faults import DAY, HOUR, Faults, Spell
from tests.simulation.remote import FOREVER
from tests.simulation.world import START, TASK, Killed, Process, World


def outcomes(world: World, job: Job) -> list[str]:
    return [row["outcome"] for row in world.output(job)]


def cancel(world: World, job: Job) -> None:
    assert wishes.cancel(world.engine, world.store.jobs.get(job.id))


def test_cancel_keeps_partials_and_sends_nothing_more(world: World) -> None:
    texts = world.rows_of("a", 4)
    world.plan(done_after=dict.fromkeys(texts[2:], 10 * HOUR))
    job = world.submit(4)
    world.run(lambda: world.clock.now() > START + HOUR)
    cancel(world, job)
    world.run()
    assert outcomes(world, job) == ["succeeded"] * 2 + ["canceled"] * 2
    assert len(world.remote.batches) == 1
    assert wishes.cancel(world.engine, world.store.jobs.get(job.id)) is False


def test_case_05_a_cancel_that_takes_long_is_waited_for(world: World) -> None:
    texts = world.rows_of("a", 3)
    world.plan(fields={"cancel_takes_s": 3 * HOUR}, done_after={texts[1]: 3 * HOUR, texts[2]: DAY})
    job = world.submit(3)
    world.run(lambda: world.clock.now() > START + HOUR)
    cancel(world, job)
    world.tick()
    with pytest.raises(UserError, match="still being canceled"):
        world.retry(world.store.jobs.get(job.id))
    world.run()
    assert outcomes(world, job) == ["succeeded", "succeeded", "canceled"]


def test_cancel_drops_what_was_not_sent(world: World) -> None:
    world.retention = Retention(keep_remote_files=True)
    world.force("create", "ok", "queue")
    job = world.submit(6, max_batch_requests=2)
    world.tick()
    cancel(world, job)
    world.run()
    assert outcomes(world, job)[2:] == ["canceled"] * 4
    assert len(world.remote.batches) == 1
    assert [file.deleted for file in world.remote.files.values()] == [False, True, True]


def test_rows_canceled_by_the_user_stay_so_and_those_canceled_by_the_provider_go_on(world: World) -> None:
    texts = world.rows_of("a", 2)
    for _ in range(2):
        world.plan(fields={"cancel_at": START + HOUR}, done_after=dict.fromkeys(texts, DAY))
    one, other = world.submit(2, job="a"), world.submit(2, job="b")
    world.run(lambda: world.clock.now() > START + HOUR / 2)
    cancel(world, one)
    world.run()
    assert outcomes(world, one) == ["canceled"] * 2
    assert outcomes(world, other) == ["succeeded"] * 2


def test_a_cancel_of_a_batch_that_is_gone_ends_all_the_same(world: World) -> None:
    world.plan(fields={"not_found_at": START + HOUR, "not_found_looks": FOREVER}, done_after={"a row 000": DAY})
    job = world.submit(1)
    world.run(lambda: world.clock.now() > START + 0.5 * HOUR)
    world.clock.sleep(HOUR)
    cancel(world, job)
    world.run()
    assert outcomes(world, job) == ["gone"]


def test_a_cancel_that_cannot_be_told_yet_is_told_later(make: Make) -> None:
    world = make(faults=Faults(spells=(Spell("storm", START + HOUR, START + 3 * HOUR),)))
    world.plan(done_after={"a row 000": 20 * HOUR})
    job = world.submit(1)
    world.run(lambda: world.clock.now() > START + HOUR)
    cancel(world, job)
    world.run()
    assert outcomes(world, job) == ["canceled"]
    assert world.remote.batches["batch-1"].cancel_at < START + 4 * HOUR


def test_pause_sends_nothing_and_collects_what_is_out(world: World) -> None:
    job = world.submit(4, max_batch_requests=2)
    world.force("create", "ok", "queue")
    world.tick()
    wishes.pause(world.engine, job)
    world.run(lambda: world.clock.now() > START + 5 * HOUR)
    assert len(world.remote.batches) == 1
    assert world.store.rows.tally(job.id) == {"succeeded": 2}
    wishes.resume(world.engine, job)
    world.run()
    assert outcomes(world, job) == ["succeeded"] * 4


def test_case_33_retry_sends_failed_rows_only_and_twice_is_the_same_as_once(world: World) -> None:
    texts = world.rows_of("a", 10)
    world.plan(kinds=dict.fromkeys(texts[:3], "invalid"))
    job = world.submit(10)
    world.run()
    assert world.retry(job) == 3
    assert world.retry(job) == 0, "they are on their way"
    world.tick()
    assert world.retry(job) == 0
    world.run()
    assert outcomes(world, job) == ["succeeded"] * 10
    assert sum(world.remote.sent.values()) == 13
    assert world.retry(job) == 0


def test_retry_leaves_permanent_and_missing_rows_alone_unless_named(world: World) -> None:
    texts = world.rows_of("a", 3)
    world.plan(kinds={texts[0]: "bad_request"}, lost=[texts[1]])
    job = world.submit(3)
    world.run()
    assert world.retry(job) == 0
    assert world.retry(job, frozenset({Outcome.MISSING})) == 1
    world.run()
    assert outcomes(world, job) == ["errored", "succeeded", "succeeded"]


def test_retry_after_a_cancel_keeps_the_books_right(world: World) -> None:
    """Some rows were canceled by the user, some failed: all of them go out again, once, and the job ends (case 5)."""
    texts = world.rows_of("a", 4)
    world.plan(kinds=dict.fromkeys(texts[:1], "invalid"), done_after={texts[1]: 20 * HOUR})
    job = world.submit(4, max_batch_requests=2)
    world.force("create", "ok", "queue")
    world.run(lambda: world.clock.now() > START + HOUR / 4)
    cancel(world, job)
    world.run()
    before = outcomes(world, job)
    assert before[0] == "invalid" and "canceled" in before
    assert world.retry(job) == len(before) - before.count("succeeded")
    assert world.retry(job) == 0
    world.run()
    assert outcomes(world, job) == ["succeeded"] * 4


def test_two_ticks_at_once_the_second_is_told_who_is_at_work(world: World) -> None:
    world.submit(2)
    with exclusive(world.engine.locks / "tick.lock", owner="process 7 on elsewhere", now=START):
        with pytest.raises(Busy, match="process 7 on elsewhere") as busy:
            world.tick()
        assert busy.value.since == START
        assert not world.remote.batches
    world.run()


def test_a_submit_that_was_killed_is_swept_and_can_be_typed_again(world: World) -> None:
    for count in range(1, 60):
        world.process = Process(world, dies_after=count)
        try:
            world.submit(3)
        except Killed:
            world.restart()
            world.process = Process(world)
            if world.store.jobs.all() and world.store.jobs.all()[0].ready_at is not None:
                break  # it died after its work was done
            world.tick()
            assert world.store.jobs.all() == []
            assert not world.remote.files
            continue
        break
    else:
        raise AssertionError("never got through")
    assert count > 10
    job = world.store.jobs.all()[0]
    world.process = Process(world)
    world.texts[job.id] = world.rows_of("a", 3)
    world.run()
    assert outcomes(world, job) == ["succeeded"] * 3


def test_a_job_that_is_still_being_taken_in_is_not_sent(world: World) -> None:
    """A tick between the commit of the batches and that of the job: the user may yet see the submit fail."""
    seen: list[int] = []
    engine = world.compose()
    plain = engine.store.jobs.update

    def update(*args: object, **values: object) -> None:
        if "ready_at" in values:
            world.tick()
            seen.append(len(world.remote.files))
        plain(*args, **values)  # type: ignore[arg-type]

    engine.store.jobs.update = update  # type: ignore[method-assign]
    source = world.folder / "a.jsonl"
    source.write_text('{"text": "a row 000", "n": "000"}\n', encoding="utf-8")
    job = create_job(engine, Order(TASK, source, "model", world.folder / "a.out.jsonl"))
    engine.store.close()
    world.texts[job.id] = ["a row 000"]
    assert seen == [0]
    world.run()
    assert outcomes(world, job) == ["succeeded"]


def test_a_job_whose_intake_ends_while_another_submit_looks_is_kept(world: World) -> None:
    job = world.submit(2, job="a")
    engine = world.compose()
    engine.store.jobs.unready = lambda: [(job, "")]  # type: ignore[method-assign] # as it was a moment before
    sweep(engine)
    engine.store.close()
    world.run()
    assert outcomes(world, job) == ["succeeded"] * 2
