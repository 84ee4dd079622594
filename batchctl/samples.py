"""Samples of Inspect and of OpenAI's evals: rows whose `input`, a text or a list of messages, is what is asked.

https://inspect.aisi.org.uk/datasets.html (`input`, `target`), https://github.com/openai/evals (`input`, `ideal`).
"""

from __future__ import annotations

from typing import Any

from batchctl.errors import InputError
from batchctl.images import ImageProblem, Images, folder_of
from batchctl.inputs import Row

_ROLES = ("system", "developer", "user", "assistant")
_SENT = ("role", "content", "name")
_KNOWN = (*_SENT, "id", "source", "metadata", "model")  # what Inspect's messages have besides, and nobody is asked
_PICTURES = {"image": "image", "image_url": "image_url", "input_image": "image_url"}
_HOW = 'write a text, or messages such as [{"role": "user", "content": "..."}]'


class _Problem(ValueError):
    def __init__(self, what: str, hint: str = _HOW) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


def sample_messages(row: Row, images: Images) -> list[dict[str, Any]]:
    """The messages of a sample, in no provider's words (`Request.messages`). Raises InputError that names the row."""
    try:
        if "input" not in row.values:
            raise _Problem("the sample has no `input`", "add it, or write a `prompt` in the task instead of `samples`")
        if row.values.get("choices"):
            hint = "write a `prompt` with {{ input }} and {{ choices }} in it, and `expected`, instead of `samples`"
            raise _Problem("the sample has `choices`, which nobody would be shown", hint)
        return _messages(row.values["input"], row, images)
    except (_Problem, ImageProblem) as problem:
        what = f"row {row.number}: {problem.what}"
        raise InputError(row.file, row.line, what, hint=problem.hint) from None


def _messages(value: Any, row: Row, images: Images) -> list[dict[str, Any]]:
    if isinstance(value, str):
        if not value.strip():
            raise _Problem("`input` is empty", "give a text, or leave the row out")
        return [{"role": "user", "content": value}]
    if not isinstance(value, list) or not value:
        raise _Problem(f"`input` is {_kind(value)}")
    return [_message(message, f"input[{place}]", row, images) for place, message in enumerate(value)]


def _message(message: Any, place: str, row: Row, images: Images) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise _Problem(f"`{place}` is {_kind(message)}")
    role = message.get("role")
    if role not in _ROLES:
        raise _Problem(f"`{place}.role` is {role!r}", f"it is one of: {', '.join(_ROLES)}")
    other = [key for key, value in message.items() if key not in _KNOWN and value is not None]
    if other:
        raise _Problem(f"`{place}.{other[0]}` cannot be sent", "samples have texts and images only")
    content = message.get("content")
    if isinstance(content, list):
        content = [_part(part, f"{place}.content[{n}]", row, images) for n, part in enumerate(content)]
    elif not isinstance(content, str):
        raise _Problem(f"`{place}.content` is {_kind(content)}")
    sent = {key: message[key] for key in _SENT if message.get(key) is not None}
    return {**sent, "content": content}


def _part(part: Any, place: str, row: Row, images: Images) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("text", "input_text") and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if kind in _PICTURES:
        found = part.get(_PICTURES[kind])
        url = found.get("url") if isinstance(found, dict) else found
        if isinstance(url, str):
            return images.part(url, folder_of(row.file))
    raise _Problem(f"`{place}` is neither a text nor an image", 'write {"type": "text", "text": "..."}')


def _kind(value: Any) -> str:
    if value is None:
        return "missing"
    if value in ([], ""):
        return "empty"
    kinds = {bool: "true or false", dict: "an object", list: "a list", str: "a text"}
    return kinds.get(type(value), "a number")
