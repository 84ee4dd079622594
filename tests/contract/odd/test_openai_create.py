"""Creating a batch, over real HTTP: what is certain, what is doubt, and that nothing is ever sent twice."""

from __future__ import annotations

import signal
import socket
import threading
import time
from typing import Any

import pytest

from batchctl_adapters.errors import (
    AdapterError,
    Auth,
    Billing,
    Permanent,
    QueueFull,
    SubmitUnknown,
    Transient,
)
from batchctl_adapters.openai import OpenAIAdapter
from tests.contract.odd.objects import BATCH, KEY, adapter_to
from tests.scripted import Reply, Scripted, error


def test_case_26_create_is_one_post_with_tag_window_and_expiry(server: Scripted, adapter: OpenAIAdapter) -> None:
    server.on("POST", "/v1/batches", Reply(body=BATCH))
    assert adapter.create("file-1", [], tag="s-1-1").remote_id == "batch_1"
    (seen,) = server.seen
    assert seen.json() == {
        "input_file_id": "file-1",
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
        "metadata": {"batchctl": "s-1-1"},
        "output_expires_after": {"anchor": "created_at", "seconds": 30 * 86_400},
    }
    assert seen.headers["authorization"] == f"Bearer {KEY}"


def test_a_profile_without_metadata_and_with_another_window(server: Scripted) -> None:
    adapter = adapter_to(server.url, metadata=False, output_expires_after_s=None, completion_window="14d")
    server.on("POST", "/v1/batches", Reply(body=BATCH))
    adapter.create("file-1", [], tag="s-1-1")
    assert server.seen[0].json() == {
        "input_file_id": "file-1",
        "endpoint": "/v1/chat/completions",
        "completion_window": "14d",
    }
    adapter.close()


DOUBTFUL = {
    "dropped": Reply(drop=True),
    "cut in the body": Reply(body=BATCH, cut=10),
    "408": Reply(408, error("timeout")),
    "409": Reply(409, error("conflict")),
    "500": Reply(500, error("oops")),
    "502 of a proxy": Reply(502, b"<html>bad gateway</html>"),
    "503 without a body": Reply(503),
    "200 of a proxy": Reply(200, b"<html>welcome</html>"),
    "200 without an id": Reply(200, {"object": "batch", "status": "validating"}),
    "200 with an error": Reply(200, error("later")),
    "200, a list": Reply(200, [BATCH]),
    "200, cut JSON": Reply(200, b'{"id": "batch_1", "sta'),
    "404 of a proxy": Reply(404, b"<html>not found</html>"),
    "429 of a proxy": Reply(429, b"slow down", {"retry-after": "5"}),
    "403 of a firewall": Reply(403, b'{"detail": "blocked"}'),
    "401 without words": Reply(401, b""),
    "418": Reply(418, error("teapot")),
    "another redirect": Reply(307, b"", {"location": "/v2/batches"}),
    "gzip that is none": Reply(200, b"plain", {"content-encoding": "gzip"}),
}


@pytest.mark.parametrize("name", DOUBTFUL)
def test_case_26_27_after_the_first_byte_all_but_a_refusal_is_doubt(
    name: str, server: Scripted, adapter: OpenAIAdapter
) -> None:
    server.on("POST", "/v1/batches", DOUBTFUL[name])
    with pytest.raises(SubmitUnknown):
        adapter.create("file-1", [], tag="s-1-1")
    assert len(server.seen) == 1


REFUSED = [
    (400, error("bad metadata", "invalid_value"), Permanent, "invalid_value"),
    (401, error("Incorrect API key provided", "invalid_api_key"), Auth, "invalid_api_key"),
    (403, error("not allowed"), Auth, None),
    (402, error("pay first"), Billing, None),
    (404, error("The model does not exist", "model_not_found"), Permanent, "model_not_found"),
    (413, error("too large"), Permanent, None),
    (422, error("bad"), Permanent, None),
    (429, error("Rate limit reached for batches"), Transient, None),
    (429, error("You exceeded your current quota", "insufficient_quota"), Billing, "insufficient_quota"),
    (429, error("Enqueued token limit reached for m"), QueueFull, None),
    (429, error("Too many enqueued requests", "request_limit"), QueueFull, "request_limit"),
    (400, error("Billing hard limit has been reached", "billing_hard_limit_reached"), Billing, None),
    (
        400,
        error("Cannot find file file-1, or organization o does not have access to it."),
        Transient,
        "file_not_visible",
    ),
    (400, error("File file-1 is not processed yet"), Transient, "file_not_visible"),
    (404, error("No such File object: file-1"), Transient, "file_not_visible"),
]


@pytest.mark.parametrize(("status", "body", "kind", "code"), REFUSED)
def test_case_30_36_38_45_a_refusal_in_the_providers_own_words_is_certain(
    status: int, body: Any, kind: type, code: str | None, server: Scripted, adapter: OpenAIAdapter
) -> None:
    server.on("POST", "/v1/batches", Reply(status, body, {"retry-after": "9"}))
    with pytest.raises(AdapterError) as caught:
        adapter.create("file-1", [], tag="s-1-1")
    assert type(caught.value) is kind
    if code:
        assert caught.value.code == code
    if kind in (Transient, QueueFull) and status == 429:
        assert isinstance(caught.value, Transient) and caught.value.retry_after == 9
    assert len(server.seen) == 1


def test_case_26_a_silent_server_is_given_up_in_time(server: Scripted) -> None:
    adapter = adapter_to(server.url, create_limit_s=0.3)
    server.on("POST", "/v1/batches", Reply(body=BATCH, hang_s=20))
    began = time.monotonic()
    with pytest.raises(SubmitUnknown, match=r"0\.3 s"):
        adapter.create("file-1", [], tag="s-1-1")
    assert time.monotonic() - began < 2
    adapter.close()


def test_case_26_a_dripping_answer_does_not_stretch_the_limit(server: Scripted) -> None:
    adapter = adapter_to(server.url, create_limit_s=0.5)
    server.on("POST", "/v1/batches", Reply(body=BATCH, drip_s=0.1))
    began = time.monotonic()
    with pytest.raises(SubmitUnknown):
        adapter.create("file-1", [], tag="s-1-1")
    assert time.monotonic() - began < 2
    assert len(server.calls("POST", "/v1/batches")) == 1
    adapter.close()


def test_a_refused_connection_is_certain_to_have_sent_nothing() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, not listening
        adapter = adapter_to(f"http://127.0.0.1:{closed.getsockname()[1]}/v1")
        with pytest.raises(Transient, match="nothing was sent") as caught:
            adapter.create("file-1", [], tag="s-1-1")
        assert caught.value.code == "not_sent"
        adapter.close()


def test_a_name_that_does_not_resolve_is_certain_to_have_sent_nothing() -> None:
    adapter = adapter_to("http://batchctl.invalid/v1")
    with pytest.raises(Transient, match="nothing was sent"):
        adapter.create("file-1", [], tag="s-1-1")
    adapter.close()


def test_a_failed_tls_handshake_is_certain_to_have_sent_nothing(server: Scripted) -> None:
    adapter = adapter_to(server.url.replace("http:", "https:"))  # the server speaks no TLS
    with pytest.raises(Transient, match="nothing was sent"):
        adapter.create("file-1", [], tag="s-1-1")
    adapter.close()


def test_what_was_given_up_before_the_first_byte_is_never_sent(
    server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Name resolution has no time-out: here it takes longer than create may, and then succeeds."""
    resolved = threading.Event()
    real = socket.getaddrinfo

    def slow(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.6)
        resolved.set()
        return real(*args, **kwargs)

    server.on("POST", "/v1/batches", Reply(body=BATCH))
    adapter = adapter_to(server.url, create_limit_s=0.2)
    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with pytest.raises(Transient, match="nothing was sent"):
        adapter.create("file-1", [], tag="s-1-1")
    assert resolved.wait(5)
    join_calls()
    assert server.seen == []
    adapter.close()


def test_what_was_interrupted_before_the_first_byte_is_never_sent(
    server: Scripted, adapter: OpenAIAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo

    def slow(*args: Any, **kwargs: Any) -> Any:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # Ctrl-C
        time.sleep(1)  # long enough for a busy machine to deliver it
        return real(*args, **kwargs)

    server.on("POST", "/v1/batches", Reply(body=BATCH))
    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with pytest.raises(KeyboardInterrupt):
        adapter.create("file-1", [], tag="s-1-1")
    join_calls()
    assert server.seen == []


def join_calls() -> None:
    for thread in threading.enumerate():
        if thread.name == "bounded-call":
            thread.join(5)
            assert not thread.is_alive()
