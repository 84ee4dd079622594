"""CASES C, 36 to 40, 53 and 73, through the command line: what goes out, and how often."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from tests.acceptance.conftest import MakeDesk
from tests.acceptance.desk import PROFILE, Desk, numbered, outcomes
from tests.servers import QUICK


def test_case_27_a_create_that_was_answered_500_is_found_and_known(make_desk: MakeDesk) -> None:
    desk = make_desk(faults=[{"op": "create", "kind": "error_after", "status": 500, "body": "empty", "nth": [1, 3]}])
    job = desk.submit(desk.task(), desk.table(numbered(40)), "--max-batch-requests", 10)
    desk.settle(job)
    known = {batch["remote_id"] for batch in desk.batches(job)}
    with desk.server.client() as client:
        assert known == {batch.id for batch in client.batches.list().data}, "no batch runs that nobody knows of"
    assert desk.server.ledger()["answered_once"] == 40


def test_case_28_a_kill_between_upload_and_create_sends_no_file_twice(make_desk: MakeDesk) -> None:
    desk = make_desk(faults=[{"op": "create", "kind": "hang", "nth": 2, "wall_s": 20}])
    job = desk.submit(desk.task(), desk.table(numbered(60)), "--max-batch-requests", 10, "--no-tick")
    tick = desk.start("tick")
    while desk.server.ledger()["creates"] < 2:
        time.sleep(0.02)
    tick.kill()
    assert [batch["state"] for batch in desk.batches(job)] == ["submitted", "submitting", *["ready"] * 4]
    desk.settle(job)
    counted = desk.server.ledger()
    assert (counted["uploads"], counted["creates"], counted["answered_once"]) == (6, 6, 60)


def test_case_28_a_file_whose_upload_was_cut_off_is_deleted_and_sent_again(make_desk: MakeDesk) -> None:
    desk = make_desk(faults=[{"op": "upload", "kind": "hang", "nth": 1, "wall_s": 20}])
    job = desk.submit(desk.task(), desk.table(numbered(10)), "--no-tick")
    tick = desk.start("tick")
    while desk.server.ledger()["uploads"] < 1:
        time.sleep(0.02)
    tick.kill()
    desk.settle(job)
    counted = desk.server.ledger()
    assert (counted["uploads"], counted["calls"]["delete_file"], counted["creates"]) == (2, 1, 1)
    assert counted["answered_once"] == 10


def test_case_30_a_file_that_is_not_visible_yet_is_waited_for(make_desk: MakeDesk) -> None:
    desk = make_desk(faults=[{"kind": "file_not_visible", "nth": [1, 2]}])
    job = desk.submit(desk.task(), desk.table(numbered(10)))
    desk.settle(job)
    assert {row["attempts"] for row in desk.results(job, codes=(0,))} == {1}
    counted = desk.server.ledger()
    assert (counted["uploads"], counted["creates"], counted["calls"]["create"]) == (1, 1, 3)


def test_case_32_a_full_file_storage_pauses_and_fails_nothing(make_desk: MakeDesk) -> None:
    quota = {
        "op": "upload",
        "kind": "error",
        "status": 400,
        "message": "You exceeded your file storage quota of 100 GB",
    }
    desk = make_desk(faults=[{**quota, "times": 3}])
    job = desk.submit(desk.task(), desk.table(numbered(20)), "--max-batch-requests", 10)
    assert "delete files at the provider" in desk.run("status", job).out.replace("\n", " ") + desk.events(job)
    desk.settle(job)
    assert {row["attempts"] for row in desk.results(job, codes=(0,))} == {1}
    with desk.server.client() as client:
        assert all(batch.output_file_id for batch in client.batches.list().data)


def test_case_33_retry_sends_failed_rows_only_and_once(make_desk: MakeDesk) -> None:
    desk = make_desk(faults=[{"kind": "row_status", "status": 400, "share": 0.21, "nth": 1}])
    job = desk.submit(desk.task(), desk.table(numbered(100)))
    desk.settle(job)
    before = desk.results(job, codes=(3,))
    assert outcomes(before) == {"succeeded": 79, "errored": 21}
    desk.run("retry", job, "--where", "errored")
    desk.run("retry", job, "--where", "errored", codes=(0, 1))
    desk.settle(job)
    after = desk.results(job, codes=(0,))
    kept = [row["id"] for row in before if row["outcome"] == "succeeded"]
    assert [row for row in after if row["id"] in kept] == [row for row in before if row["id"] in kept]
    counted = desk.server.ledger()
    assert (counted["requests_received"], counted["answered_once"], counted["creates"]) == (121, 100, 2)


def test_case_34_reordered_keys_are_the_same_job_and_other_rows_or_models_are_not(desk: Desk) -> None:
    rows = numbered(5)
    first = desk.submit(desk.task(), desk.table(rows, "a.jsonl"))
    turned = desk.table([dict(reversed(row.items())) for row in rows], "b.jsonl")
    refused = desk.run("submit", desk.folder / "task.yaml", turned, "--provider", PROFILE, codes=(2,))
    assert first in refused.err
    desk.submit(desk.folder / "task.yaml", desk.table(numbered(6), "c.jsonl"))
    desk.submit(desk.task(name="other.yaml", model="another-model"), desk.folder / "a.jsonl")
    desk.submit(desk.task(name="warm.yaml", params={"temperature": 0.5}), desk.folder / "a.jsonl")
    desk.submit(desk.task(name="asked.yaml", prompt="Say: {{ text }}"), desk.folder / "a.jsonl")
    assert len(desk.views.jobs()) == 5


@pytest.mark.parametrize("status", [400, 503])
def test_case_35_a_batch_stays_with_the_provider_that_has_its_file(make_desk: MakeDesk, status: int) -> None:
    other = make_desk(name="other")
    desk = make_desk(faults=[{"op": "create", "kind": "error", "status": status, "nth": 1}])
    settings = (desk.folder / "batchctl.toml").read_text()
    second = settings[settings.index("[") :].replace(PROFILE, "second")
    second = second.replace(desk.server.base_url, other.server.base_url)
    (desk.folder / "batchctl.toml").write_text(settings + second)
    job = desk.submit(desk.task(), desk.table(numbered(20)), "--max-batch-requests", 10)
    desk.settle(job)
    assert outcomes(desk.results(job)) == ({"succeeded": 20} if status == 503 else {"errored": 10, "succeeded": 10})
    assert other.server.ledger()["calls"] == {}


def test_case_36_a_full_token_queue_is_waited_out_with_the_same_files(make_desk: MakeDesk) -> None:
    rows = [{"text": f"{number} " + "many words here " * 40} for number in range(25)]
    desk = make_desk(queue_limits={"*": 3_500}, timing=replace(QUICK, queue_s=600))
    job = desk.submit(desk.task(), desk.table(rows), "--max-batch-requests", 5)
    desk.settle(job)
    merged = desk.results(job, codes=(0,))
    assert {row["attempts"] for row in merged} == {1}, "no attempt is used up"
    counted = desk.server.ledger()
    assert counted["batches"]["failed"] >= 1, "the limit was met"
    assert counted["uploads"] == 5, "and the uploaded files used again"
    assert counted["answered_once"] == counted["requests_sent"] == 25


def test_case_38_a_limit_of_enqueued_requests_is_waited_out_as_well(make_desk: MakeDesk) -> None:
    text = "You have reached the maximum of 1000000 enqueued requests for this model."
    faults = [
        {"kind": "fail", "code": "request_limit", "message": text, "times": 2},
        {"op": "create", "kind": "error", "status": 429, "message": text, "nth": 1},
    ]
    desk = make_desk(faults=faults)
    job = desk.submit(desk.task(), desk.table(numbered(30)), "--max-batch-requests", 10)
    desk.settle(job)
    assert {row["attempts"] for row in desk.results(job, codes=(0,))} == {1}
    counted = desk.server.ledger()
    assert (counted["uploads"], counted["answered_once"], counted["batches"]) == (3, 30, {"completed": 3, "failed": 2})


def test_case_40_files_are_measured_in_bytes_as_they_are_sent(make_desk: MakeDesk) -> None:
    limit = 20_000
    desk = make_desk(profile={"max_bytes": limit, "max_line_bytes": limit}, max_file_bytes=limit)
    rows = [{"id": number, "text": f"{number} " + "ü漢字🙂" * (number % 60)} for number in range(150)]
    rows.insert(100, {"id": 999, "text": "long " * limit})
    job = desk.submit(desk.task(), desk.table(rows, "input.jsonl"))
    desk.settle(job)
    merged = desk.results(job, codes=(3,))
    assert [row["id"] for row in merged if row["outcome"] != "succeeded"] == [999]
    assert "too_large" in merged[100]["error"] and str(limit) in merged[100]["error"]
    sizes = [batch["bytes"] for batch in desk.batches(job)]
    assert max(sizes) <= limit and min(sizes) > limit / 2, "as few as the limit allows, as even as can be"
    with desk.server.client() as client:
        assert sorted(file.bytes for file in client.files.list(purpose="batch").data) == sorted(sizes)


def test_case_40_rows_are_counted_as_well(make_desk: MakeDesk) -> None:
    desk = make_desk(profile={"max_requests": 50}, max_requests=50)
    job = desk.submit(desk.task(), desk.table(numbered(51)))
    desk.settle(job)
    assert outcomes(desk.results(job, codes=(0,))) == {"succeeded": 51}
    assert sorted(batch["requests"] for batch in desk.batches(job)) == [25, 26]


def test_case_53_every_upload_is_named_jsonl(desk: Desk) -> None:
    desk.submit(desk.task(), desk.table(numbered(20)), "--max-batch-requests", 5)
    with desk.server.client() as client:
        names = [file.filename for file in client.files.list(purpose="batch").data]
    assert len(set(names)) == 4 and all(name.endswith(".jsonl") for name in names)


def test_case_73_polls_that_fail_change_nothing_and_batches_are_asked_for_together(make_desk: MakeDesk) -> None:
    desk = make_desk(timing=replace(QUICK, queue_s=4_000))
    job = desk.submit(desk.task(), desk.table(numbered(100)), "--max-batch-requests", 5)
    for fault in (
        {"kind": "error", "status": 502, "body": "html"},
        {"kind": "rate_limit", "retry_after": 120},
        {"kind": "drop"},
        {"kind": "error", "status": 500},
        {"kind": "error", "status": 404, "body": "html"},
    ):
        desk.server.post_faults([{"op": op, **fault} for op in ("list", "retrieve")])
        desk.server.advance(300)
        desk.tick()
        assert {batch["state"] for batch in desk.batches(job)} == {"submitted"}
    desk.server.post_faults([])
    before = desk.server.ledger()["calls"]
    desk.server.advance(300)
    desk.tick()
    after = desk.server.ledger()["calls"]
    assert (after["list"] - before["list"], after.get("retrieve", 0) - before.get("retrieve", 0)) == (1, 0)
    desk.settle(job)
    assert outcomes(desk.results(job, codes=(0,))) == {"succeeded": 100}
    assert desk.server.ledger()["creates"] == 20


def test_case_73_a_retry_after_is_obeyed(make_desk: MakeDesk) -> None:
    faults = [{"op": op, "kind": "rate_limit", "retry_after": 1_000} for op in ("list", "retrieve")]
    desk = make_desk(timing=replace(QUICK, queue_s=4_000), faults=faults)
    job = desk.submit(desk.task(), desk.table(numbered(10)), "--max-batch-requests", 5)
    desk.server.advance(300)
    desk.tick()
    calls = desk.server.ledger()["calls"]
    for _ in range(3):
        desk.server.advance(200)
        desk.tick()
    assert desk.server.ledger()["calls"] == calls
    status = json.loads(desk.run("status", job, "--json").out)
    assert status["jobs"][0]["exit_code"] == 4


def test_case_65_a_model_that_batches_do_not_have_fails_every_row_at_once(make_desk: MakeDesk) -> None:
    fault = {"kind": "fail", "code": "model_not_found", "message": "no such model", "line": 1, "param": "body.model"}
    desk = make_desk(faults=[fault])
    job = desk.submit(desk.task(), desk.table(numbered(10)))
    desk.settle(job)
    assert {row["error"] for row in desk.results(job, codes=(3,))} == {
        "model_not_found: the provider refused the batch: no such model (line 1)"
    }
    assert desk.server.ledger()["creates"] == 1, "the line it names is not to blame: no row is sent again"
