from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl_adapters.base import BadLine, Outcome, Result, Usage
from batchctl_adapters.openai_results import parse_result


def chat(content: Any = "yes", finish: Any = "stop", **extra: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "refusal": None} | extra.pop("message", {})
    return {"model": "m-1", "choices": [{"index": 0, "message": message, "finish_reason": finish}], **extra}


def parsed(status: Any = 200, body: Any = None, error: Any = None, *, response: Any = ...) -> Result:
    if response is ...:
        response = {"status_code": status, "request_id": "q", "body": body}
    return parse_result(json.dumps({"id": "x", "custom_id": "a", "response": response, "error": error}).encode())


def test_an_answer() -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    got = parsed(200, chat(usage=usage, system_fingerprint="fp_1"))
    assert got == Result("a", Outcome.SUCCEEDED, "yes", "stop", Usage(9, 4, 8, 3), "m-1 fp_1")


def test_content_in_parts_is_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "x"}, "odd", {"type": "text", "text": "b"}]
    assert parsed(200, chat(parts)).text == "ab"
    assert parsed(200, chat([{"type": "refusal", "refusal": "no"}])).outcome is Outcome.REFUSED


def test_case_69_cut_off_at_the_limit_is_not_a_success() -> None:
    got = parsed(200, chat('{"label":"po', "length"))
    assert (got.outcome, got.text, got.finish_reason) == (Outcome.TRUNCATED, '{"label":"po', "length")
    assert "max_output_tokens" in (got.error or "")


def test_case_70_reasoning_used_the_budget() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 64, "completion_tokens_details": {"reasoning_tokens": 64}}
    got = parsed(200, chat(None, "length", usage=usage))
    assert got.outcome is Outcome.TRUNCATED
    assert "reasoning used the whole budget (64 of 64" in (got.error or "")
    assert "reasoning" not in (parsed(200, chat(None, "length")).error or "")


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (chat("x", "content_filter"), Outcome.FILTERED),
        (chat(None, "content_filter"), Outcome.FILTERED),
        (chat(None, message={"refusal": "I can't"}), Outcome.REFUSED),
        (chat(""), Outcome.EMPTY),
        (chat(" \n"), Outcome.EMPTY),
        (chat(None), Outcome.EMPTY),
        (chat(None, "tool_calls"), Outcome.EMPTY),
        (chat("x", "abort"), Outcome.ERRORED_TRANSIENT),
        (chat("x", "brand_new"), Outcome.ERRORED),
        (chat("x", None), Outcome.ERRORED),
        ({}, Outcome.ERRORED),
        ({"choices": []}, Outcome.ERRORED),
        ({"choices": [None]}, Outcome.ERRORED),
        ({"choices": [{"message": "text"}]}, Outcome.ERRORED),
        (None, Outcome.ERRORED),
        ("text", Outcome.ERRORED),
        ({"error": {"message": "Rate limit", "code": 429}}, Outcome.ERRORED_TRANSIENT),
    ],
)
def test_only_a_whole_answer_of_the_right_shape_is_a_success(body: Any, outcome: Outcome) -> None:
    assert parsed(200, body).outcome is outcome


@pytest.mark.parametrize("status", [0, 408, 409, 429, 500, 502, 503, 599, "503"])
def test_case_15_transient_status_in_a_line(status: Any) -> None:
    got = parsed(status, {"error": {"message": "later", "code": None, "type": "server_error"}})
    assert (got.outcome, got.error, got.error_code) == (Outcome.ERRORED_TRANSIENT, "later", "server_error")
    assert parsed(status).outcome is Outcome.ERRORED_TRANSIENT


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 300, 100])
def test_case_15_permanent_status_in_a_line_is_never_an_answer(status: int) -> None:
    error = {"message": "too long", "code": "context_length_exceeded"}
    got = parsed(status, {"error": error})
    assert (got.outcome, got.error_code, got.text) == (Outcome.ERRORED, "context_length_exceeded", None)
    assert parsed(status, chat()).outcome is Outcome.ERRORED


@pytest.mark.parametrize(
    "error",
    [
        {"object": "error", "message": "bad", "type": "BadRequestError", "param": None, "code": 400},
        {"error": {"message": "bad", "type": "BadRequestError", "param": None, "code": 400}},
    ],
)
def test_case_15_the_shape_of_vllm_run_batch(error: Any) -> None:
    got = parsed(400, None, error)
    assert (got.outcome, got.error, got.error_code) == (Outcome.ERRORED, "bad", "400")
    assert parsed(response=None, error=error | {"code": 503}).outcome is (
        Outcome.ERRORED if "error" in error else Outcome.ERRORED_TRANSIENT
    )


def test_an_error_beside_an_answer_is_an_error() -> None:
    assert parsed(200, chat(), {"code": "server_error", "message": "x"}).outcome is Outcome.ERRORED_TRANSIENT
    assert parsed(200, chat(), {"code": None, "message": None}).outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("batch_expired", Outcome.EXPIRED),
        ("batch_cancelled", Outcome.CANCELED),
        ("something_else", Outcome.ERRORED),
        ("server_error", Outcome.ERRORED_TRANSIENT),
        (429, Outcome.ERRORED_TRANSIENT),
        (422, Outcome.ERRORED),
    ],
)
def test_case_03_requests_that_were_not_executed(code: Any, outcome: Outcome) -> None:
    got = parsed(response=None, error={"code": code, "message": "m"})
    assert (got.outcome, got.error_code, got.error) == (outcome, str(code), "m")


def test_a_line_without_answer_and_error_is_not_sent_again_by_itself() -> None:
    got = parsed(response=None)
    assert (got.outcome, got.error) == (Outcome.ERRORED, "no answer and no error in the line")


@pytest.mark.parametrize(
    "error",
    [
        {"code": "insufficient_quota", "message": "You exceeded your current quota, please check your plan"},
        {"type": "invalid_request_error", "message": "Your credit balance is too low to access the API"},
        {"code": "billing_hard_limit_reached", "message": "Billing hard limit has been reached"},
    ],
)
@pytest.mark.parametrize("status", [400, 402, 429])
def test_case_45_rows_that_failed_for_money_can_be_sent_again(status: int, error: Any) -> None:
    got = parsed(status, {"error": error})
    assert (got.outcome, got.error_code) == (Outcome.ERRORED_TRANSIENT, "billing")


def test_case_45_a_prompt_about_billing_is_not_a_billing_error() -> None:
    got = parsed(400, {"error": {"code": "invalid_value", "message": "Invalid value: 'billing address'"}})
    assert (got.outcome, got.error_code) == (Outcome.ERRORED, "invalid_value")


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[]",
        b'"text"',
        b'{"response":{}}',
        b'{"custom_id":7}',
        b'{"custom_id":""}',
        b'{"custom_id":"\xff"}',
        b"",
        b'{"custom_id":"a","resp',
    ],
)
def test_case_16_lines_that_cannot_be_read(line: bytes) -> None:
    with pytest.raises(BadLine):
        parse_result(line)


def test_case_46_separators_inside_an_answer_do_not_cut_it() -> None:
    line = json.dumps({"custom_id": "a", "response": {"status_code": 200, "body": chat("a\u2028b\u0085c")}})
    raw = line.encode().replace(rb"\u2028", "\u2028".encode()).replace(rb"\u0085", "\u0085".encode())
    assert parse_result(raw).text == parse_result(line.encode()).text == "a\u2028b\u0085c"


KEYS = st.sampled_from(
    [
        "custom_id",
        "response",
        "error",
        "status_code",
        "body",
        "choices",
        "message",
        "content",
        "finish_reason",
        "usage",
        "code",
        "refusal",
        "text",
        "model",
        "prompt_tokens",
        "prompt_tokens_details",
        "completion_tokens_details",
        "cached_tokens",
        "type",
    ]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=6),
    max_leaves=20,
)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_result_or_a_bad_line(line: bytes) -> None:
    with contextlib.suppress(BadLine):
        parse_result(line)


@given(JSON, JSON, JSON, JSON)
def test_any_json_with_an_id_gives_a_result(status: Any, body: Any, error: Any, response: Any) -> None:
    for line in (
        {"custom_id": "a", "response": {"status_code": status, "body": body}, "error": error},
        {"custom_id": "a", "response": {"status_code": 200, "body": body}},
        {"custom_id": "a", "response": {"status_code": 200, "body": {"choices": [body], "usage": error}}},
        {"custom_id": "a", "response": response, "error": error},
    ):
        got = parse_result(json.dumps(line).encode())
        assert got.custom_id == "a" and isinstance(got.outcome, Outcome)
        assert (got.error is None) == (got.outcome is Outcome.SUCCEEDED)
