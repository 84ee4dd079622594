"""The rows of one of Anthropic's batches: a row's params to an executor, its answer to a Message, and the result lines
of all four types (PROVIDERS.md 3.3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import orjson

from batchctl.executors.base import Executor, Reply
from batchctl.gateway.messages_params import BadParams, chat_body, forced_tool
from batchctl.gateway.messages_wire import STRICT_VERSION, error_json, error_kind
from batchctl.gateway.state import Batch

_CHAT = "/v1/chat/completions"
_LEFT_OUT = {"batch_expired": "expired", "batch_cancelled": "canceled"}


def version_of(batch: Batch) -> str:
    """The `anthropic-version` that the batch was created with: its rows are checked by it."""
    return (batch.metadata or {}).get("anthropic-version", STRICT_VERSION)


class MessagesDialect:
    """Answers params with Messages; every row ends in one file."""

    one_file = True

    def __init__(self, batch: Batch, models: Collection[str]) -> None:
        self._version, self._models = version_of(batch), models

    def answer(self, executor: Executor, body: Mapping[str, Any]) -> Reply:
        try:
            asked = chat_body(body, self._version)
            if self._models and asked["model"] not in self._models:
                raise BadParams(f"model: {asked['model']}", status=404)
            reply = executor.run(_CHAT, asked)
            return reply if reply.status >= 300 else Reply(200, _message(body, reply.body))
        except BadParams as refused:
            return Reply(refused.status, {"error": {"message": str(refused)}})

    def result(self, row_id: str, custom_id: str, reply: Reply) -> dict[str, Any]:
        if 200 <= reply.status < 300:
            message = {**reply.body, "id": f"msg_{row_id}"}
            return {"custom_id": custom_id, "result": {"type": "succeeded", "message": message}}
        error = reply.body.get("error") or {}
        kind = error_kind(reply.status, error.get("code"))
        kind = "invalid_request_error" if kind == "request_too_large" else kind  # no row has that type
        envelope = error_json(kind, error.get("message") or "Internal server error", f"req_{row_id}")
        return {"custom_id": custom_id, "result": {"type": "errored", "error": envelope}}

    def left_out(self, row_id: str, custom_id: str, code: str, message: str) -> dict[str, Any]:
        return {"custom_id": custom_id, "result": {"type": _LEFT_OUT[code]}}


def _message(params: Mapping[str, Any], completion: Mapping[str, Any]) -> dict[str, Any]:
    """The Message of a chat completion (its id comes later)."""
    [choice, *_] = completion["choices"]
    text, refusal = choice["message"].get("content") or "", choice["message"].get("refusal")
    stop_reason, details = "end_turn", None
    content: list[dict[str, Any]] = [{"type": "text", "text": text, "citations": None}] if text else []
    if refusal is not None or choice["finish_reason"] == "content_filter":
        stop_reason, details = "refusal", {"type": "refusal", "category": None, "explanation": refusal}
    elif choice["finish_reason"] == "length":
        stop_reason = "max_tokens"
    tool = forced_tool(params)
    if tool is not None and text:
        cut = stop_reason == "max_tokens"
        call = {} if cut else orjson.loads(text)  # of a call that is cut off, no argument can be trusted
        stop_reason = "max_tokens" if cut else "tool_use"
        name = tool["name"]
        content = [{"type": "tool_use", "id": f"toolu_{completion['id'][-24:]}", "name": name, "input": call}]
    return {
        "id": "",
        "type": "message",
        "role": "assistant",
        "model": params["model"],
        "content": content,
        "container": None,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "stop_details": details,
        "usage": _usage(completion.get("usage") or {}),
    }


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Even an empty answer has output tokens (types/message.py)."""
    return {
        "input_tokens": usage.get("prompt_tokens") or 0,
        "output_tokens": max(1, usage.get("completion_tokens") or 0),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
        "service_tier": "batch",
    }
