"""How a batch's rows are run and its result lines written: what one wire does otherwise than the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from batchctl.executors.base import Executor, Reply
from batchctl.gateway.options import ServeOptions
from batchctl.gateway.state import Batch


class Dialect(Protocol):
    """One wire's way with the rows of a batch."""

    @property
    def one_file(self) -> bool:
        """All results stand in one file, and not answers in one and errors in another."""
        ...

    def answer(self, executor: Executor, body: Mapping[str, Any]) -> Reply:
        """Have one body answered; an error status has `{"error": {...}}` as an executor's has."""
        ...

    def result(self, row_id: str, custom_id: str, reply: Reply) -> dict[str, Any]:
        """The line of a row that has an answer or an error status."""
        ...

    def left_out(self, row_id: str, custom_id: str, code: str, message: str) -> dict[str, Any]:
        """The line of a row that was not run: `code` is batch_expired or batch_cancelled."""
        ...


class OpenAIDialect:
    """Lines with `response` and `error`, in an output file and an error file (PROVIDERS.md 2.5)."""

    one_file = False

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    def answer(self, executor: Executor, body: Mapping[str, Any]) -> Reply:
        return executor.run(self._endpoint, body)

    def result(self, row_id: str, custom_id: str, reply: Reply) -> dict[str, Any]:
        response = {"status_code": reply.status, "request_id": f"req_{row_id}", "body": reply.body}
        return {"id": f"batch_req_{row_id}", "custom_id": custom_id, "response": response, "error": None}

    def left_out(self, row_id: str, custom_id: str, code: str, message: str) -> dict[str, Any]:
        error = {"code": code, "message": message}
        return {"id": f"batch_req_{row_id}", "custom_id": custom_id, "response": None, "error": error}


def dialect_of(batch: Batch, options: ServeOptions) -> Dialect:
    """The dialect of the wire that a batch was created over."""
    if batch.is_messages:
        from batchctl.gateway.messages_rows import MessagesDialect

        return MessagesDialect(batch, options.models)
    return OpenAIDialect(batch.endpoint)
