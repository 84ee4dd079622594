"""Lines put together from the store are read as the received ones were."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchctl.outputs.joining import Joined
from batchctl.outputs.provider_lines import renamed
from batchctl.outputs.rebuilding import rebuilt
from batchctl.rowjson import to_json
from batchctl_adapters.base import Kind, Outcome
from batchctl_adapters.openai_results import parse_result
from batchctl_adapters.vectors import pack

MODERATED = '{"flagged":true,"categories":{"a":true},"category_scores":{"a":0.10}}'


def joined(outcome: str, answer: str | None, finish: str | None = "stop", error: str | None = None) -> Joined:
    account = {"outcome": outcome, "error": error}
    return Joined(
        6, b"{}", None, account, (6, "failed", outcome, 1, 2, answer, finish, 12, 3, 0, "m fp_1", None, error)
    )


def read(row: Joined, kind: Kind) -> Any:
    return parse_result(to_json(rebuilt(row, "mine", kind)), kind)


@pytest.mark.parametrize(
    ("kind", "answer", "finish"),
    [
        ("chat", "yes \u2028", "stop"),
        ("completion", "yes", "stop"),
        ("responses", "yes", "completed"),
        ("embedding", pack([[0.5, -1.0], [2.0, 3.0]]), None),
        ("moderation", MODERATED, None),
    ],
)
def test_an_answer_is_read_back(kind: Kind, answer: str, finish: str | None) -> None:
    result = read(joined("succeeded", answer, finish), kind)
    assert (result.custom_id, result.outcome, result.finish_reason) == ("mine", Outcome.SUCCEEDED, finish)
    assert json.loads(result.text) == json.loads(answer) if kind == "moderation" else result.text == answer
    assert kind == "moderation" or result.usage.input_tokens == 12
    assert kind in ("moderation", "embedding") or result.usage.output_tokens == 3


@pytest.mark.parametrize(
    ("outcome", "answer", "finish", "kind", "error"),
    [
        ("truncated", "half", "length", "chat", "cut"),
        ("truncated", "half", "max_output_tokens", "responses", "cut"),
        ("filtered", "", "content_filter", "chat", "filtered"),
        ("empty", None, "stop", "chat", "the answer is empty"),
        ("refused", None, "stop", "chat", "I will not"),
        ("refused", None, "completed", "responses", "I will not"),
        ("expired", None, None, "chat", "batch_expired: too late"),
        ("canceled", None, None, "chat", None),
        ("errored", None, None, "embedding", "bad"),
        ("missing", None, None, "chat", "in no file"),
    ],
)
def test_a_failure_stays_one(outcome: str, answer: str | None, finish: str | None, kind: Kind, error: str) -> None:
    result = read(joined(outcome, answer, finish, error), kind)
    assert result.outcome is not Outcome.SUCCEEDED
    if answer is not None or outcome in ("empty", "refused"):
        assert result.outcome == outcome
    else:
        assert result.error_code == outcome


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":"r","custom_id":"s-1-1-0001","response":{"body":{"n":1.10,"custom_id":"s-1-1-0001"}},"error":null}',
        b'{ "custom_id" : "s-1-1-0001", "n": 1.10, "big": 123456789012345678901234567890}',
        rb'{"n":1.10,"c\u0075stom_id":"s-1-1-0001"}',
    ],
)
def test_another_id_changes_nothing_else(line: bytes) -> None:
    found = renamed(line, 'a"b\u2028')
    assert json.loads(found) == {**json.loads(line), "custom_id": 'a"b\u2028'}
    assert b"1.10" in found
