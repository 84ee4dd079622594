"""Request files for a batch, and reading what came of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
from openai import OpenAI
from openai.types import Batch

CHAT: Final = "/v1/chat/completions"


def line(custom_id: str, text: str | None = None, *, url: str = CHAT, **body: Any) -> bytes:
    """One request line; `body` overrides or adds to the chat body."""
    chat = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": text or f"row {custom_id}"}], **body}
    return orjson.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": chat}) + b"\n"


def rows(count: int, *, begin: int = 0, **body: Any) -> bytes:
    """A file of `count` rows with ids r0, r1, ..."""
    return b"".join(line(f"r{number}", **body) for number in range(begin, begin + count))


def submit(client: OpenAI, data: bytes, *, endpoint: Any = CHAT, name: str = "in.jsonl", **create: Any) -> Batch:
    """Upload and create."""
    upload = client.files.create(file=(name, data), purpose="batch")
    return client.batches.create(input_file_id=upload.id, endpoint=endpoint, completion_window="24h", **create)


def raw_lines(client: OpenAI, file_id: str | None) -> list[bytes]:
    """The lines of a result file; none where there is no file."""
    return [] if file_id is None else client.files.content(file_id).content.removesuffix(b"\n").split(b"\n")


def by_id(client: OpenAI, file_id: str | None) -> dict[str, Mapping[str, Any]]:
    """The result lines of a file by custom_id; each id once."""
    parsed = [orjson.loads(raw) for raw in raw_lines(client, file_id)]
    found = {one["custom_id"]: one for one in parsed}
    assert len(found) == len(parsed), "a custom_id came twice"
    return found


def content_of(result: Mapping[str, Any]) -> Any:
    """The message content of a chat answer."""
    return result["response"]["body"]["choices"][0]["message"]["content"]
