"""The life of a batch at the rehearsal server, by the official SDK: every status, both files, both error shapes."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.contract.openapi import Traffic
from tests.contract.requests import CHAT, by_id, content_of, line, raw_lines, rows, submit
from tests.servers import QUICK, RehearsalServer, rehearsal

DAY = 86_400


def test_a_batch_goes_through_every_status_to_completed(
    server: RehearsalServer, client: OpenAI, traffic: Traffic
) -> None:
    batch = submit(client, rows(1_000), metadata={"tag": "store-1-1"})
    assert (batch.status, batch.metadata) == ("validating", {"tag": "store-1-1"})
    assert batch.expires_at == batch.created_at + DAY
    assert batch.request_counts is not None and batch.request_counts.total == 0

    server.advance(QUICK.validation_s)
    assert client.batches.retrieve(batch.id).status == "in_progress"
    server.advance(QUICK.queue_s + 5)
    running = client.batches.retrieve(batch.id)
    assert running.request_counts is not None
    assert 500 <= running.request_counts.completed < 1_000 and running.request_counts.total == 1_000
    assert running.output_file_id is None

    server.advance(6)
    assert client.batches.retrieve(batch.id).status == "finalizing"
    server.advance(QUICK.finalizing_s)
    done = client.batches.retrieve(batch.id)
    assert done.status == "completed" and done.model == "gpt-4o-mini" and done.error_file_id is None
    assert done.request_counts is not None and done.request_counts.completed == 1_000
    moments = [done.created_at, done.in_progress_at, done.finalizing_at, done.completed_at]
    assert moments == sorted(moments, key=lambda moment: moment or 0)

    results = by_id(client, done.output_file_id)
    assert set(results) == {f"r{number}" for number in range(1_000)}
    assert done.usage is not None
    used = sum(result["response"]["body"]["usage"]["total_tokens"] for result in results.values())
    assert done.usage.total_tokens == used
    assert {
        "createBatch response",
        "createBatch request",
        "createFile form",
        "retrieveBatch response",
    } <= traffic.checked


def test_case_56_results_come_in_another_order(server: RehearsalServer, client: OpenAI) -> None:
    batch = submit(client, rows(50))
    server.advance(100)
    done = client.batches.retrieve(batch.id)
    order = list(by_id(client, done.output_file_id))
    assert sorted(order, key=lambda one: int(one[1:])) != order


def test_case_12_every_row_failed_is_completed_without_an_output_file(server: RehearsalServer, client: OpenAI) -> None:
    batch = submit(client, rows(9, temperature=9))
    server.advance(100)
    done = client.batches.retrieve(batch.id)
    assert (done.status, done.output_file_id) == ("completed", None)
    assert done.request_counts is not None
    assert (done.request_counts.completed, done.request_counts.failed) == (0, 9)
    failed = by_id(client, done.error_file_id)["r0"]
    assert failed["error"] is None
    assert failed["response"]["status_code"] == 400
    assert failed["response"]["body"]["error"]["type"] == "invalid_request_error"
    assert failed["response"]["body"]["error"]["param"] == "temperature"


def test_case_13_good_and_bad_rows_add_up(server: RehearsalServer, client: OpenAI) -> None:
    batch = submit(client, rows(7) + rows(3, begin=7, messages=[]))
    server.advance(100)
    done = client.batches.retrieve(batch.id)
    good, bad = by_id(client, done.output_file_id), by_id(client, done.error_file_id)
    assert (len(good), sorted(bad)) == (7, ["r7", "r8", "r9"])


def test_case_03_an_expired_batch_keeps_what_was_answered(server: RehearsalServer, client: OpenAI) -> None:
    server.post_faults([{"kind": "expire", "share": 0.7}])
    batch = submit(client, rows(100))
    server.advance(DAY - 60)
    assert client.batches.retrieve(batch.id).status == "in_progress"
    server.advance(120)
    done = client.batches.retrieve(batch.id)
    assert done.status == "expired" and done.expired_at == done.expires_at
    assert done.request_counts is not None
    assert (done.request_counts.total, done.request_counts.completed, done.request_counts.failed) == (100, 70, 0)
    good, rest = by_id(client, done.output_file_id), by_id(client, done.error_file_id)
    assert (len(good), len(rest), len({*good, *rest})) == (70, 30, 100)
    assert {one["error"]["code"] for one in rest.values()} == {"batch_expired"}
    assert all(one["response"] is None for one in rest.values())
    assert (server.ledger()["answered"], server.ledger()["unanswered"]) == (70, 30)


def test_an_expired_batch_may_have_no_output_at_all(server: RehearsalServer, client: OpenAI) -> None:
    server.post_faults([{"kind": "expire", "share": 0}])
    batch = submit(client, rows(3))
    server.advance(DAY + 1)
    done = client.batches.retrieve(batch.id)
    assert (done.status, done.output_file_id, len(by_id(client, done.error_file_id))) == ("expired", None, 3)


def test_case_04_a_cancelled_batch_keeps_what_was_answered(server: RehearsalServer, client: OpenAI) -> None:
    batch = submit(client, rows(2_000))
    server.advance(QUICK.validation_s + QUICK.queue_s + 5)
    asked = client.batches.cancel(batch.id)
    assert asked.status == "cancelling" and asked.cancelling_at is not None
    again = client.batches.cancel(batch.id)
    assert again.status == "cancelling"
    assert again.request_counts is not None and again.request_counts.completed == 0

    server.advance(QUICK.cancelling_s + 1)
    done = client.batches.retrieve(batch.id)
    assert done.status == "cancelled" and done.cancelled_at is not None
    good, rest = by_id(client, done.output_file_id), by_id(client, done.error_file_id)
    assert 1_500 <= len(good) < 1_700, "rows keep finishing during the first half of the cancel"
    assert len(good) + len(rest) == 2_000 and not set(good) & set(rest)
    assert {one["error"]["code"] for one in rest.values()} == {"batch_cancelled"}


def test_a_cancel_before_validation_runs_nothing(server: RehearsalServer, client: OpenAI) -> None:
    batch = submit(client, rows(5))
    client.batches.cancel(batch.id)
    server.advance(QUICK.cancelling_s)
    done = client.batches.retrieve(batch.id)
    assert (done.status, done.output_file_id, done.error_file_id) == ("cancelled", None, None)
    assert server.ledger()["requests_sent"] == 0


def test_cancelling_what_has_ended_is_a_conflict(server: RehearsalServer, client: OpenAI) -> None:
    batch = submit(client, rows(1))
    server.advance(100)
    with pytest.raises(openai.ConflictError, match="Cannot cancel a batch with status 'completed'"):
        client.batches.cancel(batch.id)


BAD_FILES: list[tuple[str, bytes, int | None, str | None]] = [
    ("invalid_json_line", rows(1) + b"{not json}\n", 2, None),
    ("invalid_json_line", rows(1) + b"[]\n", 2, None),
    ("invalid_json_line", b"\xef\xbb\xbf" + rows(1), 1, None),
    ("duplicate_custom_id", rows(2) + line("r1"), 3, "custom_id"),
    ("missing_required_parameter", rows(1) + b'{"method":"POST","url":"/v1/x","body":{}}\n', 2, "custom_id"),
    ("mismatched_model", rows(2) + line("b", model="gpt-4o"), 3, "body.model"),
    ("model_not_found", line("a", model="gpt-unknown"), 1, "body.model"),
    ("invalid_url", rows(1) + line("b", url="/v1/responses"), 2, "url"),
    ("streaming_unsupported", rows(1) + line("b", stream=True), 2, "body.stream"),
    ("invalid_request", line("a", model=None), None, None),
    ("invalid_request", b"\n\n", None, None),
    ("invalid_request", rows(21), None, None),
]


@pytest.fixture(scope="module")
def strict_server() -> Any:
    with rehearsal(
        speed=1, timing=QUICK, in_process=True, models=("gpt-4o-mini", "gpt-4o"), max_requests=20
    ) as running:
        yield running


@pytest.mark.parametrize(("code", "data", "number", "param"), BAD_FILES)
def test_case_22_validation_fails_late_with_one_error(
    strict_server: RehearsalServer, traffic: Traffic, code: str, data: bytes, number: int | None, param: str | None
) -> None:
    with traffic.client(strict_server.base_url) as client:
        batch = submit(client, data + b"more rubbish\n" if number else data)
        assert batch.status == "validating"
        strict_server.advance(QUICK.validation_s)
        failed = client.batches.retrieve(batch.id)
        assert failed.status == "failed" and failed.failed_at is not None
        assert failed.errors is not None and failed.errors.data is not None
        [error] = failed.errors.data
        assert (error.code, error.line, error.param) == (code, number, param)
        assert failed.request_counts is not None and failed.request_counts.total == 0
        assert failed.output_file_id is None and failed.error_file_id is None


def test_an_unknown_or_deleted_input_file_fails_late(server: RehearsalServer, client: OpenAI) -> None:
    unknown = client.batches.create(input_file_id="file-none", endpoint=CHAT, completion_window="24h")
    deleted = submit(client, rows(1))
    client.files.delete(deleted.input_file_id)
    server.advance(QUICK.validation_s)
    for batch_id in (unknown.id, deleted.id):
        failed = client.batches.retrieve(batch_id)
        assert failed.errors is not None and failed.errors.data is not None
        assert failed.status == "failed"
        assert (failed.errors.data[0].code, failed.errors.data[0].param) == ("invalid_request", "file_id")


def test_deleting_the_input_of_a_running_batch_does_not_stop_it(server: RehearsalServer, client: OpenAI) -> None:
    batch = submit(client, rows(10))
    server.advance(QUICK.validation_s)
    client.files.delete(batch.input_file_id)
    server.advance(100)
    assert len(by_id(client, client.batches.retrieve(batch.id).output_file_id)) == 10
    with pytest.raises(openai.NotFoundError):
        client.files.content(batch.input_file_id)


def test_case_36_the_enqueued_token_limit_fails_late_and_frees_again(traffic: Traffic) -> None:
    text = "x" * 4_000  # about 1,000 tokens a row
    with (
        rehearsal(speed=1, timing=QUICK, in_process=True, queue_limits={"*": 25_000}) as server,
        traffic.client(server.base_url) as client,
    ):
        held = [
            submit(client, b"".join(line(f"{shard}-{n}", f"{shard}-{n} {text}") for n in range(10)))
            for shard in range(3)
        ]
        server.advance(QUICK.validation_s + 1)
        found = [client.batches.retrieve(batch.id) for batch in held]
        assert [batch.status for batch in found] == ["in_progress", "in_progress", "failed"]
        assert found[2].errors is not None and found[2].errors.data is not None
        error = found[2].errors.data[0]
        assert (error.code, error.line, error.param) == ("token_limit_exceeded", None, None)
        assert "Enqueued token limit reached for gpt-4o-mini" in (error.message or "")

        server.advance(100)
        again = client.batches.create(input_file_id=held[2].input_file_id, endpoint=CHAT, completion_window="24h")
        server.advance(100)
        assert client.batches.retrieve(again.id).status == "completed"
        ledger = server.ledger()
        assert (ledger["requests_received"], ledger["requests_sent"], ledger["answered_once"]) == (40, 30, 30)
        assert ledger["sent_after_answered"] == 0


def test_other_endpoints_have_answers_of_their_own_shape(server: RehearsalServer, client: OpenAI) -> None:
    embeddings = submit(
        client, line("e", url="/v1/embeddings", input=["a", "b"], messages=None), endpoint="/v1/embeddings"
    )
    responses = submit(client, line("x", url="/v1/responses", input="hello", messages=None), endpoint="/v1/responses")
    server.advance(100)
    found = by_id(client, client.batches.retrieve(embeddings.id).output_file_id)["e"]["response"]["body"]
    assert len(found["data"]) == 2 and len(found["data"][0]["embedding"]) == 8
    done = client.batches.retrieve(responses.id)
    body = by_id(client, done.output_file_id)["x"]["response"]["body"]
    assert body["output"][0]["content"][0]["type"] == "output_text"
    assert done.usage is not None and done.usage.output_tokens == body["usage"]["output_tokens"] > 0


def test_result_files_expire(server: RehearsalServer, client: OpenAI) -> None:
    batch = submit(client, rows(1), output_expires_after={"anchor": "created_at", "seconds": 3_600})
    server.advance(100)
    done = client.batches.retrieve(batch.id)
    assert len(raw_lines(client, done.output_file_id)) == 1
    server.advance(3_600)
    with pytest.raises(openai.NotFoundError):
        client.files.content(done.output_file_id or "")
    with server.client() as unwatched, pytest.raises(openai.BadRequestError, match="3600"):
        submit(unwatched, rows(1), output_expires_after={"anchor": "created_at", "seconds": 60})


def test_the_same_rows_get_the_same_answers(server: RehearsalServer, client: OpenAI) -> None:
    first, second = submit(client, rows(20)), submit(client, rows(20))
    server.advance(100)
    answers = [
        {name: content_of(one) for name, one in by_id(client, client.batches.retrieve(b.id).output_file_id).items()}
        for b in (first, second)
    ]
    assert answers[0] == answers[1]
    ledger = server.ledger()
    assert (ledger["answered_more_than_once"], ledger["max_in_flight_twice"]) == (20, 20)
