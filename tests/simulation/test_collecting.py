"""What batches come to: expiry, partial results, files late, cut or gone, refusals; and what follows for the rows."""

from __future__ import annotations

import pytest

from batchctl_adapters.base import BatchError, Outcome
from batchctl_store.records import BatchState, Job
from tests.simulation.faults import DAY, HOUR, MINUTE
from tests.simulation.remote import FOREVER
from tests.simulation.world import START, World


def outcomes(world: World, job: Job) -> list[str]:
    return [row["outcome"] for row in world.output(job)]


def batch_states(world: World, job: Job) -> list[str]:
    return [batch.state.value for batch in world.store.batches.load(job_id=job.id)]


def test_case_03_expiry_with_nine_of_ten_answered_sends_eleven_requests(world: World) -> None:
    texts = world.rows_of("a", 10)
    world.plan(done_after={texts[4]: 2 * DAY})
    job = world.submit(10)
    world.run()
    assert outcomes(world, job) == ["succeeded"] * 10
    assert sum(world.remote.sent.values()) == 11
    assert world.remote.sent[texts[4]] == 2
    assert [row["attempts"] for row in world.output(job)] == [1] * 4 + [2] + [1] * 5


def test_case_03_expiry_before_anything_ran_and_without_files_sends_all_again(world: World) -> None:
    world.plan(fields={"unrun": True, "file_delays": (FOREVER, FOREVER)})
    job = world.submit(3)
    world.run()
    assert outcomes(world, job) == ["succeeded"] * 3
    assert batch_states(world, job) == ["collected", "collected"]


def test_expired_rows_are_given_up_at_the_cap(world: World) -> None:
    for _ in range(2):
        world.plan(fields={"unrun": True})
    job = world.submit(2, max_attempts=2)
    world.run(hours=60)
    assert outcomes(world, job) == ["expired"] * 2
    assert len(world.remote.batches) == 2


def test_case_04_a_batch_canceled_at_the_provider_keeps_its_partials_and_sends_the_rest(world: World) -> None:
    texts = world.rows_of("a", 4)
    world.plan(fields={"cancel_at": START + HOUR, "counts": "reset"}, done_after=dict.fromkeys(texts[2:], 5 * HOUR))
    job = world.submit(4)
    world.run()
    assert outcomes(world, job) == ["succeeded"] * 4
    assert [world.remote.sent[text] for text in texts] == [1, 1, 2, 2]


def test_case_04_a_row_in_neither_file_after_a_cancel_is_missing_and_not_sent_again(world: World) -> None:
    texts = world.rows_of("a", 3)
    world.plan(fields={"cancel_at": START + HOUR, "counts": "reset"}, lost=texts[:1])
    job = world.submit(3)
    world.run()
    assert outcomes(world, job) == ["missing", "succeeded", "succeeded"]
    assert world.remote.sent[texts[0]] == 1
    assert "may have been billed" in world.output(job)[0]["error"]


def test_case_07_an_unknown_status_is_polled_on(world: World) -> None:
    world.plan(fields={"unknown": (START, START + 5 * HOUR)})
    job = world.submit(2)
    world.run()
    assert any("'pre_schedule', which is unknown here" in note for note in world.notes)
    assert outcomes(world, job) == ["succeeded"] * 2


def test_case_09_a_batch_that_answers_404_three_times_is_gone(world: World) -> None:
    world.plan(fields={"not_found_at": START, "not_found_looks": FOREVER})
    job = world.submit(2)
    world.run()
    assert outcomes(world, job) == ["gone"] * 2
    assert batch_states(world, job) == ["gone"]
    looks = [event.text for event in world.store.jobs.events(job.id) if "was not found" in event.text]
    assert len(looks) == 3
    assert world.remote.sent["a row 000"] == 1, "what may have been billed is not sent again by itself"


def test_case_09_a_batch_that_answers_404_twice_is_not_gone(world: World) -> None:
    world.plan(fields={"not_found_at": START, "not_found_looks": 2})
    job = world.submit(2)
    world.run()
    assert outcomes(world, job) == ["succeeded"] * 2


def test_case_11_a_result_file_that_is_gone_leaves_its_rows_gone_and_keeps_the_other_file(world: World) -> None:
    texts = world.rows_of("a", 3)
    world.plan(fields={"gone_files": ("output",)}, kinds={texts[1]: "bad_request"})
    job = world.submit(3)
    world.run()
    assert outcomes(world, job) == ["gone", "errored", "gone"]


def test_case_11_a_result_file_that_is_not_there_yet_is_not_gone(world: World) -> None:
    world.plan(fields={"bad_fetches": {"output": ["gone", "gone"], "error": []}})
    job = world.submit(3)
    world.run()
    assert outcomes(world, job) == ["succeeded"] * 3


def test_case_12_every_row_failed_and_there_is_no_output_file(world: World) -> None:
    texts = world.rows_of("a", 3)
    world.plan(kinds=dict.fromkeys(texts, "bad_request"))
    job = world.submit(3)
    world.run()
    assert outcomes(world, job) == ["errored"] * 3
    assert len(world.remote.batches) == 1, "400s are not sent again"


def test_case_13_answers_errors_and_never_answered_add_up(world: World) -> None:
    texts = world.rows_of("a", 4)
    world.plan(kinds={texts[0]: "bad_request", texts[1]: "server_error"}, lost=[texts[2]])
    job = world.submit(4)
    world.run()
    assert outcomes(world, job) == ["errored", "succeeded", "missing", "succeeded"]
    assert world.store.rows.tally(job.id) == {"errored": 1, "missing": 1, "succeeded": 2}


def test_case_16_lines_that_cannot_be_read_are_kept_apart(world: World) -> None:
    world.plan(fields={"noise": [b"not json", b"[]", b'{"id":"\xff"}']})
    job = world.submit(2)
    world.run()
    assert outcomes(world, job) == ["succeeded"] * 2
    with world.engine.spool.reader(f"{job.spool}/quarantine/1") as reader:
        assert reader.line_count == 3


def test_case_18_an_answer_that_is_not_what_was_asked_for_is_invalid_until_retried(world: World) -> None:
    texts = world.rows_of("a", 2)
    world.plan(kinds={texts[0]: "invalid"})
    job = world.submit(2)
    world.run()
    assert outcomes(world, job) == ["invalid", "succeeded"]
    assert world.output(job)[0]["label"] is None


@pytest.mark.parametrize("bad", ["cut", "torn", "short", "gone"])
def test_case_20_a_download_that_is_not_whole_is_done_again(world: World, bad: str) -> None:
    world.plan(fields={"bad_fetches": {"output": [bad] * 3, "error": []}})
    job = world.submit(3)
    world.run()
    assert outcomes(world, job) == ["succeeded"] * 3


def test_case_20_results_short_of_the_rows_are_fetched_for_half_an_hour_and_then_missing(world: World) -> None:
    texts = world.rows_of("a", 3)
    world.plan(lost=[texts[1]])
    job = world.submit(3)
    world.run()
    assert outcomes(world, job) == ["succeeded", "missing", "succeeded"]
    events = world.store.jobs.events(job.id)
    first = next(event.at for event in events if "hold 2 rows of 3" in event.text)
    last = next(event.at for event in events if event.target == "collected")
    assert 30 * MINUTE <= last - first < 40 * MINUTE


@pytest.mark.parametrize("counts", ["honest", "none", "low", "reset"])
@pytest.mark.parametrize("delays", [(15 * MINUTE, 0.0), (0.0, 15 * MINUTE), (15 * MINUTE, 20 * MINUTE)])
def test_file_ids_that_come_late_are_waited_for(world: World, counts: str, delays: tuple[float, float]) -> None:
    texts = world.rows_of("a", 4)
    world.plan(fields={"file_delays": delays, "counts": counts}, kinds={texts[3]: "bad_request"})
    job = world.submit(4)
    world.run()
    assert outcomes(world, job) == ["succeeded"] * 3 + ["errored"]
    assert world.remote.sent[texts[0]] == 1


def test_patience_begins_anew_with_a_file_that_is_named_late(world: World) -> None:
    texts = world.rows_of("a", 3)
    late = {"file_delays": (25 * MINUTE, 0.0), "bad_fetches": {"output": ["gone"] * 4, "error": []}}
    world.plan(fields=late, kinds={texts[2]: "bad_request"})
    job = world.submit(3)
    world.run()
    assert outcomes(world, job) == ["succeeded", "succeeded", "errored"]


def test_case_22_a_validation_failure_that_names_a_line_fails_that_row_only(world: World) -> None:
    error = BatchError("invalid_request", "not allowed", line=2)
    world.plan(fields={"fate": "rejected", "errors": (error,), "hidden_counts": True})
    job = world.submit(3)
    world.run()
    assert outcomes(world, job) == ["succeeded", "errored", "succeeded"]
    assert batch_states(world, job) == ["rejected", "collected"]
    assert "a.jsonl, line 2" in world.output(job)[1]["error"], "the line of the user's own file"
    assert [row["attempts"] for row in world.output(job)] == [1, 0, 1]


def test_case_22_a_validation_failure_that_names_no_line_fails_the_batch(world: World) -> None:
    world.plan(fields={"fate": "rejected", "errors": (BatchError("model_not_found", "no such model"),)})
    job = world.submit(4, max_batch_requests=2)
    world.run()
    assert outcomes(world, job) == ["errored"] * 2 + ["succeeded"] * 2


def test_case_57_a_row_answered_twice_is_taken_once(world: World) -> None:
    job = world.submit(3)
    world.run(lambda: bool(world.remote.batches))
    batch = world.remote.batches["batch-1"]
    batch.duplicated = frozenset(row.custom_id for row in batch.rows)
    world.run()
    assert outcomes(world, job) == ["succeeded"] * 3
    assert any("3 more than once" in event.text for event in world.store.jobs.events(job.id))


def test_case_56_results_in_any_order_join_on_their_id(world: World) -> None:
    job = world.submit(20)
    world.run()
    lines = world.remote.batches["batch-1"].lines("output")
    rows = [row["text"] for row in world.output(job)]
    assert [row["echo"] for row in world.output(job)] == rows
    assert [line.split(b'"')[3] for line in lines] != sorted(line.split(b'"')[3] for line in lines)


def test_a_transient_failure_is_sent_again_up_to_the_cap(world: World) -> None:
    text = world.rows_of("a", 1)[0]
    for kind in ("server_error", "rate_limited", "server_error"):
        world.plan(kinds={text: kind})
    job = world.submit(1, max_attempts=3)
    world.run()
    assert outcomes(world, job) == [Outcome.ERRORED_TRANSIENT]
    assert world.remote.sent[text] == 3


def test_a_death_while_results_are_taken_in_loses_none(world: World) -> None:
    for effect in ("fetch.before", "fetch.after", "spool.before", "spool.after"):
        world.restart()
        job = world.submit(3, job=effect.replace(".", ""))
        world.run(lambda: {b.state for b in world.store.batches.load()} <= {BatchState.SUBMITTED, BatchState.COLLECTED})
        world.clock.sleep(2 * HOUR)
        assert world.tick(dies_at=effect) is None
        world.run()
        assert outcomes(world, job) == ["succeeded"] * 3


def test_every_point_of_death_on_the_way_of_one_job(world: World) -> None:
    """Killed at the first effect, then at the second, and so on to the twenty-fifth, over and over."""
    job = world.submit(4, max_batch_requests=2)
    deaths = 0
    for count in range(400):
        if world.tick(dies_after=1 + count % 25) is None:
            deaths += 1
        world.clock.sleep(5 * MINUTE)
        if not world.store.jobs.get(job.id).open:
            break
    assert outcomes(world, job) == ["succeeded"] * 4
    assert deaths > 10
