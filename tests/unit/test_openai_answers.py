"""What the bodies of answers say, endpoint by endpoint; chat completions are in test_openai_results.py."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.answers import Judge
from batchctl.engine.collect import row_result
from batchctl.task import KINDS, Task
from batchctl_adapters.base import Kind, Outcome, Result, Usage
from batchctl_adapters.openai_results import parse_result
from batchctl_adapters.vectors import unpack


def parsed(kind: Kind, body: Any) -> Result:
    response = {"status_code": 200, "request_id": "q", "body": body}
    return parse_result(json.dumps({"custom_id": "a", "error": None, "response": response}).encode(), kind)


def message(*parts: Any, **more: Any) -> dict[str, Any]:
    content = [part if isinstance(part, dict) else {"type": "output_text", "text": part} for part in parts]
    return {"type": "message", "role": "assistant", "content": content, **more}


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 64,
    "output_tokens_details": {"reasoning_tokens": 60},
}


def response(*output: Any, status: str = "completed", **more: Any) -> dict[str, Any]:
    body = {"object": "response", "status": status, "error": None, "model": "m", "output": list(output)}
    return {**body, "usage": USAGE, **more}


def incomplete(*output: Any, reason: str | None = "max_output_tokens") -> dict[str, Any]:
    return response(*output, status="incomplete", incomplete_details={"reason": reason} if reason else None)


def test_a_response_is_what_its_messages_say_and_not_its_first_item() -> None:
    got = parsed("responses", response(REASONING, message("Hello, "), message("you")))
    assert (got.outcome, got.text, got.finish_reason, got.model) == (Outcome.SUCCEEDED, "Hello, you", "completed", "m")
    assert got.usage == Usage(10, 64, 4, 60)
    assert got.parts == ("Hello, ", "you")
    assert parsed("responses", response(message("one"))).parts == ()


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("parts", "outcome", "answer", "said"),
    [
        (['{"a":', '{"a":1}'], "succeeded", '{"a":1}', "number 2"),
        (['{"a":1}', "Done."], "succeeded", '{"a":1}', "number 1"),
        (['{"a":1}', '{"a":2}'], "succeeded", '{"a":2}', "number 2"),
        (['{"a":', "1}"], "succeeded", '{"a":1}', "together"),
        (['{"a":1}'], "succeeded", '{"a":1}', None),
        (['{"a":', '"x"'], "invalid", '{"a":"x"', None),
    ],
)
def test_case_24_all_texts_are_looked_at(parts: list[str], outcome: str, answer: str, said: str | None) -> None:
    task = Task.model_validate({"model": "m", "prompt": "{{ t }}", "output": {"json_schema": SCHEMA}})
    body = response(REASONING, *(message(part) for part in parts))
    stored = row_result(3, parsed("responses", body), Judge(task))
    assert (stored.row, stored.outcome, stored.answer) == (3, outcome, answer)
    if said is None:
        assert stored.error_code != "in_parts"
    else:
        assert stored.error_code == "in_parts" and said in (stored.error or "")


@pytest.mark.parametrize(
    ("body", "outcome", "code", "word"),
    [
        (response(message({"type": "refusal", "refusal": "No."})), Outcome.REFUSED, "refusal", "No."),
        (response(message("x", {"type": "refusal", "refusal": "No."})), Outcome.REFUSED, "refusal", "No."),
        (response(REASONING), Outcome.EMPTY, "empty", "empty"),
        (response(), Outcome.EMPTY, "empty", "empty"),
        (response(message(" \n")), Outcome.EMPTY, "empty", "empty"),
        (response({"type": "function_call", "name": "f"}), Outcome.EMPTY, "empty", "empty"),
        (incomplete(message("half")), Outcome.TRUNCATED, "max_output_tokens", "raise max_output_tokens"),
        (incomplete(message("half"), reason="content_filter"), Outcome.FILTERED, "content_filter", "filter"),
        (incomplete(message("half"), reason="moonlight"), Outcome.TRUNCATED, "moonlight", "moonlight"),
        (incomplete(message("half"), reason=None), Outcome.TRUNCATED, "incomplete", "incomplete"),
        (response(message("x"), status="in_progress"), Outcome.ERRORED, "finish_reason", "in_progress"),
        (response(message("x"), status="paused"), Outcome.ERRORED, "finish_reason", "paused"),
        (
            response(status="failed", error={"code": "server_error", "message": "Sorry"}),
            Outcome.ERRORED_TRANSIENT,
            "server_error",
            "Sorry",
        ),
        (response(status="failed", error={"code": "invalid_prompt", "message": "No"}), Outcome.ERRORED, None, "No"),
        (response(status="failed"), Outcome.ERRORED, "bad_shape", "response"),
    ],
)
def test_a_response_that_is_no_answer(body: Any, outcome: Outcome, code: str | None, word: str) -> None:
    got = parsed("responses", body)
    assert got.outcome is outcome
    assert code in (None, got.error_code) and word in (got.error or "")


def test_case_70_reasoning_that_used_the_whole_budget_is_named() -> None:
    got = parsed("responses", incomplete(REASONING))
    assert (got.outcome, got.text, got.finish_reason) == (Outcome.TRUNCATED, None, "max_output_tokens")
    assert "reasoning used the whole budget (60 of 64 tokens): raise max_output_tokens" in (got.error or "")


def test_a_chat_completion_may_answer_a_response() -> None:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}
    got = parsed("responses", {"object": "chat.completion", "choices": [choice]})
    assert (got.outcome, got.text) == (Outcome.SUCCEEDED, "hi")


@pytest.mark.parametrize(
    ("text", "finish", "outcome"),
    [
        ("four", "stop", Outcome.SUCCEEDED),
        ("fo", "length", Outcome.TRUNCATED),
        ("", "stop", Outcome.EMPTY),
        ("x", "content_filter", Outcome.FILTERED),
        ("x", None, Outcome.ERRORED),
    ],
)
def test_a_completion_is_its_first_choices_text(text: str, finish: str | None, outcome: Outcome) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    got = parsed("completion", {"choices": [{"text": text, "finish_reason": finish}], "usage": usage, "model": "m"})
    assert (got.outcome, got.text, got.usage) == (outcome, text, Usage(3, 1))


def test_vectors_stand_in_the_order_of_their_index_and_not_of_the_list() -> None:
    data = [{"index": 1, "embedding": [2.0, 0.5]}, {"index": 0, "embedding": [1.0, 0.25]}]
    got = parsed("embedding", {"data": data, "usage": {"prompt_tokens": 7, "total_tokens": 7}})
    assert [list(vector) for vector in unpack(got.text or "")] == [[1.0, 0.25], [2.0, 0.5]]
    assert (got.outcome, got.usage) == (Outcome.SUCCEEDED, Usage(7, 0))


@pytest.mark.parametrize(
    "data",
    [
        [],
        None,
        ["x"],
        [{"embedding": []}],
        [{"embedding": ["a"]}],
        [{"index": 1, "embedding": [1.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [2.0]}],
        [{"index": [], "embedding": [1.0]}],
        [{"index": True, "embedding": [1.0]}],
        [{"embedding": [1.0, None]}],
    ],
)
def test_case_15_embeddings_without_a_vector_for_each_place_are_no_success(data: Any) -> None:
    got = parsed("embedding", {"data": data})
    assert (got.outcome, got.error_code) == (Outcome.ERRORED, "bad_shape")


def test_two_vectors_for_one_text_are_invalid() -> None:
    task = Task.model_validate({"kind": "embedding", "model": "m", "prompt": "{{ t }}"})
    both = parsed("embedding", {"data": [{"embedding": [1.0]}, {"embedding": [2.0]}]})
    stored = row_result(0, both, Judge(task))
    assert (stored.outcome, stored.error) == ("invalid", "2 vectors for one text")
    several = task.model_copy(update={"each": "t"})
    assert row_result(0, both, Judge(several)).outcome == "succeeded"


def test_a_moderation_is_its_verdict_as_json() -> None:
    found = {"flagged": True, "categories": {"hate": True}, "category_scores": {"hate": 0.5}, "more": 1}
    got = parsed("moderation", {"id": "modr-1", "model": "omni", "results": [found]})
    assert (got.outcome, got.model, json.loads(got.text or "")) == (
        Outcome.SUCCEEDED,
        "omni",
        {key: found[key] for key in ("flagged", "categories", "category_scores")},
    )
    for results in ([], None, [found, found], [{"flagged": "yes"}], ["x"]):
        assert parsed("moderation", {"results": results}).error_code == "bad_shape"


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "choices message content text refusal output type status error index data embedding results flagged "
                "usage finish_reason incomplete_details reason input_tokens prompt_tokens_details model code".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(kind=st.sampled_from(KINDS), body=ANY)
def test_no_body_is_too_odd(kind: Kind, body: Any) -> None:
    got = parsed(kind, body)
    assert got.custom_id == "a" and (got.outcome is Outcome.SUCCEEDED) == (got.error is None)
