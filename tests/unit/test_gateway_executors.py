"""How batches run on an executor that takes real time and several threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from batchctl.executors.base import Reply
from batchctl.gateway import gateway as gateway_module
from batchctl.gateway.options import INSTANT, ServeOptions
from tests.contract.requests import by_id, rows, submit
from tests.servers import rehearsal


class SlowExecutor:
    """Answers after a moment and notes how many of its threads were at work at once."""

    concurrency = 3

    def __init__(self, seconds: float = 0.01) -> None:
        self.seconds = seconds
        self.peak = self.calls = 0
        self._running = 0
        self._lock = threading.Lock()

    def run(self, endpoint: str, body: Mapping[str, Any]) -> Reply:
        with self._lock:
            self._running += 1
            self.calls += 1
            self.peak = max(self.peak, self._running)
        time.sleep(self.seconds)
        with self._lock:
            self._running -= 1
        if body["messages"][0]["content"] == "row r7":
            raise RuntimeError("the model fell over")
        return Reply(200, {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}})

    def describe(self) -> str:
        return "slow"

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowExecutor:
    executor = SlowExecutor()

    def make(_: ServeOptions) -> SlowExecutor:
        return executor

    monkeypatch.setattr(gateway_module, "make_executor", make)
    return executor


def _await(check: Any) -> Any:
    for _ in range(500):
        found = check()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen")


def test_rows_run_on_all_threads_and_one_that_raises_fails_alone(slow: SlowExecutor) -> None:
    with rehearsal(speed=1, timing=INSTANT, in_process=True) as server, server.client() as client:
        batch = submit(client, rows(60))
        done = _await(lambda: (b := client.batches.retrieve(batch.id)).status == "completed" and b)
        assert slow.peak == 3
        assert len(by_id(client, done.output_file_id)) == 59
        assert by_id(client, done.error_file_id)["r7"]["response"]["status_code"] == 500
        assert done.usage is not None and done.usage.total_tokens == 59 * 3


def test_a_cancel_stops_new_rows_and_keeps_those_that_ran(slow: SlowExecutor) -> None:
    with rehearsal(speed=1, timing=INSTANT, in_process=True) as server, server.client() as client:
        batch = submit(client, rows(2_000))
        _await(lambda: slow.calls > 20)
        client.batches.cancel(batch.id)
        done = _await(lambda: (b := client.batches.retrieve(batch.id)).status == "cancelled" and b)
        ran, left = by_id(client, done.output_file_id), by_id(client, done.error_file_id)
        left.pop("r7", None) if "r7" in left and left["r7"]["response"] else None
        assert len(ran) + len(left) in (1_999, 2_000) and not set(ran) & set(left)
        assert 20 < len(ran) < 1_900
        assert len(ran) <= slow.calls <= len(ran) + 1


def test_two_batches_share_the_executor(slow: SlowExecutor, tmp_path: Path) -> None:
    with rehearsal(speed=1, timing=INSTANT, in_process=True, state=tmp_path) as server, server.client() as client:
        first, second = submit(client, rows(300, begin=10)), submit(client, rows(20, begin=400))
        _await(lambda: client.batches.retrieve(second.id).status == "completed")
        assert client.batches.retrieve(first.id).status == "in_progress", "the short one did not wait for the long one"
