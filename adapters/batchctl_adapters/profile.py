"""A profile: a named configuration of a provider. Data, not code: built-in ones lie in `profiles/*.toml`."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from .base import Kind

ENDPOINTS: dict[Kind, str] = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "embedding": "/v1/embeddings",
    "completion": "/v1/completions",
    "moderation": "/v1/moderations",
}
"""OpenAI's own spelling (PROVIDERS.md 2.1)."""


class Profile(BaseModel):
    """Everything about an endpoint that is not protocol. Times in seconds, sizes in bytes (decimal MB)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    adapter: str = "openai"
    title: str = ""
    base_url: str | None = None  # None: the SDK's own default
    key_env: str | None = None  # the environment variable that holds the key
    account: str = ""  # whose queue and credit it is; default: the profile's name
    models: dict[str, str] = Field(default_factory=dict)  # alias in the task -> the provider's name
    completion_window: str = "24h"
    window_s: float = 86_400
    endpoints: dict[Kind, str] = Field(default_factory=ENDPOINTS.copy)
    """Kind -> path, said on create and on each line: one setting for both (case 62). A kind left out is not had."""
    metadata: bool = True  # batches carry our tag in `metadata`
    max_requests: int = 50_000
    max_bytes: int = 190_000_000  # below the measured 200,000,000 (PROVIDERS.md 2.1)
    max_line_bytes: int = 190_000_000
    max_inputs: int | None = 50_000  # texts of all embedding requests in one batch (case 43)
    max_request_inputs: int | None = 2_048  # texts of one embedding request (OpenAI's API reference, embeddings)
    result_ttl_s: float = 30 * 86_400
    output_expires_after_s: int | None = 30 * 86_400
    upload_expires_after_s: int | None = None
    keep_remote_files: bool = (
        False  # leave the files of merged jobs to the provider, such as one that deletes them soon
    )
    structured_output: bool = True  # the endpoint takes response_format json_schema
    max_tokens_param: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    poll_interval_s: float = 60
    create_limit_s: float = 120
    grace_s: float = 60
    proof_span_s: float = 900
    proof_looks: int = 3
    concurrent_uploads: int = 4
    cancel_p95_s: float = 1_800
    discount: float = 0.5
    follow_clock: bool = False  # a loopback rehearsal server's clock (DESIGN 6)
    terms_url: str = ""
    as_of: str = ""

    @field_validator("endpoints")
    @classmethod
    def _paths(cls, endpoints: dict[Kind, str]) -> dict[Kind, str]:
        for kind, path in endpoints.items():
            if not path.startswith("/") or path.endswith("/") or "://" in path or " " in path:
                raise ValueError(f"{kind}: {path!r} is no path like {ENDPOINTS[kind]!r}")
        return endpoints

    @property
    def address(self) -> str:
        """Where requests go: without a base_url the SDK heeds the environment."""
        return self.base_url or os.environ.get("OPENAI_BASE_URL") or ""

    @property
    def account_name(self) -> str:
        """The account whose queue, credit and key this profile uses."""
        return self.account or self.name
