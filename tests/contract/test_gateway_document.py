"""The check against the document can fail: it is no decoration."""

from __future__ import annotations

import httpx2
import pytest

from tests.contract.openapi import Traffic, operation


def _answer(request: httpx2.Request, body: object, status: int = 200) -> httpx2.Response:
    return httpx2.Response(status, json=body, request=request)


def test_a_wrong_request_is_seen() -> None:
    traffic = Traffic()
    traffic.on_request(httpx2.Request("POST", "http://x/v1/batches", json={"endpoint": "/v1/other"}))
    assert len(traffic.violations) == 3
    traffic.on_request(httpx2.Request("GET", "http://x/v1/batches?status=completed"))
    assert traffic.violations[-1].endswith("unknown query parameter status")


@pytest.mark.parametrize("change", [{"status": "done"}, {"created_at": "now"}, {"id": None}, {"request_counts": {}}])
def test_a_wrong_answer_is_seen(change: dict[str, object]) -> None:
    right = {
        "id": "batch_1",
        "object": "batch",
        "endpoint": "/v1/chat/completions",
        "input_file_id": "file-1",
        "completion_window": "24h",
        "status": "completed",
        "created_at": 1,
        "errors": None,
    }
    request = httpx2.Request("GET", "http://x/v1/batches/batch_1")
    traffic = Traffic()
    traffic.on_response(_answer(request, right))
    assert traffic.violations == []
    traffic.on_response(_answer(request, {**right, **change}))
    assert traffic.violations
    errors = Traffic()
    errors.on_response(_answer(request, {"detail": "not found"}, 404))
    assert errors.violations


def test_a_path_that_the_document_does_not_have_is_seen() -> None:
    with pytest.raises(KeyError):
        operation("GET", "/v1/batchs")
