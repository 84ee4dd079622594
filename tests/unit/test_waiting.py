from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from batchctl_adapters.base import BatchAdapter, Doubt
from batchctl_adapters.errors import Auth, Billing, Permanent, QueueFull, RemoteGone, SubmitUnknown, Transient
from batchctl_adapters.keys import Secret
from batchctl_adapters.openai import OpenAIAdapter
from batchctl_adapters.profile import Profile
from batchctl_adapters.waiting import Waiting
from tests.scripted import Reply, Scripted, error, scripted

BATCH = {"id": "batch_1", "status": "validating", "input_file_id": "file-1", "metadata": {}}
FILE = {"id": "file-1", "filename": "a.jsonl", "bytes": 3}
BUSY = Reply(503, error("busy"))
DOUBT = Doubt("s-1-1", "file-1", since=0.0, known_ids=frozenset(), control="file-1")


@pytest.fixture
def server() -> Iterator[Scripted]:
    with scripted() as script:
        yield script


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def patient(server: Scripted, slept: list[float]) -> Iterator[BatchAdapter]:
    adapter: BatchAdapter = OpenAIAdapter(Profile(name="t", base_url=server.url), Secret("k"))
    wrapped: BatchAdapter = Waiting(adapter, sleep=slept.append)
    yield wrapped
    wrapped.close()


CALLS: dict[str, tuple[str, str, Any, Callable[[BatchAdapter], Any]]] = {
    "poll": ("GET", "/v1/batches/batch_1", BATCH, lambda a: a.poll(["batch_1"])),
    "find": ("GET", "/v1/files/file-1", FILE, lambda a: a.find(DOUBT)),
    "cancel": ("POST", "/v1/batches/batch_1/cancel", BATCH, lambda a: a.cancel("batch_1")),
    "delete": ("DELETE", "/v1/files/file-1", {"id": "file-1", "deleted": True}, lambda a: a.delete_upload("file-1")),
    "list": ("GET", "/v1/files", {"data": [], "has_more": False}, lambda a: list(a.list_uploads(""))),
    "upload": ("POST", "/v1/files", FILE, lambda a: a.upload([b"{}\n"], name="a", size=3)),
    "fetch": ("GET", "/v1/files/f/content", b"x\n", lambda a: b"".join(a.fetch("f"))),
}


@pytest.mark.parametrize("name", CALLS)
def test_case_73_what_passes_is_tried_again(
    name: str, server: Scripted, patient: BatchAdapter, slept: list[float]
) -> None:
    method, path, body, call = CALLS[name]
    server.on("GET", "/v1/batches", Reply(body={"data": [], "has_more": False}))
    server.on(method, path, BUSY, Reply(drop=True), Reply(body=body))
    call(patient)
    assert len(server.calls(method, path)) == 3
    assert len(slept) == 2 and all(wait >= 0.5 for wait in slept)


@pytest.mark.parametrize("name", CALLS)
def test_it_is_given_up_after_the_attempts(
    name: str, server: Scripted, patient: BatchAdapter, slept: list[float]
) -> None:
    method, path, _, call = CALLS[name]
    server.on(method, path, BUSY)
    with pytest.raises(Transient, match="busy"):
        call(patient)
    assert (len(server.calls(method, path)), len(slept)) == (5, 4)


def test_retry_after_is_obeyed_and_a_long_one_is_the_engines(
    server: Scripted, patient: BatchAdapter, slept: list[float]
) -> None:
    slow = Reply(429, error("slow down"), {"retry-after": "40"})
    server.on("GET", "/v1/batches/batch_1", slow, slow, Reply(body=BATCH))
    with pytest.raises(Transient) as caught:
        patient.poll(["batch_1"])
    assert slept == [40.0] and caught.value.retry_after == 40  # twice would be over the budget of 60 s
    assert patient.poll(["batch_1"]).batches


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (BUSY, SubmitUnknown),
        (Reply(drop=True), SubmitUnknown),
        (Reply(429, error("slow down")), Transient),
        (Reply(429, error("Enqueued token limit reached")), QueueFull),
        (Reply(400, error("Cannot find file file-1")), Transient),
    ],
)
def test_case_26_create_is_sent_once_whatever_comes(
    reply: Reply, kind: type, server: Scripted, patient: BatchAdapter, slept: list[float]
) -> None:
    server.on("POST", "/v1/batches", reply)
    with pytest.raises(kind):
        patient.create("file-1", [], tag="s-1-1")
    assert (len(server.seen), slept) == (1, [])


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(401, error("no")), Auth),
        (Reply(402, error("pay")), Billing),
        (Reply(422, error("bad")), Permanent),
        (Reply(400, error("storage quota exceeded")), Transient),
    ],
)
def test_what_waiting_does_not_mend_passes_at_once(
    reply: Reply, kind: type, server: Scripted, patient: BatchAdapter, slept: list[float]
) -> None:
    server.on("POST", "/v1/files", reply)
    with pytest.raises(kind):
        patient.upload([b"{}\n"], name="a", size=3)
    assert (len(server.seen), slept) == (1, [])


def test_results_that_are_gone_pass_at_once(patient: BatchAdapter, slept: list[float]) -> None:
    with pytest.raises(RemoteGone):
        list(patient.fetch("f"))
    assert slept == []


def test_lines_that_can_be_read_once_are_sent_once(server: Scripted, patient: BatchAdapter) -> None:
    server.on("POST", "/v1/files", BUSY)
    with pytest.raises(Transient):
        patient.upload(iter([b"{}\n"]), name="a", size=3)
    assert len(server.seen) == 1


def test_a_download_that_broke_off_is_not_begun_again_behind_the_callers_back(
    server: Scripted, patient: BatchAdapter, slept: list[float]
) -> None:
    server.on("GET", "/v1/files/f/content", Reply(body=b"x" * 3_000_000, cut=1_000_000))
    chunks = patient.fetch("f")
    assert next(chunks).startswith(b"xxx")
    with pytest.raises(Transient):
        list(chunks)
    assert (len(server.seen), slept) == (1, [])
