"""Tokens counted without a tokenizer: a heuristic on characters that rather says too many (PROVIDERS.md 15).

English prose has about 4 characters a token, code and JSON about 2.7, Chinese, Japanese and Korean about 1. A text
counts as code where more than an eighth of its ASCII characters are digits or symbols.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

STATED = (
    "by characters: about 4 a token in prose, 2.7 in code and JSON, 2 outside ASCII, 1 in CJK; 2,500 an image;"
    " rounded up"
)

PROSE, CODE, OTHER = 4.0, 2.7, 2.0
PER_IMAGE = 2_500  # as much as OpenAI's models take for a large one at high detail, and more than for most
PER_MESSAGE, PER_REQUEST = 4, 3  # what chat formats add around texts
_SYMBOLS = re.compile(r"[0-9!-/:-@\[-`{-~]")
_WIDE = re.compile(r"[\u1100-\u11ff\u2e80-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00016fe0-\U0003ffff]")
_NARROW = re.compile(r"[^\x00-\x7f]")
_CODE_SHARE = 1 / 8


def tokens_of(text: str) -> int:
    """About how many tokens a text has; never fewer than one for a text that is not empty."""
    if not text:
        return 0
    wide = other = 0
    if not text.isascii():
        wide = len(_WIDE.findall(text))
        other = len(_NARROW.findall(text)) - wide
    plain = len(text) - wide - other
    is_code = len(_SYMBOLS.findall(text)) > plain * _CODE_SHARE
    return math.ceil(plain / (CODE if is_code else PROSE) + other / OTHER + wide)


def tokens_of_messages(messages: Iterable[Mapping[str, Any]]) -> int:
    """About how many input tokens a chat request has."""
    return PER_REQUEST + sum(PER_MESSAGE + _tokens_of_content(message.get("content")) for message in messages)


def _tokens_of_content(content: Any) -> int:
    """Of a text, or of parts: ours, or those of a ready-made request."""
    if isinstance(content, str):
        return tokens_of(content)
    if isinstance(content, list):
        return sum(map(_tokens_of_part, content))
    return 0 if content is None else tokens_of(str(content))


def _tokens_of_part(part: Any) -> int:
    if isinstance(part, dict) and "image" in str(part.get("type")):
        return PER_IMAGE
    text = part.get("text") if isinstance(part, dict) else None
    return tokens_of(text if isinstance(text, str) else str(part))
