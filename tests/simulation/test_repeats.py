"""Rows that ask the same as another row, of their own job or of an earlier one: sent once, whatever goes wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchctl.engine import wishes
from batchctl.engine.locks import ownership
from batchctl.errors import UsageError
from batchctl_adapters.base import Outcome
from batchctl_store.records import BatchState
from tests.simulation.faults import HOUR, MINUTE, Faults
from tests.simulation.invariants import thorough
from tests.simulation.world import START, Killed, Process, World, Worlds

TEXTS = ["one", "two", "one", "three", "one", "two"]


@pytest.fixture
def sampling(worlds: Worlds) -> Iterator[World]:
    """A world in which a request may be sent twice: its invariants take that for paid twice."""
    found = worlds.make()
    yield found
    worlds.drop(found)


def outcomes(world: World, job_id: int) -> list[str]:
    return [row["outcome"] for row in world.output(world.store.jobs.get(job_id))]


def test_each_request_is_sent_once_and_every_row_has_its_answer(world: World) -> None:
    job = world.submit(6, texts=TEXTS)
    assert (job.repeated, job.following, job.pending_rows) == (3, 3, 0)
    world.run()
    assert dict(world.remote.sent) == {"one": 1, "two": 1, "three": 1}
    assert [row["echo"] for row in world.output(job)] == TEXTS
    assert [row["attempts"] for row in world.output(job)] == [1, 1, 0, 1, 0, 0]
    assert world.store.rows.tally(job.id) == world.store.rows.counted(job.id) == {"succeeded": 6}


def test_without_dedupe_each_row_is_sent_by_itself(sampling: World) -> None:
    job = sampling.submit(3, texts=["one", "one", "two"], dedupe=False)
    sampling.run()
    assert [row.text for row in sampling.remote.batches["batch-1"].rows] == ["one", "one", "two"]
    assert [row["attempts"] for row in sampling.output(job)] == [1, 1, 1]


def test_rows_fail_with_the_one_they_follow_and_are_sent_again_as_one(world: World) -> None:
    world.plan(kinds={"one": "filtered", "two": "invalid"})
    job = world.submit(6, texts=TEXTS)
    world.run()
    assert outcomes(world, job.id) == ["filtered", "invalid", "filtered", "succeeded", "filtered", "invalid"]
    assert world.store.rows.tally(job.id) == {"filtered": 3, "invalid": 2, "succeeded": 1}
    assert world.retry(job, frozenset({Outcome.FILTERED})) == 3
    assert world.store.jobs.get(job.id).following == 2
    world.run()
    assert outcomes(world, job.id) == ["succeeded", "invalid", "succeeded", "succeeded", "succeeded", "invalid"]
    assert dict(world.remote.sent) == {"one": 2, "two": 1, "three": 1}


def test_a_late_answer_is_that_of_the_followers_too(world: World) -> None:
    world.force("create", "lost")
    world.plan(visible_after=3 * HOUR)
    world.plan(lost=["one"])
    job = world.submit(6, texts=TEXTS)
    world.run()
    assert outcomes(world, job.id) == ["missing", "succeeded", "missing", "succeeded", "missing", "succeeded"]
    world.run(lambda: not world.store.batches.load(open_at=world.clock.now()))
    assert outcomes(world, job.id) == ["succeeded"] * 6
    assert world.store.rows.tally(job.id) == {"succeeded": 6}


@pytest.mark.parametrize("ticks", [0, 1])
def test_a_cancel_ends_the_followers_with_their_leader(world: World, ticks: int) -> None:
    job = world.submit(6, texts=TEXTS, max_batch_requests=1)
    for _ in range(ticks):
        world.tick()
    wishes.cancel(world.engine, job)
    world.run()
    found = outcomes(world, job.id)
    assert len(found) == 6 and (set(found) == {"canceled"} or ticks)
    assert world.store.rows.tally(job.id) == world.store.rows.counted(job.id)


def test_a_job_that_adds_rows_sends_only_those(world: World) -> None:
    world.submit(6, texts=TEXTS)
    world.run()
    later = world.submit(8, job="b", texts=[*TEXTS, "four", "four"], reuse=True)
    assert (later.reused, later.repeated, later.following) == (6, 1, 1)
    world.run()
    assert dict(world.remote.sent) == {"one": 1, "two": 1, "three": 1, "four": 1}
    assert [row["echo"] for row in world.output(later)] == [*TEXTS, "four", "four"]
    assert [row["attempts"] for row in world.output(later)] == [0] * 6 + [1, 0]


def test_a_job_with_nothing_new_is_over_without_a_batch(world: World) -> None:
    world.submit(6, texts=TEXTS)
    world.run()
    later = world.submit(6, job="b", texts=TEXTS, reuse=True)
    world.tick()
    assert world.store.jobs.get(later.id).merged_at is not None
    assert world.store.batches.load(job_id=later.id) == []
    assert {row["batch"] for row in world.output(later)} == {None}


def test_only_succeeded_rows_are_taken(world: World) -> None:
    world.plan(kinds={"one": "filtered"}, lost=["two"])
    world.submit(6, texts=TEXTS)
    world.run()
    world.retried |= dict.fromkeys(["one", "two"], world.clock.now())  # the user's wish
    later = world.submit(6, job="b", texts=TEXTS, reuse=True)
    assert (later.reused, later.repeated) == (1, 3)
    world.run()
    assert dict(world.remote.sent) == {"one": 2, "two": 2, "three": 1}


def test_what_an_open_job_waits_for_is_not_paid_for_twice(world: World) -> None:
    job = world.submit(3)
    world.run(lambda: {b.state for b in world.store.batches.load()} == {BatchState.SUBMITTED})
    with pytest.raises(UsageError, match=f"job {job.name} asks 2 rows of these as well") as refused:
        world.submit(3, job="b", texts=[*world.rows_of("a", 3)[:2], "new"], reuse=True)
    assert f"batchctl wait {job.name}" in (refused.value.hint or "")
    assert [one.id for one in world.store.jobs.all()] == [job.id]
    assert not [name for name in world.engine.spool.names("jobs/") if not name.startswith(job.spool)]
    world.run()


def test_of_two_submits_at_once_the_later_one_does_not_pay_again(world: World) -> None:
    job = world.submit(3)
    with ownership(world.engine.locks) as other:
        database = world.store.jobs._db
        for values in (f"NULL, owner = '{other.name}'", str(START)):
            with database.begin() as connection:
                connection.exec_driver_sql(f"UPDATE job SET ready_at = {values} WHERE id = {job.id}")
            with pytest.raises(UsageError, match="asks 2 rows of these as well"):
                world.submit(3, job="b", texts=[*world.rows_of("a", 3)[:2], "new"], reuse=True)
    world.run()


def test_an_answer_that_an_older_job_has_does_not_wait_for_an_open_one(sampling: World) -> None:
    sampling.submit(3)
    sampling.run()
    sampling.submit(3, job="b", texts=sampling.rows_of("a", 3), again=True)
    assert sampling.submit(3, job="c", texts=sampling.rows_of("a", 3), reuse=True, again=True).reused == 3


def test_an_open_job_gives_what_it_has(world: World) -> None:
    world.plan(done_after={"one": MINUTE})
    world.plan(done_after={"two": 5 * HOUR})
    first = world.submit(2, texts=["one", "two"], max_batch_requests=1)
    world.run(lambda: world.store.jobs.get(first.id).final_rows == 1)
    assert world.submit(1, job="b", texts=["one"], reuse=True).reused == 1
    world.run()
    assert dict(world.remote.sent) == {"one": 1, "two": 1}


def test_samples_of_a_prompt_are_taken_each_once(sampling: World) -> None:
    sampling.submit(2, texts=["one", "one"], dedupe=False)
    sampling.run()
    later = sampling.submit(3, job="b", texts=["one"] * 3, dedupe=False, reuse=True)
    assert (later.reused, later.repeated, later.open_rows) == (2, 0, 1)
    assert [mark.source_row for mark in sampling.store.sources.marks(later.id)] == [0, 1]


def test_killed_anywhere_a_reusing_submit_takes_all_or_nothing(world: World) -> None:
    world.submit(6, texts=TEXTS)
    world.run()
    later, dies_after = None, 0
    while later is None:
        dies_after += 1
        world.process = Process(world, dies_after)
        try:
            later = world.submit(7, job="b", texts=[*TEXTS, "four"], reuse=True)
        except Killed:
            world.restart()
        except UsageError:  # the killed one was complete
            later = world.store.jobs.all()[-1]
            world.texts[later.id] = [*TEXTS, "four"]
        finally:
            world.process = Process(world)
    assert dies_after > 10
    assert later.reused == 6
    world.run()
    assert dict(world.remote.sent) == {"one": 1, "two": 1, "three": 1, "four": 1}


KINDS = st.sampled_from(["ok", "ok", "filtered", "invalid", "server_error"])


@given(
    texts=st.lists(st.sampled_from(["one", "two", "three", "four", "five"]), min_size=1, max_size=12),
    kinds=st.fixed_dictionaries(dict.fromkeys(["one", "two", "three", "four", "five"], KINDS)),
    most=st.integers(1, 6),
    faults=st.builds(Faults, create_lost=st.sampled_from([0, 0.5]), expires=st.sampled_from([0, 0.5])),
)
@settings(max_examples=40, deadline=None)
def test_any_table_in_any_batches_comes_out_as_if_each_row_had_been_sent(
    worlds: Worlds, texts: list[str], kinds: dict[str, str], most: int, faults: Faults
) -> None:
    found = []
    for dedupe in (True, False):
        world = worlds.make(faults=faults if dedupe else Faults())
        for _ in range(200):
            world.plan(kinds=kinds)
        job = world.submit(len(texts), texts=texts, max_batch_requests=most, max_attempts=2, dedupe=dedupe)
        faults.heal_at = world.clock.now() + HOUR
        world.run()
        found.append([[row[key] for key in ("text", "outcome", "echo", "error")] for row in world.output(job)])
        assert world.store.rows.tally(job.id) == world.store.rows.counted(job.id)
        if dedupe:
            assert not thorough(world)
            assert set(world.remote.sent) == set(texts)
        if dedupe and faults == Faults(heal_at=faults.heal_at):
            again = {text: 2 if kinds[text] == "server_error" else 1 for text in texts}
            assert dict(world.remote.sent) == again
        worlds.drop(world)
    if faults == Faults(heal_at=faults.heal_at):
        assert found[0] == found[1]
    else:  # an expiry uses up an attempt
        assert [row[:1] for row in found[0]] == [row[:1] for row in found[1]]
