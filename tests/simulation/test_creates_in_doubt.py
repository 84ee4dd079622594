"""Creates whose answer is lost, processes that die around them: one batch in the end, or a proof that there is none."""

from __future__ import annotations

from batchctl.engine import wishes
from batchctl.engine.locks import ownership
from batchctl.engine.submit import upload
from batchctl.retention import Retention
from batchctl_store.records import BatchState, SubmissionState
from tests.simulation.conftest import Make
from tests.simulation.faults import HOUR, MINUTE, Faults, Spell
from tests.simulation.world import START, World


def ids(world: World) -> list[str]:
    return [batch.remote_id for batch in world.remote.batches.values()]


def live_files(world: World) -> list[str]:
    return [file.name for file in world.remote.files.values() if not file.deleted]


def keep_files(world: World) -> None:
    """Merged jobs leave their files at the provider: what is deleted is deleted for another reason."""
    world.retention = Retention(keep_remote_files=True)


def state(world: World) -> BatchState:
    return world.store.batches.get(1).state


def test_case_28_killed_after_the_upload_reply_leaves_no_orphan_file(world: World) -> None:
    keep_files(world)
    world.submit(3)
    assert world.tick(dies_at="upload.after") is None
    assert state(world) is BatchState.UPLOADING
    world.run()
    assert live_files(world) == ["simula-1-2"]
    assert ids(world) == ["batch-1"]


def test_case_28_killed_between_upload_and_create_uses_the_uploaded_file(world: World) -> None:
    world.submit(3)
    assert world.tick(dies_at="create.before") is None
    world.run()
    assert next(file.name for file in world.remote.files.values()) == "simula-1-1"
    assert len(ids(world)) == 1


def test_case_26_killed_after_the_create_finds_its_batch_again(world: World) -> None:
    job = world.submit(3)
    assert world.tick(dies_at="create.after") is None
    assert state(world) is BatchState.SUBMITTING
    world.tick()
    assert state(world) is BatchState.SUBMITTING, "nobody looks before the send deadline and the grace are over"
    world.run()
    assert ids(world) == ["batch-1"]
    assert [row["outcome"] for row in world.output(job)] == ["succeeded"] * 3


def test_case_26_a_lost_answer_with_a_lagging_list_ends_in_one_batch(world: World) -> None:
    world.force("create", "lost")
    world.plan(visible_after=8 * MINUTE)
    world.submit(3)
    world.run()
    assert ids(world) == ["batch-1"]
    looks = [s.looks for s in world.store.batches.get(1).submissions]
    assert looks == [1], "the first look came too early to see it"


def test_case_27_a_create_answered_500_is_looked_for_and_not_repeated(make: Make) -> None:
    world = make(faults=Faults(spells=(Spell("storm", START + 5, START + HOUR),)))
    world.submit(3)
    world.force("create", "lost")
    world.run()
    assert len(ids(world)) == 1


def test_a_create_that_never_happened_is_proved_absent_before_the_next(world: World) -> None:
    keep_files(world)
    world.force("create", "undone")
    world.submit(3)
    sent_at = world.clock.now()
    world.run()
    first, second = world.store.batches.get(1).submissions
    assert (first.state, first.looks >= 3) == (SubmissionState.ABSENT, True)
    assert first.first_look_at is not None and first.fenced_at is not None
    assert first.first_look_at >= first.send_deadline + world.profile.grace_s
    assert first.fenced_at - first.first_look_at >= world.profile.proof_span_s
    files = list(world.remote.files.values())
    assert [(file.name, file.deleted) for file in files] == [("simula-1-1", True), ("simula-1-2", False)]
    assert files[1].created_at > first.fenced_at > sent_at, "the old file is deleted before the new one is sent"
    assert second.tag == "simula-1-2"
    assert world.remote.sent["a row 000"] == 1


def test_the_proof_survives_a_death_between_fence_and_last_look(world: World) -> None:
    keep_files(world)
    world.force("create", "undone")
    world.submit(3)
    world.run(
        lambda: world.store.batches.get(1).note is not None and "2 looks" in (world.store.batches.get(1).note or "")
    )
    world.clock.sleep(HOUR)
    assert world.tick(dies_at="delete_upload.after") is None
    world.run()
    assert world.store.batches.get(1).submissions[0].state is SubmissionState.ABSENT
    assert len(ids(world)) == 1


def test_a_failed_fence_is_tried_again(world: World) -> None:
    world.force("create", "undone")
    world.force("delete_upload", "fails")
    world.submit(3)
    world.run()
    assert live_files(world) == ["simula-1-2"]


def test_absent_then_found_late_before_the_second_create_is_adopted(world: World) -> None:
    world.force("create", "lost")
    world.plan(visible_after=2 * HOUR)
    job = world.submit(3)
    world.tick()
    wishes.pause(world.engine, job)
    world.run(lambda: state(world) is BatchState.PLANNED)
    world.clock.sleep(3 * HOUR)
    wishes.resume(world.engine, job)
    world.run()
    first = world.store.batches.get(1).submissions[0]
    assert ids(world) == ["batch-1"], "found before anything else was sent"
    assert (first.remote_id, first.state) == ("batch-1", SubmissionState.DONE)


def test_absent_then_found_late_after_the_second_create_is_waste_and_said_so(world: World) -> None:
    world.force("create", "lost")
    world.plan(visible_after=50 * MINUTE, done_after={"a row 000": 3 * HOUR})
    world.plan(done_after=dict.fromkeys(World.rows_of("a", 3), 4 * HOUR))
    job = world.submit(3)
    world.run()
    assert ids(world) == ["batch-1", "batch-2"]
    first, second = world.store.batches.get(1).submissions
    assert (first.state, second.state) == (SubmissionState.DONE, SubmissionState.DONE)
    assert world.remote.batches["batch-2"].cancel_at < START + 5 * HOUR, "the less advanced one is canceled"
    assert any("found late" in note for note in world.notes)
    assert [row["outcome"] for row in world.output(job)] == ["succeeded"] * 3


def test_a_late_batch_that_nobody_waits_for_is_canceled(world: World) -> None:
    world.force("create", "lost")
    world.plan(visible_after=3 * HOUR, done_after={"a row 000": 20 * HOUR})
    world.submit(3)
    world.run()
    assert len(ids(world)) == 2
    world.run(lambda: not world.store.batches.load(open_at=world.clock.now()))
    late = world.remote.batches["batch-1"]
    assert late.cancel_at < late.created_at + 5 * HOUR


def test_a_late_answer_fills_a_missing_row_once(world: World) -> None:
    world.force("create", "lost")
    world.plan(visible_after=3 * HOUR)
    world.plan(lost=["a row 001!"])
    job = world.submit(3)
    world.run()
    assert [row["outcome"] for row in world.output(job)] == ["succeeded", "missing", "succeeded"]
    world.run(lambda: not world.store.batches.load(open_at=world.clock.now()))
    assert [row["outcome"] for row in world.output(job)] == ["succeeded"] * 3
    assert world.store.rows.tally(job.id) == {"succeeded": 3}


def test_a_late_batch_found_while_the_next_is_in_doubt_is_followed_instead(world: World) -> None:
    world.force("create", "lost", "ok", "undone")
    world.plan(visible_after=32 * MINUTE)
    world.plan(done_after={"b row 000": 6 * HOUR})
    world.submit(3)
    world.submit(1, job="b")
    world.run()
    first, second = world.store.batches.get(1).submissions
    assert (first.remote_id, second.state) == ("batch-1", SubmissionState.ABSENT)
    assert ids(world) == ["batch-1", "batch-2"], "one for each job"


def test_case_26_a_rotated_key_proves_nothing_and_sends_nothing(make: Make) -> None:
    world = make(faults=Faults(spells=(Spell("rotated", START + 150, START + 10 * HOUR),)))
    world.force("create", "lost")
    world.submit(3)
    world.run(lambda: world.clock.now() > START + 9 * HOUR)
    assert state(world) is BatchState.IN_DOUBT
    assert ids(world) == ["batch-1"]
    assert any("is in doubt" in note and "not visible with this key" in note for note in world.notes)
    world.run()
    assert ids(world) == ["batch-1"]


def test_a_batch_under_a_rotated_key_is_not_gone(make: Make) -> None:
    world = make(faults=Faults(spells=(Spell("rotated", START + 60, START + 10 * HOUR),)))
    job = world.submit(3)
    world.run(lambda: world.clock.now() > START + 9 * HOUR)
    assert state(world) is BatchState.SUBMITTED
    assert any("cannot tell" in note for note in world.notes)
    world.run()
    assert [row["outcome"] for row in world.output(job)] == ["succeeded"] * 3


def test_a_stopped_owner_is_left_alone_and_reported(world: World) -> None:
    world.submit(3)
    engine = world.compose()
    with ownership(engine.locks) as owner:
        engine.owner = owner.name
        upload(engine, engine.store.batches.get(1))
        batch = engine.store.batches.get(1)
        engine.store.batches.begin_submit(
            batch, tag="simula-1-1", n=1, owner=owner.name, now=world.clock.now(), send_deadline=world.clock.now() + 120
        )
        world.clock.sleep(5 * HOUR)
        report = world.tick()
        assert state(world) is BatchState.SUBMITTING
        assert report is not None and any(owner.name in note for note in report.notes)
    engine.store.close()
    world.run()
    assert len(ids(world)) == 1


def test_a_sender_that_was_stopped_past_its_deadline_sends_nothing(world: World) -> None:
    world.submit(3)
    original = world._effect

    def stop(name: str) -> None:
        original(name)
        if name == "commit.after" and state_of(world) == "submitting" and world.clock.now() < START + HOUR:
            world.clock.sleep(2 * HOUR)

    world.restart()
    world.adapter._effect = original
    world._effect = stop  # type: ignore[method-assign]
    world.tick()
    assert ids(world) == []
    assert state(world) is BatchState.READY
    world.run()
    assert len(ids(world)) == 1


def state_of(world: World) -> str | None:
    import sqlite3

    db = sqlite3.connect(world.folder / "store.db")
    try:
        row = db.execute("SELECT state FROM batch WHERE id = 1").fetchone()
    finally:
        db.close()
    return row[0] if row else None


def test_cancel_while_in_doubt_resolves_first(world: World) -> None:
    world.force("create", "lost")
    world.plan(visible_after=5 * MINUTE, done_after={"a row 002!!": 20 * HOUR})
    job = world.submit(3)
    world.tick()
    wishes.cancel(world.engine, job)
    world.tick()
    assert state(world) is BatchState.IN_DOUBT
    world.run()
    assert world.remote.batches["batch-1"].cancel_at < START + HOUR
    outcomes = [row["outcome"] for row in world.output(job)]
    assert outcomes[2] == "canceled" and len(ids(world)) == 1


def test_a_cancel_refuses_a_create_that_was_decided_before(world: World) -> None:
    job = world.submit(3)
    world.tick(dies_at="create.before")
    wishes.cancel(world.engine, job)
    world.run()
    assert ids(world) == []
    assert [row["outcome"] for row in world.output(job)] == ["canceled"] * 3
