"""Our server and an independent one (npm's @copilotkit/aimock) agree on the wire, held to the same assertions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest
from openai import OpenAI

from tests.contract.openapi import Traffic
from tests.contract.requests import CHAT, by_id, content_of, rows, submit
from tests.servers import QUICK, rehearsal

pytestmark = pytest.mark.acceptance

AIMOCK = "@copilotkit/aimock@1.43.0"
"""Started through npx, or where AIMOCK_BIN names its installed `llmock` command."""

Step = Callable[[], None]


@contextmanager
def _ours() -> Iterator[tuple[str, Step]]:
    with rehearsal(speed=1, timing=QUICK, in_process=True) as server:
        yield server.base_url, lambda: (server.advance(QUICK.validation_s + 1), None)[1]


@contextmanager
def _theirs() -> Iterator[tuple[str, Step]]:
    """Their batches move one status with each retrieve."""
    installed = os.environ.get("AIMOCK_BIN")
    if not installed and shutil.which("npx") is None:
        pytest.skip("needs npx, or AIMOCK_BIN")
    start = [installed] if installed else ["npx", "--yes", "--package", AIMOCK, "llmock"]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        fixtures = Path(folder) / "fixtures"
        fixtures.mkdir()
        with log.open("wb") as output:
            command = [*start, "--port", "0", "--fixtures", str(fixtures), "--log-level", "info"]
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            yield f"{_await_address(process, log)}/v1", lambda: None
        finally:
            os.killpg(process.pid, 15)
            process.wait(timeout=10)


def _await_address(process: subprocess.Popen[bytes], log: Path) -> str:
    for _ in range(600):
        found = re.search(r"listening on (http://\S+)", log.read_text())
        if found:
            return found.group(1)
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError(f"aimock did not start: {log.read_text()}")


@pytest.fixture(scope="module", params=["ours", "theirs"])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[str, Step]]:
    with {"ours": _ours, "theirs": _theirs}[request.param]() as found:
        yield found


@pytest.fixture
def traffic() -> Iterator[Traffic]:
    watched = Traffic()
    yield watched
    assert watched.violations == []


@pytest.fixture
def client(place: tuple[str, Step], traffic: Traffic) -> Iterator[OpenAI]:
    with traffic.client(place[0]) as sdk:
        yield sdk


def test_files_come_back(client: OpenAI) -> None:
    data = rows(3)
    stored = client.files.create(file=("in.jsonl", data), purpose="batch")
    assert (stored.object, stored.bytes, stored.filename, stored.purpose) == ("file", len(data), "in.jsonl", "batch")
    assert client.files.content(stored.id).content == data
    assert stored.id in [one.id for one in client.files.list(purpose="batch")]
    assert client.files.delete(stored.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(stored.id)


def test_a_batch_is_answered_row_by_row(client: OpenAI, place: tuple[str, Step]) -> None:
    batch = submit(client, rows(5), metadata={"tag": "store-1-1"})
    assert (batch.status, batch.object, batch.completion_window) == ("validating", "batch", "24h")
    assert batch.metadata == {"tag": "store-1-1"}
    seen = [batch.status]
    for _ in range(20):
        place[1]()
        batch = client.batches.retrieve(batch.id)
        seen.append(batch.status)
        if batch.status == "completed":
            break
    assert seen[:2] == ["validating", "in_progress"] and seen[-1] == "completed"
    assert batch.request_counts is not None
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (5, 5, 0)
    results = by_id(client, batch.output_file_id)
    assert set(results) == {f"r{number}" for number in range(5)}
    for result in results.values():
        assert set(result) == {"id", "custom_id", "response", "error"}
        assert (result["error"], result["response"]["status_code"]) == (None, 200)
        assert result["id"].startswith("batch_req_") and result["response"]["request_id"].startswith("req_")
        assert isinstance(content_of(result), str)


def test_a_cancel_is_asynchronous(client: OpenAI, place: tuple[str, Step]) -> None:
    batch = submit(client, rows(2))
    assert client.batches.cancel(batch.id).status == "cancelling"
    status: str = ""
    for _ in range(20):
        place[1]()
        if (status := client.batches.retrieve(batch.id).status) == "cancelled":
            break
    assert status == "cancelled"
    with pytest.raises((openai.ConflictError, openai.BadRequestError)):
        client.batches.cancel(batch.id)


def test_batches_are_listed_newest_first_in_pages(client: OpenAI) -> None:
    made = [submit(client, rows(1)).id for _ in range(3)]
    first = client.batches.list(limit=2)
    assert [one.id for one in first.data] == [made[2], made[1]] and first.has_more
    assert client.batches.list(limit=1, after=made[1]).data[0].id == made[0]


@pytest.mark.parametrize(
    "change",
    [{"endpoint": "/chat/completions"}, {"completion_window": "5m"}, {"metadata": {str(n): "x" for n in range(17)}}],
)
def test_wrong_creates_are_400(place: tuple[str, Step], change: dict[str, object]) -> None:
    body = {"input_file_id": "file-x", "endpoint": CHAT, "completion_window": "24h", **change}
    with OpenAI(api_key="sk-x", base_url=place[0], max_retries=0) as client, pytest.raises(openai.BadRequestError):
        client.post("/batches", body=body, cast_to=object)


def test_what_is_not_there_is_404(client: OpenAI) -> None:
    for call in (client.batches.retrieve, client.batches.cancel, client.files.retrieve, client.files.content):
        with pytest.raises(openai.NotFoundError) as caught:
            call("batch_none")
        assert caught.value.type == "invalid_request_error"
