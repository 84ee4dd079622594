"""Objects of OpenAI's wire and an adapter to a scripted server, for the tests in this folder."""

from __future__ import annotations

from typing import Any

from batchctl_adapters.base import Doubt
from batchctl_adapters.keys import Secret
from batchctl_adapters.openai import OpenAIAdapter
from batchctl_adapters.profile import Profile
from tests.scripted import Reply

KEY = "sk-test-0123456789abcdef"
BATCH = {
    "id": "batch_1",
    "object": "batch",
    "status": "validating",
    "created_at": 1000,
    "input_file_id": "file-1",
    "metadata": {"batchctl": "s-1-1"},
}
FILE = {"id": "file-1", "object": "file", "filename": "s-1-1.jsonl", "bytes": 3, "purpose": "batch"}
DOUBT = Doubt("s-1-1", "file-1", since=1000.0, known_ids=frozenset(), control="file-1")


def adapter_to(url: str, **settings: Any) -> OpenAIAdapter:
    return OpenAIAdapter(Profile(name="t", base_url=url, **{"create_limit_s": 5.0, **settings}), Secret(KEY))


def listed(*batches: dict[str, Any], more: bool = False) -> Reply:
    return Reply(body={"object": "list", "data": list(batches), "has_more": more})
