"""What the adapter does with answers that no well-behaved server gives, over real HTTP."""

from __future__ import annotations

import hashlib
import logging
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from batchctl_adapters.base import Absent, Doubt, Found, Phase, Unsure
from batchctl_adapters.errors import (
    AdapterError,
    Auth,
    Billing,
    Permanent,
    RemoteGone,
    Transient,
)
from batchctl_adapters.keys import Secret
from batchctl_adapters.openai import OpenAIAdapter
from batchctl_adapters.profile import Profile
from tests.contract.odd.objects import BATCH, DOUBT, FILE, KEY, adapter_to, listed
from tests.scripted import Reply, Scripted, error, scripted

# Upload


def test_case_53_the_file_is_named_jsonl(server: Scripted) -> None:
    adapter = adapter_to(server.url, upload_expires_after_s=3600)
    server.on("POST", "/v1/files", Reply(body=FILE | {"status": "processed"}))
    for name in ("s-1-1", "s-1-1.jsonl"):
        upload = adapter.upload([b"{}\n"], name=name, size=3)
        assert (upload.upload_id, upload.size, upload.ready) == ("file-1", 3, True)
    for seen in server.seen:
        assert b'filename="s-1-1.jsonl"' in seen.body and b"\r\n\r\n{}\n\r\n" in seen.body
        assert b'name="purpose"\r\n\r\nbatch\r\n' in seen.body
        assert b'name="expires_after[seconds]"\r\n\r\n3600\r\n' in seen.body
        assert seen.size == int(seen.headers["content-length"])
    adapter.close()


def test_a_file_still_in_process_is_not_ready(server: Scripted, adapter: OpenAIAdapter) -> None:
    server.on("POST", "/v1/files", Reply(body=FILE | {"status": "pending"}), Reply(body=FILE | {"status": "error"}))
    assert adapter.upload([b"{}\n"], name="a", size=3).ready is False
    with pytest.raises(Permanent, match="not accepted"):
        adapter.upload([b"{}\n"], name="a", size=3)


@pytest.mark.parametrize("size", [0, 1, 5, 7, 100_000])
def test_a_wrong_size_is_an_error_before_the_request_is_complete(
    size: int, server: Scripted, adapter: OpenAIAdapter
) -> None:
    server.on("POST", "/v1/files", Reply(body=FILE))
    with pytest.raises(Permanent, match="announced") as caught:
        adapter.upload(iter([b"{}\n", b"{}\n"]), name="a", size=size)
    assert caught.value.code == "size_mismatch"
    for seen in server.seen:
        assert seen.size < int(seen.headers["content-length"])


def test_an_error_of_the_lines_own_comes_through(adapter: OpenAIAdapter) -> None:
    def broken() -> Iterator[bytes]:
        yield b"{}\n"
        raise OSError("the spool is gone")

    with pytest.raises(OSError, match="spool"):
        adapter.upload(broken(), name="a", size=100)


def test_an_upload_is_never_whole_in_memory(server: Scripted, adapter: OpenAIAdapter) -> None:
    line = b'{"custom_id":"r1","body":"' + b"x" * 1000 + b'"}\n'
    count = 30_000
    got = hashlib.sha256()

    def lines() -> Iterator[bytes]:
        for _ in range(count):
            got.update(line)
            yield line

    server.on("POST", "/v1/files", Reply(body=FILE))
    adapter.list_uploads("")  # the SDK is loaded before memory is measured
    adapter.upload([line], name="first", size=len(line))
    tracemalloc.start()
    try:
        adapter.upload(lines(), name="big", size=count * len(line))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert server.seen[-1].size > count * len(line) > 30_000_000
    assert got.hexdigest() == hashlib.sha256(line * count).hexdigest()
    assert peak < 5_000_000


UPLOAD_FAILURES = [
    (Reply(400, error("File is too large.")), Permanent, None),
    (Reply(413, error("too large")), Permanent, None),
    (Reply(400, error("Exceeded the file storage quota of 100 GB")), Transient, "storage_full"),
    (Reply(400, error("Maximum number of files reached: 500")), Transient, "storage_full"),
    (Reply(429, error("You exceeded your current quota", "insufficient_quota")), Billing, None),
    (Reply(401, error("bad key")), Auth, None),
    (Reply(500, error("oops")), Transient, None),
    (Reply(drop=True), Transient, None),
    (Reply(200, b"<html>"), Transient, None),
    (Reply(200, {"object": "file"}), Transient, None),
    (Reply(404, b"<html>"), Permanent, None),
]


@pytest.mark.parametrize(("reply", "kind", "code"), UPLOAD_FAILURES)
def test_case_32_40_uploads_that_fail(
    reply: Reply, kind: type, code: str | None, server: Scripted, adapter: OpenAIAdapter
) -> None:
    server.on("POST", "/v1/files", reply)
    with pytest.raises(AdapterError) as caught:
        adapter.upload([b"{}\n"], name="a", size=3)
    assert type(caught.value) is kind
    assert code is None or caught.value.code == code


# Find


def test_find_with_a_visible_control(server: Scripted, adapter: OpenAIAdapter) -> None:
    server.on("GET", "/v1/files/file-1", Reply(body=FILE))
    server.on("GET", "/v1/batches", listed(BATCH), listed())
    found = adapter.find(DOUBT)
    assert isinstance(found, Found) and found.batch.remote_id == "batch_1"
    assert isinstance(adapter.find(DOUBT), Absent)


def test_find_without_a_visible_control_proves_nothing(server: Scripted, adapter: OpenAIAdapter) -> None:
    server.on("GET", "/v1/batches", listed(), listed(), listed(BATCH))
    sighting = adapter.find(DOUBT)
    assert isinstance(sighting, Unsure) and "file-1" in sighting.reason
    assert isinstance(adapter.find(Doubt("s-1-1", "file-1", 1000.0, frozenset(), None)), Absent)  # checked otherwise
    assert isinstance(adapter.find(DOUBT), Found)  # what matches is ours, whatever became of the control


def test_after_the_fence_a_known_batch_is_the_control(server: Scripted, adapter: OpenAIAdapter) -> None:
    doubt = Doubt("s-1-1", "file-1", 1000.0, frozenset({"batch_0"}), "batch_0")
    server.on("GET", "/v1/batches/batch_0", Reply(body=BATCH | {"id": "batch_0"}))
    server.on("GET", "/v1/batches", listed(BATCH | {"id": "batch_0"}))
    assert isinstance(adapter.find(doubt), Absent)


@pytest.mark.parametrize(
    "reply", [Reply(500, error("x")), Reply(drop=True), Reply(200, b"<html>"), Reply(429, error("slow"))]
)
def test_a_look_that_fails_half_way_is_no_look(reply: Reply, server: Scripted, adapter: OpenAIAdapter) -> None:
    server.on("GET", "/v1/files/file-1", Reply(body=FILE))
    server.on("GET", "/v1/batches", listed(BATCH | {"id": "b", "metadata": {}, "input_file_id": "f"}, more=True), reply)
    with pytest.raises(Transient):
        adapter.find(DOUBT)


def test_a_key_that_is_refused_stops_the_search(server: Scripted, adapter: OpenAIAdapter) -> None:
    server.on("GET", "/v1/files/file-1", Reply(401, error("Incorrect API key provided", "invalid_api_key")))
    with pytest.raises(Auth):
        adapter.find(DOUBT)


# Poll


def test_one_batch_is_asked_for_alone_and_many_by_list(server: Scripted, adapter: OpenAIAdapter) -> None:
    many = [BATCH | {"id": f"batch_{n}", "status": "In_Progress"} for n in range(30)]
    server.on("GET", "/v1/batches/batch_1", Reply(body=BATCH))
    server.on("GET", "/v1/batches", listed(*many))
    assert set(adapter.poll(["batch_1"]).batches) == {"batch_1"}
    assert [seen.path for seen in server.seen] == ["/v1/batches/batch_1"]
    server.seen.clear()
    got = adapter.poll([f"batch_{n}" for n in range(30)])
    assert len(got.batches) == 30 and {b.phase for b in got.batches.values()} == {Phase.RUNNING}
    assert [(seen.path, seen.query["limit"]) for seen in server.seen] == [("/v1/batches", "100")]


def test_what_the_list_does_not_show_is_retrieved_and_only_a_404_there_is_gone(
    server: Scripted, adapter: OpenAIAdapter
) -> None:
    server.on("GET", "/v1/batches", listed(BATCH, more=True))
    server.on("GET", "/v1/batches/batch_2", Reply(body=BATCH | {"id": "batch_2"}))
    server.on("GET", "/v1/batches/batch_3", Reply(404, error("No batch found with id 'batch_3'.")))
    got = adapter.poll(["batch_1", "batch_2", "batch_3"])
    assert set(got.batches) == {"batch_1", "batch_2"} and got.gone == {"batch_3"}
    assert len(server.calls("GET", "/v1/batches")) == 1


def test_case_09_an_error_in_a_200(server: Scripted, adapter: OpenAIAdapter) -> None:
    server.on(
        "GET",
        "/v1/batches/batch_1",
        Reply(200, error("No batch found with id 'batch_1'.")),
        Reply(200, error("Something went wrong")),
        Reply(500, error("No batch found")),
        Reply(200, BATCH | {"id": "batch_2"}),
    )
    assert adapter.poll(["batch_1"]).gone == {"batch_1"}
    for _ in range(3):
        with pytest.raises(Transient):
            adapter.poll(["batch_1"])


def test_case_73_one_failing_batch_does_not_hide_the_others(server: Scripted, adapter: OpenAIAdapter) -> None:
    server.on("GET", "/v1/batches", Reply(502, b"<html>"))
    server.on("GET", "/v1/batches/batch_0", Reply(502, b"<html>"))
    server.on("GET", "/v1/batches/batch_1", Reply(body=BATCH))
    got = adapter.poll(["batch_0", "batch_1"])
    assert set(got.batches) == {"batch_1"} and not got.gone


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(502, b"<html>"), Transient),
        (Reply(429, error("slow"), {"retry-after": "33"}), Transient),
        (Reply(drop=True), Transient),
        (Reply(200, b"<html>"), Transient),
        (Reply(401, error("bad key")), Auth),
    ],
)
def test_case_73_a_poll_that_fails_says_how(reply: Reply, kind: type, server: Scripted, adapter: OpenAIAdapter) -> None:
    server.on("GET", "/v1/batches/batch_1", reply)
    with pytest.raises(AdapterError) as caught:
        adapter.poll(["batch_1"])
    assert type(caught.value) is kind
    if isinstance(caught.value, Transient) and caught.value.status == 429:
        assert caught.value.retry_after == 33


def test_case_73_too_many_requests_ends_the_poll_at_once(server: Scripted, adapter: OpenAIAdapter) -> None:
    server.on("GET", "/v1/batches", Reply(429, error("slow")))
    with pytest.raises(Transient):
        adapter.poll(["batch_1", "batch_2"])
    assert len(server.seen) == 1


def test_a_watched_tag_is_looked_for_over_window_and_two_days(server: Scripted, adapter: OpenAIAdapter) -> None:
    day = 86_400
    late = BATCH | {"id": "late", "metadata": {"batchctl": "s-9-1"}, "created_at": 10 * day - 2.9 * day}
    server.on(
        "GET",
        "/v1/batches",
        listed(BATCH | {"id": "new", "created_at": 10 * day}, more=True),
        listed(BATCH | {"id": "mid", "created_at": 9 * day, "metadata": None}, more=True),
        listed(late, more=True),
        listed(BATCH | {"id": "old", "created_at": 6 * day}, more=True),
        Reply(500, error("nobody may ask this far back")),
    )
    server.on("GET", "/v1/batches/batch_1", Reply(body=BATCH))
    got = adapter.poll(["batch_1"], watch=["s-9-1", "s-9-2"])
    assert (set(got.batches), {tag: batch.remote_id for tag, batch in got.late.items()}) == (
        {"batch_1"},
        {"s-9-1": "late"},
    )
    assert len(server.calls("GET", "/v1/batches")) == 4


# Fetch


@pytest.mark.parametrize("cut", [0, 5, 12, 23])
def test_case_20_a_download_cut_short_is_noticed(cut: int, server: Scripted, adapter: OpenAIAdapter) -> None:
    body = b'{"a": 1234}\n{"b": 1234}\n'
    server.on("GET", "/v1/files/file-o/content", Reply(body=body, cut=cut), Reply(body=body))
    with pytest.raises(Transient):
        b"".join(adapter.fetch("file-o"))
    assert b"".join(adapter.fetch("file-o")) == body


@pytest.mark.parametrize("cut", [0, 3, 4])
def test_case_20_without_a_length_the_files_own_size_tells(cut: int, server: Scripted, adapter: OpenAIAdapter) -> None:
    body = b"{}\n{}\n"
    server.on("GET", "/v1/files/file-o", Reply(body=FILE | {"id": "file-o", "bytes": len(body)}))
    server.on(
        "GET", "/v1/files/file-o/content", Reply(body=body, cut=cut, length=False), Reply(body=body, length=False)
    )
    with pytest.raises(Transient):
        b"".join(adapter.fetch("file-o"))
    assert b"".join(adapter.fetch("file-o")) == body


@pytest.mark.parametrize("told", [Reply(404, error("no such file")), Reply(body=FILE | {"bytes": None})])
def test_case_20_without_a_length_and_a_size_nothing_can_be_known(
    told: Reply, server: Scripted, adapter: OpenAIAdapter
) -> None:
    server.on("GET", "/v1/files/file-o", told)
    server.on("GET", "/v1/files/file-o/content", Reply(body=b"{}\n{}\n", cut=4, length=False))
    assert b"".join(adapter.fetch("file-o")) == b"{}\n{"


def test_case_11_results_past_their_retention_are_gone(server: Scripted, adapter: OpenAIAdapter) -> None:
    server.on("GET", "/v1/files/file-o/content", Reply(404, error("No such File object: file-o")))
    with pytest.raises(RemoteGone):
        b"".join(adapter.fetch("file-o"))


def test_an_empty_file(server: Scripted, adapter: OpenAIAdapter) -> None:
    server.on("GET", "/v1/files/file-o/content", Reply(body=b""))
    assert b"".join(adapter.fetch("file-o")) == b""


def test_a_redirect_within_the_host_is_followed_and_one_to_another_is_refused(
    server: Scripted, adapter: OpenAIAdapter
) -> None:
    with scripted() as stranger:
        stranger.on("GET", "/v1/x", Reply(body=b"false results\n"))
        server.on("GET", "/v1/files/a/content", Reply(302, b"", {"location": f"{stranger.url}/x"}))
        server.on("GET", "/v1/files/b/content", Reply(302, b"", {"location": "/v1/c"}))
        server.on("GET", "/v1/c", Reply(body=b"results\n"))
        with pytest.raises(Transient, match="redirect"):
            b"".join(adapter.fetch("a"))
        assert stranger.seen == []
    assert b"".join(adapter.fetch("b")) == b"results\n"


# Cancel, delete, list


def test_case_05_cancelling_what_ended_is_no_error(server: Scripted, adapter: OpenAIAdapter) -> None:
    server.on("POST", "/v1/batches/batch_1/cancel", Reply(409, error("already cancelled")), Reply(400, error("no")))
    states = ("completed", "cancelling", "in_progress")
    server.on("GET", "/v1/batches/batch_1", *(Reply(body=BATCH | {"status": status}) for status in states))
    adapter.cancel("batch_1")
    adapter.cancel("batch_1")
    with pytest.raises(Permanent):
        adapter.cancel("batch_1")
    with pytest.raises(RemoteGone):
        adapter.cancel("batch_2")


def test_deleting_what_is_not_there_is_no_error(server: Scripted, adapter: OpenAIAdapter) -> None:
    server.on("DELETE", "/v1/files/file-1", Reply(404, error("No such File object")), Reply(500, error("x")))
    adapter.delete_upload("file-1")
    with pytest.raises(Transient):
        adapter.delete_upload("file-1")


def test_uploads_are_listed_by_prefix_over_pages(server: Scripted, adapter: OpenAIAdapter) -> None:
    def files(*names: str) -> list[dict[str, Any]]:
        return [{"id": f"file-{name}", "filename": f"{name}.jsonl", "bytes": 1} for name in names]

    server.on(
        "GET",
        "/v1/files",
        Reply(body={"data": [*files("s-1", "x-1"), None], "has_more": True}),
        Reply(body={"data": files("s-2"), "has_more": False}),
    )
    assert [upload.name for upload in adapter.list_uploads("s-")] == ["s-1.jsonl", "s-2.jsonl"]
    assert [seen.query.get("after") for seen in server.seen] == [None, "file-x-1"]
    assert server.seen[0].query["purpose"] == "batch"


# Keys


def test_case_76_the_key_is_in_no_log_and_no_message(
    server: Scripted, adapter: OpenAIAdapter, caplog: pytest.LogCaptureFixture
) -> None:
    echo = Reply(401, error(f"Incorrect API key provided: {KEY}.", "invalid_api_key"), {"x-echo": "1"})
    server.on("POST", "/v1/batches", echo)
    server.on("GET", "/v1/batches/batch_1", echo)
    said = [repr(adapter._key), str(adapter._key), f"{adapter._key}"]
    with caplog.at_level(logging.DEBUG):
        for call in (lambda: adapter.create("file-1", [], tag="s-1-1"), lambda: adapter.poll(["batch_1"])):
            with pytest.raises(Auth) as caught:
                call()
            assert "redacted" in str(caught.value)
            said += [str(caught.value), repr(caught.value), str(caught.value.__cause__)]
            said.append(str(caught.getrepr(chain=True, style="short")))
    assert server.seen[0].headers["authorization"].endswith(KEY)
    assert caplog.records
    assert KEY not in caplog.text
    assert all(KEY not in text for text in said)


def test_the_environments_own_settings_do_not_leak_into_a_rehearsal(
    server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-the-real-one-123")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    adapter = OpenAIAdapter(Profile(name="r", base_url=server.url), Secret(""))
    server.on("GET", "/v1/batches/batch_1", Reply(body=BATCH))
    assert adapter.poll(["batch_1"]).batches
    assert "real-one" not in str(server.seen[0].headers)
    adapter.close()
