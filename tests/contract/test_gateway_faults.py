"""Each fault of the rehearsal server, as a client meets it."""

from __future__ import annotations

import time
from typing import Any

import httpx2
import openai
import orjson
import pytest
from openai import OpenAI
from openai.types import Batch

from tests.contract.requests import CHAT, by_id, raw_lines, rows, submit
from tests.servers import QUICK, RehearsalServer


def _create(client: OpenAI, file_id: str) -> Batch:
    return client.batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h")


def _completed(server: RehearsalServer, client: OpenAI, count: int, fault: dict[str, Any]) -> Batch:
    server.post_faults([fault])
    batch = submit(client, rows(count))
    server.advance(100)
    return client.batches.retrieve(batch.id)


@pytest.mark.parametrize(("kind", "stored"), [("drop", 0), ("drop_after", 1), ("error", 0), ("error_after", 1)])
def test_case_26_27_a_create_without_an_answer_may_have_happened(
    server: RehearsalServer, client: OpenAI, kind: str, stored: int
) -> None:
    upload = client.files.create(file=("in.jsonl", rows(1)), purpose="batch")
    server.post_faults([{"op": "create", "kind": kind, "nth": 1}])
    expected = openai.APIConnectionError if kind.startswith("drop") else openai.InternalServerError
    with pytest.raises(expected):
        _create(client, upload.id)
    assert len(list(client.batches.list())) == stored
    _create(client, upload.id)
    assert (server.ledger()["creates"], server.fired()) == (stored + 1, [1])


def test_case_26_a_create_that_hangs_has_happened(server: RehearsalServer, client: OpenAI) -> None:
    upload = client.files.create(file=("in.jsonl", rows(1)), purpose="batch")
    server.post_faults([{"op": "create", "kind": "hang", "times": 1}])
    with pytest.raises(openai.APITimeoutError):
        _create(client.with_options(timeout=0.3), upload.id)
    assert server.ledger()["creates"] == 1


@pytest.mark.parametrize(("kind", "stored"), [("drop", 0), ("drop_after", 1), ("error_after", 1)])
def test_case_28_an_upload_without_an_answer_may_have_happened(
    server: RehearsalServer, client: OpenAI, kind: str, stored: int
) -> None:
    server.post_faults([{"op": "upload", "kind": kind, "nth": 1}])
    with pytest.raises((openai.APIConnectionError, openai.InternalServerError)):
        client.files.create(file=("in.jsonl", rows(5_000)), purpose="batch")
    assert len(list(client.files.list())) == stored


def test_rate_limits_and_other_errors_look_as_told(server: RehearsalServer, client: OpenAI) -> None:
    server.post_faults(
        [
            {"op": "list", "kind": "rate_limit", "nth": 1, "retry_after": 7},
            {"op": "list", "kind": "rate_limit", "nth": 2, "code": "insufficient_quota"},
            {"op": "list", "kind": "error", "nth": 3, "status": 401, "code": "invalid_api_key"},
        ]
    )
    with pytest.raises(openai.RateLimitError) as limited:
        client.batches.list()
    assert limited.value.response.headers["retry-after"] == "7"
    assert limited.value.code == "rate_limit_exceeded"
    with pytest.raises(openai.RateLimitError) as broke:
        client.batches.list()
    assert broke.value.code == "insufficient_quota"
    with pytest.raises(openai.AuthenticationError):
        client.batches.list()
    assert client.batches.list().data == []


def test_case_73_an_error_can_have_a_body_of_html(server: RehearsalServer) -> None:
    server.post_faults([{"op": "retrieve", "kind": "error", "status": 502, "body": "html"}])
    answer = httpx2.get(f"{server.base_url}/batches/batch_x")
    assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (502, "text/html")


def test_an_answer_can_be_slow(server: RehearsalServer, client: OpenAI) -> None:
    server.post_faults([{"op": "list", "kind": "slow", "wall_s": 0.4}])
    begin = time.monotonic()
    client.batches.list()
    assert time.monotonic() - begin >= 0.4


def test_case_30_the_file_is_not_visible_at_first(server: RehearsalServer, client: OpenAI) -> None:
    upload = client.files.create(file=("in.jsonl", rows(1)), purpose="batch")
    server.post_faults([{"kind": "file_not_visible", "nth": [1, 2]}])
    for _ in range(2):
        with pytest.raises(openai.BadRequestError, match=f"Cannot find file {upload.id}") as caught:
            _create(client, upload.id)
        assert caught.value.param == "file_id"
    assert _create(client, upload.id).status == "validating"


def test_case_30_the_list_lags(server: RehearsalServer, client: OpenAI) -> None:
    server.post_faults([{"kind": "list_lag", "seconds": 60}])
    batch = submit(client, rows(1))
    assert client.batches.list().data == []
    assert client.batches.retrieve(batch.id).id == batch.id
    server.advance(60)
    assert [one.id for one in client.batches.list()] == [batch.id]


def test_the_lists_can_be_empty(server: RehearsalServer, client: OpenAI) -> None:
    submit(client, rows(1))
    server.post_faults([{"op": "list", "kind": "list_empty"}, {"op": "list_files", "kind": "list_empty", "times": 1}])
    assert client.batches.list().data == [] == client.files.list().data
    assert len(client.files.list().data) == 1


@pytest.mark.parametrize("length", ["announced", "chunked", "none"])
@pytest.mark.parametrize("at_line_end", [False, True])
def test_case_20_a_download_ends_early(server: RehearsalServer, client: OpenAI, length: str, at_line_end: bool) -> None:
    batch = submit(client, rows(200))
    server.advance(100)
    file_id = client.batches.retrieve(batch.id).output_file_id or ""
    whole = client.files.content(file_id).content
    fault = {"kind": "truncate", "share": 0.505, "length": length, "at_line_end": at_line_end, "times": 1}
    server.post_faults([fault])
    received = bytearray()
    broken = None
    try:
        with client.files.with_streaming_response.content(file_id) as answer:
            for chunk in answer.iter_bytes():
                received += chunk
    except (httpx2.HTTPError, openai.APIConnectionError) as error:
        broken = error
    assert 0 < len(received) < len(whole) and whole.startswith(bytes(received))
    assert received.endswith(b"\n") is at_line_end
    assert (broken is None) is (length == "none"), "only a proper chunked end hides the cut"
    assert client.files.content(file_id).content == whole


def test_the_file_ids_appear_after_completed(server: RehearsalServer, client: OpenAI) -> None:
    done = _completed(server, client, 3, {"kind": "files_late", "seconds": 600})
    assert (done.status, done.output_file_id) == ("completed", None)
    assert done.request_counts is not None and done.request_counts.completed == 3
    server.advance(600)
    assert len(by_id(client, client.batches.retrieve(done.id).output_file_id)) == 3


def test_case_07_a_status_nobody_knows(server: RehearsalServer) -> None:
    client = server.client()  # not watched: the document does not have this status
    server.post_faults([{"kind": "unknown_status", "raw_status": "pre_schedule", "seconds": 12}])
    batch = submit(client, rows(1_000))
    server.advance(QUICK.validation_s)
    assert str(client.batches.retrieve(batch.id).status) == "pre_schedule"
    server.advance(13)
    assert client.batches.retrieve(batch.id).status == "in_progress"
    server.advance(100)
    assert client.batches.retrieve(batch.id).status == "completed"
    client.close()


def test_rows_in_neither_file(server: RehearsalServer, client: OpenAI) -> None:
    done = _completed(server, client, 50, {"kind": "missing_rows", "share": 0.1})
    assert len(by_id(client, done.output_file_id)) == 45 and done.error_file_id is None
    assert done.request_counts is not None and done.request_counts.completed == 50
    assert (server.ledger()["answered"], server.ledger()["lost"]) == (45, 5)


def test_rows_written_twice(server: RehearsalServer, client: OpenAI) -> None:
    done = _completed(server, client, 50, {"kind": "duplicate_rows", "share": 0.2})
    lines = raw_lines(client, done.output_file_id)
    assert (len(lines), len(set(lines))) == (60, 50)
    assert server.ledger()["answered_once"] == 50


def test_case_16_lines_that_cannot_be_read(server: RehearsalServer, client: OpenAI) -> None:
    done = _completed(server, client, 60, {"kind": "malformed_lines", "share": 0.5})
    kinds = {"good": 0, "bad_json": 0, "bad_utf8": 0, "no_custom_id": 0, "not_object": 0}
    for raw in raw_lines(client, done.output_file_id):
        try:
            parsed = orjson.loads(raw)
        except orjson.JSONDecodeError:
            kinds["bad_utf8" if b"\xff" in raw else "bad_json"] += 1
            continue
        kind = "good" if isinstance(parsed, dict) and "custom_id" in parsed else None
        kinds[kind or ("no_custom_id" if isinstance(parsed, dict) else "not_object")] += 1
    assert kinds.pop("good") == 30 and sum(kinds.values()) == 30 and all(kinds.values())
    assert (server.ledger()["answered"], server.ledger()["lost"]) == (30, 30)


def test_malformed_lines_can_stand_beside_the_good_ones(server: RehearsalServer, client: OpenAI) -> None:
    done = _completed(server, client, 20, {"kind": "malformed_lines", "share": 0.5, "extra": True, "form": "bad_json"})
    assert len(raw_lines(client, done.output_file_id)) == 30
    assert (server.ledger()["answered"], server.ledger()["lost"]) == (20, 0)


@pytest.mark.parametrize("status", [0, 429, 500, 400])
@pytest.mark.parametrize("in_output", [False, True])
def test_case_15_rows_that_failed_inside_a_completed_batch(
    server: RehearsalServer, client: OpenAI, status: int, in_output: bool
) -> None:
    fault = {"kind": "row_status", "share": 0.3, "status": status, "in_output": in_output}
    done = _completed(server, client, 20, fault)
    failed = by_id(client, done.output_file_id if in_output else done.error_file_id)
    codes = [one["response"]["status_code"] for one in failed.values()]
    assert codes.count(status) == 6
    assert all(one["error"] is None for one in failed.values())
    assert done.request_counts is not None and done.request_counts.failed == 6
    assert (server.ledger()["answered"], server.ledger()["failed"]) == (14, 6)


def test_case_09_a_batch_vanishes(server: RehearsalServer, client: OpenAI) -> None:
    batch = submit(client, rows(1))
    server.post_faults([{"kind": "vanish", "batch_id": batch.id}])
    with pytest.raises(openai.NotFoundError, match="No batch found"):
        client.batches.retrieve(batch.id)
    assert client.batches.list().data == []


def test_case_11_a_result_file_is_gone(server: RehearsalServer, client: OpenAI) -> None:
    done = _completed(server, client, 1, {"kind": "files_gone", "file": "output"})
    assert done.output_file_id is not None
    with pytest.raises(openai.NotFoundError):
        client.files.content(done.output_file_id)


def test_case_01_a_batch_runs_past_its_window(server: RehearsalServer, client: OpenAI) -> None:
    server.post_faults([{"kind": "overdue", "seconds": 60 * 3_600}])
    batch = submit(client, rows(1))
    server.advance(26 * 3_600)
    assert client.batches.retrieve(batch.id).status == "in_progress"
    server.advance(60 * 3_600)
    assert client.batches.retrieve(batch.id).status == "completed"


def test_a_batch_fails_as_told_and_may_have_no_counts(server: RehearsalServer, client: OpenAI) -> None:
    server.post_faults(
        [{"kind": "fail", "code": "billing_hard_limit_reached", "message": "no credit"}, {"kind": "null_counts"}]
    )
    batch = submit(client, rows(1))
    server.advance(QUICK.validation_s)
    failed = client.batches.retrieve(batch.id)
    assert failed.errors is not None and failed.errors.data is not None
    assert (failed.status, failed.request_counts) == ("failed", None)
    assert (failed.errors.data[0].code, failed.errors.data[0].message) == ("billing_hard_limit_reached", "no credit")


def test_faults_choose_batches_by_tag_or_file(server: RehearsalServer, client: OpenAI) -> None:
    server.post_faults([{"kind": "fail", "match": "store-1"}, {"kind": "fail", "match": "second"}])
    upload = client.files.create(file=("second.jsonl", rows(1)), purpose="batch")
    batches = [
        submit(client, rows(1), metadata={"tag": "store-1-1"}),
        submit(client, rows(1), metadata={"tag": "store-2-1"}),
        _create(client, upload.id),
    ]
    server.advance(100)
    found = [client.batches.retrieve(batch.id).status for batch in batches]
    assert found == ["failed", "completed", "failed"]


@pytest.mark.parametrize(
    "plan",
    [
        {"faults": [{"kind": "no_such"}]},
        {"faults": [{"kind": "expire", "op": "create"}]},
        {"faults": [{"kind": "truncate", "op": "create"}]},
        {"faults": [{"kind": "drop", "op": "batch"}]},
        {"faults": [{"kind": "drop", "probability": 2}]},
        {"fault": []},
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(server: RehearsalServer, plan: dict[str, Any]) -> None:
    assert httpx2.post(f"{server.root_url}/rehearsal/faults", json=plan).status_code == 400


def test_the_ledger_sees_a_row_sent_after_its_answer(server: RehearsalServer, client: OpenAI) -> None:
    submit(client, rows(10))
    server.advance(100)
    clean = server.ledger()
    assert (clean["sent_after_answered"], clean["max_in_flight_twice"], clean["answered_once"]) == (0, 0, 10)
    submit(client, rows(4))
    server.advance(100)
    report = server.ledger(bodies=True)
    assert (report["sent_after_answered"], report["max_in_flight_twice"]) == (4, 0)
    assert (report["answered_once"], report["answered_more_than_once"], report["distinct"]) == (6, 4, 10)
    assert sorted(body["sent"] for body in report["bodies"].values()) == [1] * 6 + [2] * 4
