"""Texts and images of a message in OpenAI's words (https://platform.openai.com/docs/guides/images-vision)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Form = Literal["messages", "input"]
"""Which endpoint's words: `messages` of chat completions, `input` of responses."""


def with_parts(message: dict[str, Any], form: Form = "messages") -> dict[str, Any]:
    """The message with its parts (`base.Request`) as the endpoint takes them; one whose content is a text as it is.

    Raises ValueError for a part that is neither a text nor an image.
    """
    content = message["content"]
    if not isinstance(content, list):
        return message
    return {**message, "content": [_part(part, form) for part in content]}


def _part(part: Mapping[str, Any], form: Form) -> dict[str, Any]:
    chat = form == "messages"
    match part["type"]:
        case "text":
            return {"type": "text" if chat else "input_text", "text": part["text"]}
        case "image":
            url = part["url"] if "url" in part else f"data:{part['media_type']};base64,{part['data']}"
            return (
                {"type": "image_url", "image_url": {"url": url}} if chat else {"type": "input_image", "image_url": url}
            )
        case other:
            raise ValueError(f"a message cannot have a part of type {other!r}")
