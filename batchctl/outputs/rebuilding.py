"""A provider's output line from what the store holds of a row: the answer and its account, in OpenAI's words.

The shapes are those of PROVIDERS.md 2.5 and 2.8, with what is known and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from batchctl.outputs.joining import Joined
from batchctl.rowjson import parse_exactly
from batchctl_adapters.base import Kind, Outcome
from batchctl_adapters.vectors import unpack

_HAD_AN_ANSWER = frozenset(
    {Outcome.SUCCEEDED, Outcome.TRUNCATED, Outcome.EMPTY, Outcome.REFUSED, Outcome.FILTERED, Outcome.INVALID}
)
Known = Mapping[str, Any]
"""answer, finish_reason, refusal, input_tokens, output_tokens of a row."""


def rebuilt(row: Joined, custom_id: str, kind: Kind) -> dict[str, Any]:
    """The line of a row: its answer as a response, or its outcome and error as an error."""
    _, _, _, _, _, answer, finish, tokens_in, tokens_out, _, model, _, _ = row.stored
    response = error = None
    if row.outcome in _HAD_AN_ANSWER:
        known = {
            "answer": answer,
            "finish_reason": finish,
            "refusal": row.account["error"] if row.outcome == Outcome.REFUSED else None,
            "input_tokens": tokens_in,
            "output_tokens": tokens_out,
        }
        body = {"model": (model or "").partition(" ")[0] or None, **_BODIES[kind](known)}
        response = {"status_code": 200, "request_id": None, "body": body}
    else:
        error = {"code": row.outcome, "message": row.account["error"] or f"the row is {row.outcome}"}
    return {"id": f"batchctl_{row.number + 1}", "custom_id": custom_id, "response": response, "error": error}


def _chat(known: Known) -> dict[str, Any]:
    message = {"role": "assistant", "content": known["answer"], "refusal": known["refusal"]}
    choice = {"index": 0, "message": message, "finish_reason": known["finish_reason"]}
    return {"object": "chat.completion", "choices": [choice], "usage": _usage(known)}


def _completion(known: Known) -> dict[str, Any]:
    choice = {"index": 0, "text": known["answer"] or "", "finish_reason": known["finish_reason"]}
    return {"object": "text_completion", "choices": [choice], "usage": _usage(known)}


def _response(known: Known) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "output_text", "text": known["answer"] or "", "annotations": []}
    if known["refusal"]:
        part = {"type": "refusal", "refusal": known["refusal"]}
    finish = known["finish_reason"]
    done = finish in (None, "completed")
    return {
        "object": "response",
        "status": "completed" if done else "incomplete",
        "incomplete_details": None if done else {"reason": finish},
        "output": [{"type": "message", "role": "assistant", "content": [part]}],
        "usage": {name: known[name] for name in ("input_tokens", "output_tokens")},
    }


def _embedding(known: Known) -> dict[str, Any]:
    vectors = unpack(known["answer"]) if known["answer"] else []
    data = [{"object": "embedding", "index": place, "embedding": vector} for place, vector in enumerate(vectors)]
    tokens = known["input_tokens"]
    return {"object": "list", "data": data, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def _moderation(known: Known) -> dict[str, Any]:
    return {"results": [parse_exactly(known["answer"].encode())] if known["answer"] else []}


def _usage(known: Known) -> dict[str, int | None]:
    used, made = known["input_tokens"], known["output_tokens"]
    total = None if used is None or made is None else used + made
    return {"prompt_tokens": used, "completion_tokens": made, "total_tokens": total}


_BODIES: Mapping[Kind, Callable[[Known], dict[str, Any]]] = {
    "chat": _chat,
    "responses": _response,
    "embedding": _embedding,
    "completion": _completion,
    "moderation": _moderation,
}
