"""Queues, keys and money: what concerns an account holds all its batches, and costs no row an attempt."""

from __future__ import annotations

import pytest

from batchctl_store.records import Job
from tests.simulation.conftest import Make
from tests.simulation.faults import HOUR, MINUTE, Faults, Spell, SpellKind
from tests.simulation.world import START, World


def outcomes(world: World, job: Job) -> list[str]:
    return [row["outcome"] for row in world.output(job)]


def test_case_36_a_queue_that_is_full_late_uses_the_same_upload_and_no_attempt(world: World) -> None:
    world.plan(fields={"fate": "queue_full"})
    world.plan(fields={"fate": "queue_full", "hidden_counts": True})
    job = world.submit(2)
    world.run()
    first, second, third = world.remote.batches.values()
    assert first.upload_id == second.upload_id == third.upload_id
    assert [batch.tag for batch in (first, second, third)] == ["simula-1-1", "simula-1-2", "simula-1-3"]
    assert {row.custom_id[:10] for row in third.rows} == {"simula-1-1"}, "custom ids carry the upload's tag"
    assert [row["attempts"] for row in world.output(job)] == [1, 1]
    assert len(world.store.batches.load(job_id=job.id)) == 1


def test_case_36_a_reused_file_in_doubt_is_not_mistaken_for_its_failed_batch(world: World) -> None:
    world.plan(fields={"fate": "queue_full"})
    world.force("create", "ok", "lost")
    job = world.submit(2)
    world.run()
    assert outcomes(world, job) == ["succeeded"] * 2
    assert len(world.remote.batches) == 2


def test_case_38_a_queue_refused_at_create_pauses_the_account_once(world: World) -> None:
    world.force("create", "queue")
    job = world.submit(6, max_batch_requests=1)
    world.tick()
    assert not world.remote.batches, "the batches behind the first one are held back"
    account = world.store.batches.accounts()["model"]
    assert account.pause_kind == "queue"
    world.run()
    assert outcomes(world, job) == ["succeeded"] * 6
    assert world.store.batches.accounts()["model"].paused_at is None


def test_case_36_two_jobs_share_the_queue_of_their_account(make: Make) -> None:
    world = make(faults=Faults(queue_room=4))
    one, other = world.submit(8, job="a", max_batch_requests=2), world.submit(8, job="b", max_batch_requests=4)
    world.run()
    assert outcomes(world, one) == outcomes(world, other) == ["succeeded"] * 8
    assert any(batch.fate == "queue_full" for batch in world.remote.batches.values())
    assert {row["attempts"] for row in world.output(one) + world.output(other)} == {1}


@pytest.mark.parametrize("kind", ["auth", "billing"])
def test_case_45_keys_and_money_pause_the_account_and_it_heals(make: Make, kind: SpellKind) -> None:
    world = make(faults=Faults(spells=(Spell(kind, START, START + 5 * HOUR),)))
    job = world.submit(4, max_batch_requests=1)
    world.run(lambda: world.clock.now() > START + 4 * HOUR)
    account = world.store.batches.accounts()["model"]
    assert account.pause_kind == kind and account.pause_reason
    assert not world.remote.batches
    world.run()
    assert outcomes(world, job) == ["succeeded"] * 4
    assert world.store.batches.accounts()["model"].paused_at is None


def test_a_key_that_fails_while_batches_run_changes_nothing_about_them(make: Make) -> None:
    world = make(faults=Faults(spells=(Spell("auth", START + 5 * MINUTE, START + 6 * HOUR),)))
    job = world.submit(2)
    world.run()
    assert outcomes(world, job) == ["succeeded"] * 2
    assert len(world.remote.batches) == 1


def test_case_30_a_file_that_is_not_visible_yet_is_waited_for(world: World) -> None:
    world.force("create", "invisible", "invisible")
    world.submit(2)
    world.run()
    assert [file.name for file in world.remote.files.values()] == ["simula-1-1"]


def test_case_30_a_file_that_is_lost_is_uploaded_again(world: World) -> None:
    world.force("create", "queue")
    world.submit(2)
    world.tick()
    world.remote.files["file-1"].deleted = True
    world.run()
    assert [file.name for file in world.remote.files.values()][-1] != "simula-1-1"
    assert len(world.remote.batches) == 1


def test_case_32_an_upload_that_fails_is_tried_again(world: World) -> None:
    world.force("upload", "fails", "lost", "fails")
    job = world.submit(2)
    world.run()
    assert outcomes(world, job) == ["succeeded"] * 2
    assert [file.name for file in world.remote.files.values()] == ["simula-1-2", "simula-1-4"]
