"""Tokens counted without a tokenizer: a heuristic on characters that rather says too many (PROVIDERS.md 15).

English prose has about 4 characters a token, code and JSON about 2.7, Chinese, Japanese and Korean about 1. A text
counts as code where more than an eighth of its ASCII characters are digits or symbols.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

STATED = "by characters: about 4 a token in prose, 2.7 in code and JSON, 2 outside ASCII, 1 in CJK; rounded up"

PROSE, CODE, OTHER = 4.0, 2.7, 2.0
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
    return PER_REQUEST + sum(PER_MESSAGE + tokens_of(str(message["content"])) for message in messages)
