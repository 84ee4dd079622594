"""Files at the provider after the merge: when they may go, and what happens where that fails."""

from __future__ import annotations

from pathlib import Path

from batchctl.retention import Retention
from batchctl_adapters.base import Outcome
from batchctl_store.records import SubmissionState
from tests.simulation.conftest import Make
from tests.simulation.faults import DAY, HOUR, MINUTE, Spell
from tests.simulation.world import World


def left(world: World) -> set[str]:
    """Files that the provider still has, uploaded and of results."""
    uploads = {file.file_id for file in world.remote.files.values() if not file.deleted}
    results = {file for batch in world.remote.batches.values() for file in batch.files(world.clock.now())}
    return uploads | results - world.remote.deleted


def test_case_32_a_merged_jobs_files_are_deleted_by_the_pass_that_merges(world: World) -> None:
    job = world.submit(6, max_batch_requests=2)
    world.run()
    assert left(world) == set()
    told = [event.text for event in world.store.jobs.events(job.id) if event.text.startswith("deleted")]
    assert told == [f"deleted 2 files at the provider: file-{n}, batch-{n}/output" for n in (1, 2, 3)]
    again = world.tick()
    assert again is not None and again.done == {}


def test_case_28_a_file_whose_upload_had_no_answer_is_deleted_with_the_others(world: World) -> None:
    world.force("upload", "lost")
    world.submit(3)
    world.run()
    assert [file.name for file in world.remote.files.values()] == ["simula-1-1", "simula-1-2"]
    assert left(world) == set()


def test_case_32_nothing_is_deleted_before_the_merge_worked(world: World) -> None:
    job = world.submit(2)
    assert job.output_path is not None
    Path(job.output_path).write_text("somebody's own\n", encoding="utf-8")
    for _ in range(12):
        world.tick()
        world.clock.sleep(10 * MINUTE)
    assert world.store.jobs.get(job.id).finished_at is not None
    assert left(world) == {"file-1", "batch-1/output"}
    Path(job.output_path).unlink()
    world.tick()
    assert left(world) == set()


def test_a_file_used_by_two_tries_goes_once_after_both(world: World) -> None:
    world.plan(fields={"fate": "queue_full"})
    world.submit(3)
    world.run()
    tries = world.store.batches.get(1).submissions
    assert [(s.upload_id, s.remote_id) for s in tries] == [("file-1", "batch-1"), ("file-1", "batch-2")]
    assert left(world) == set()
    assert sum("file-1 is deleted" in line for line in world.trace) == 1


def test_nothing_is_deleted_while_a_try_that_was_proved_absent_is_watched_for(world: World) -> None:
    world.force("create", "undone")
    world.submit(3)
    world.run()
    first = world.store.batches.get(1).submissions[0]
    assert first.state is SubmissionState.ABSENT and first.watch_until is not None
    assert left(world) == {"file-2", "batch-1/output"}, "the fence alone is gone"
    world.clock.sleep(first.watch_until - world.clock.now() - MINUTE)
    world.tick()
    assert left(world) == {"file-2", "batch-1/output"}
    world.clock.sleep(2 * MINUTE)
    world.tick()
    assert left(world) == set()


def test_a_try_found_late_is_collected_before_its_files_go(world: World) -> None:
    world.force("create", "lost")
    world.plan(visible_after=50 * MINUTE, done_after={"a row 000": 3 * HOUR})
    world.plan(done_after=dict.fromkeys(World.rows_of("a", 3), 4 * HOUR))
    world.submit(3)
    world.run()
    assert [s.state for s in world.store.batches.get(1).submissions] == [SubmissionState.DONE] * 2
    assert left(world) == set()


def test_killed_between_two_deletions_goes_on_where_it_was(world: World) -> None:
    world.submit(2)
    world.run(lambda: world.store.batches.get(1).live != (), hours=1)
    world.clock.sleep(2 * HOUR)
    assert world.tick(dies_at="delete_upload.after") is None
    assert left(world) == {"batch-1/output"}
    world.tick()
    assert left(world) == set()


def test_case_32_a_failed_deletion_is_tried_again_later_and_fails_no_job(world: World) -> None:
    job = world.submit(4, max_batch_requests=2)
    world.force("delete_upload", "fails")
    world.run()
    assert not world.store.jobs.get(job.id).open
    assert len(left(world)) == 4, "the account's other files wait, too"
    assert any("nothing depends on it" in note for note in world.notes)
    world.tick()
    assert len(left(world)) == 4
    world.clock.sleep(11 * MINUTE)
    world.tick()
    assert left(world) == set()


def test_a_deletion_that_always_fails_is_given_up(make: Make) -> None:
    world = make()
    job = world.submit(2)
    world.force("delete_upload", *["fails"] * 5)
    world.run()
    for _ in range(5):
        world.clock.sleep(DAY + HOUR)
        world.tick()
    assert len(left(world)) == 2
    assert any("left to their expiry" in event.text for event in world.store.jobs.events(job.id))


def test_without_a_key_it_is_tried_once_a_day_until_the_files_have_expired(make: Make) -> None:
    world = make()
    job = world.submit(4, max_batch_requests=2)
    world.run(lambda: all(batch.live for batch in world.store.batches.load()), hours=1)
    world.clock.sleep(2 * HOUR)
    world.force("delete_upload", "fails")
    world.tick()
    world.faults.spells = (Spell("auth", world.clock.now(), world.clock.now() + 100 * DAY),)
    for _ in range(31):
        world.clock.sleep(DAY + MINUTE)
        world.tick()
    world.faults.spells = ()
    world.clock.sleep(2 * DAY)
    assert len(left(world)) == 4
    world.tick()
    told = [event.text for event in world.store.jobs.events(job.id) if "left to their expiry" in event.text]
    assert len(left(world)) == 4 and len(told) == 2, "one failure is enough for all that have expired"


def test_files_may_be_kept(make: Make) -> None:
    world = make(retention=Retention(keep_remote_files=True))
    world.submit(2)
    world.run()
    assert len(left(world)) == 2


def test_gc_between_two_retries_changes_nothing_of_what_is_sent(world: World) -> None:
    world.plan(kinds={"a row 001!": "bad_request"})
    world.plan(kinds={"a row 001!": "bad_request"})
    job = world.submit(4)
    world.run()
    for _ in range(2):
        world.collect()
        assert world.retry(job, frozenset({Outcome.ERRORED})) == 1
        world.run()
    assert [row["outcome"] for row in world.output(job)] == ["succeeded"] * 4
    assert world.remote.sent["a row 001!"] == 3 and world.remote.sent["a row 000"] == 1
