"""Files, lists, limits and refusals of the rehearsal server, by the official SDK."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai import OpenAI

from tests.contract.openapi import Traffic
from tests.contract.requests import CHAT, by_id, rows, submit
from tests.servers import QUICK, RehearsalServer, rehearsal


def test_a_file_comes_back_byte_for_byte(client: OpenAI) -> None:
    data = rows(2_000) + b'{"text":"a\xe2\x80\xa8b"}\r\n\r\n--boundary'
    stored = client.files.create(file=("in.jsonl", data), purpose="batch")
    assert (stored.bytes, stored.filename, stored.status) == (len(data), "in.jsonl", "processed")
    assert stored.expires_at == stored.created_at + 30 * 86_400
    assert client.files.content(stored.id).content == data
    assert client.files.retrieve(stored.id).id == stored.id
    assert client.files.delete(stored.id).deleted
    with pytest.raises(openai.NotFoundError, match="No such File object"):
        client.files.retrieve(stored.id)
    with pytest.raises(openai.NotFoundError):
        client.files.delete(stored.id)


@pytest.mark.parametrize("name", ["in.json", "in.txt", "upload", "in.jsonl.gz"])
def test_case_53_a_name_that_is_not_jsonl_is_refused(client: OpenAI, name: str) -> None:
    with pytest.raises(openai.BadRequestError, match="jsonl"):
        client.files.create(file=(name, rows(1)), purpose="batch")


def test_case_40_a_file_that_is_too_large_is_refused(traffic: Traffic) -> None:
    with (
        rehearsal(in_process=True, max_file_bytes=100_000) as server,
        traffic.client(server.base_url) as client,
    ):
        kept = client.files.create(file=("in.jsonl", b"x" * 100_000), purpose="batch")
        with pytest.raises(openai.BadRequestError, match="File is too large"):
            client.files.create(file=("in.jsonl", b"x" * 100_001), purpose="batch")
        assert [one.id for one in client.files.list()] == [kept.id]


def test_files_expire_when_they_were_told_to(server: RehearsalServer, client: OpenAI) -> None:
    stored = client.files.create(
        file=("in.jsonl", rows(1)), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3_600}
    )
    assert stored.expires_at == stored.created_at + 3_600
    server.advance(3_601)
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(stored.id)
    with pytest.raises(openai.BadRequestError, match="3600"):
        client.files.create(
            file=("in.jsonl", rows(1)), purpose="batch", expires_after={"anchor": "created_at", "seconds": 60}
        )


def test_another_purpose_is_refused(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="purpose"):
        client.files.create(file=("in.jsonl", b"{}"), purpose="fine-tune")


def test_files_are_listed_in_pages_both_ways(server: RehearsalServer, client: OpenAI) -> None:
    names = [client.files.create(file=(f"{n}.jsonl", b"{}\n"), purpose="batch").id for n in range(5)]
    assert [one.id for one in client.files.list(limit=2)] == names[::-1]
    assert [one.id for one in client.files.list(limit=2, order="asc")] == names
    assert [one.id for one in client.files.list(after=names[1])] == names[:1]
    batch = submit(client, rows(1))
    server.advance(100)
    assert [one.id for one in client.files.list(purpose="batch_output")] == [
        client.batches.retrieve(batch.id).output_file_id
    ]
    with pytest.raises(openai.BadRequestError):
        client.files.list(limit=10_001)


def test_batches_are_listed_newest_first_in_pages(client: OpenAI) -> None:
    upload = client.files.create(file=("in.jsonl", rows(1)), purpose="batch")
    made = [
        client.batches.create(input_file_id=upload.id, endpoint=CHAT, completion_window="24h").id for _ in range(25)
    ]
    page = client.batches.list()
    assert (len(page.data), page.has_more) == (20, True)
    assert [one.id for one in client.batches.list(limit=7)] == made[::-1]
    assert [one.id for one in client.batches.list(after=made[1]).data] == [made[0]]
    for limit in (0, 101):
        with pytest.raises(openai.BadRequestError):
            client.batches.list(limit=limit)


def test_an_unknown_batch_is_404_in_the_words_of_the_provider(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.batches.retrieve("batch_none")
    assert caught.value.body == {
        "message": "No batch found with id 'batch_none'.",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }
    with pytest.raises(openai.NotFoundError):
        client.batches.cancel("batch_none")


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"completion_window": "5m"}, "completion_window"),
        ({"endpoint": "/chat/completions"}, "endpoint"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
        ({"metadata": {"k" * 65: "x"}}, f"metadata.{'k' * 65}"),
        ({"metadata": {"k": "x" * 513}}, "metadata.k"),
        ({"metadata": {"k": 1}}, "metadata"),
        ({"input_file_id": None}, "input_file_id"),
        ({"window": "24h"}, "window"),
    ],
)
def test_case_10_a_wrong_create_is_refused_at_once(server: RehearsalServer, change: dict[str, Any], param: str) -> None:
    body = {"input_file_id": "file-1", "endpoint": CHAT, "completion_window": "24h", **change}
    answer = httpx2.post(f"{server.base_url}/batches", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert server.ledger()["creates"] == 0


def test_the_longest_metadata_is_taken(client: OpenAI) -> None:
    metadata = {f"{n:064}": "x" * 512 for n in range(16)}
    assert submit(client, rows(1), metadata=metadata).metadata == metadata


def test_a_key_opens_its_own_project_only(traffic: Traffic) -> None:
    keys = {"sk-first-key": "one", "sk-rotated-key": "one", "sk-other-key": "two"}
    with rehearsal(speed=1, timing=QUICK, in_process=True, keys=keys) as server:
        first, rotated, other, wrong = (traffic.client(server.base_url, key) for key in (*keys, "sk-wrong-key"))
        batch = submit(first, rows(1))
        assert rotated.batches.retrieve(batch.id).id == batch.id
        assert list(other.batches.list()) == [] and list(other.files.list()) == []
        with pytest.raises(openai.NotFoundError):
            other.batches.retrieve(batch.id)
        with pytest.raises(openai.NotFoundError):
            other.files.retrieve(batch.input_file_id)
        with pytest.raises(openai.AuthenticationError) as caught:
            wrong.batches.list()
        assert caught.value.code == "invalid_api_key"
        assert "sk-wrong-key" not in caught.value.message
        for sdk in (first, rotated, other, wrong):
            sdk.close()


def test_dates_are_those_of_the_servers_clock(server: RehearsalServer, client: OpenAI) -> None:
    server.advance(40 * 86_400)
    answer = client.batches.with_raw_response.list()
    assert abs(parsedate_to_datetime(answer.headers["date"]).timestamp() - server.now()) < 5
    assert answer.headers["x-request-id"]


def test_a_day_passes_in_a_second_at_a_high_speed(traffic: Traffic) -> None:
    with rehearsal(speed=200_000, in_process=True) as server, traffic.client(server.base_url) as client:
        server.post_faults([{"kind": "expire", "share": 0.5}])
        batch = submit(client, rows(10))
        stop = time.monotonic() + 20
        while (done := client.batches.retrieve(batch.id)).status != "expired":
            assert time.monotonic() < stop, done.status
        assert len(by_id(client, done.output_file_id)) == 5


def test_state_survives_kill_9(tmp_path: Path, traffic: Traffic) -> None:
    kept: dict[str, Any] = {"speed": 1, "timing": QUICK, "state": tmp_path / "state"}
    with rehearsal(**kept) as server, traffic.client(server.base_url) as client:
        done = submit(client, rows(5))
        server.advance(100)
        done = client.batches.retrieve(done.id)
        results = client.files.content(done.output_file_id or "").content
        half = submit(client, rows(1_000, begin=5))
        server.advance(QUICK.validation_s + QUICK.queue_s + 5)
        moment = server.now()
        server.kill()
    with rehearsal(**kept) as server, traffic.client(server.base_url) as client:
        assert server.now() >= moment - 2
        assert client.batches.retrieve(done.id) == done
        assert client.files.content(done.output_file_id or "").content == results
        server.advance(100)
        ended = client.batches.retrieve(half.id)
        assert len(by_id(client, ended.output_file_id)) == 1_000
        assert server.ledger()["answered_once"] == 1_005
