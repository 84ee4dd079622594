"""What runs requests now, on this machine: the rehearsal's canned answers, llama.cpp, and what comes later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP-shaped answer: 2xx with an endpoint's response body, or an error status with `{"error": {...}}`."""

    status: int
    body: Mapping[str, Any]


class Executor(Protocol):
    """Runs one request body of an endpoint; called from at most `concurrency` threads at once."""

    concurrency: int

    def run(self, endpoint: str, body: Mapping[str, Any]) -> Reply:
        """`endpoint` is a path like `/v1/chat/completions`. Never raises for a bad request: that is a 4xx Reply."""
        ...

    def describe(self) -> str:
        """A line for people: what answers here (a model's name and size, or that the answers are canned)."""
        ...

    def close(self) -> None: ...
