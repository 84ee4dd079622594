"""A row's `params` (Anthropic's Messages API): checked when the row runs, as the provider does, and translated to the
chat completion that executors take (PROVIDERS.md 3.1, 3.4; types/message_create_params.py of the SDK 2.14).
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from batchctl.gateway.messages_wire import STRICT_VERSION

_KNOWN: Final = frozenset(
    "cache_control container diagnostics inference_geo max_tokens messages metadata model output_config service_tier"
    " stop_sequences stream speed system temperature thinking tool_choice tools top_k top_p user_profile_id".split()
)
_SAMPLING: Final = ("temperature", "top_p", "top_k")
_IMAGES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")
_EFFORTS: Final = (None, "low", "medium", "high", "xhigh", "max")


class BadParams(Exception):
    """The row is refused: its result is `errored` with this type of error and message."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def _need(found: bool, message: str) -> None:
    if not found:
        raise BadParams(message)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_plain(params: Mapping[str, Any], version: str) -> None:
    """The fields that are no messages, tools or formats."""
    for name in ("model", "max_tokens", "messages"):
        _need(params.get(name) is not None, f"{name}: Field required")
    for name in params:
        _need(name in _KNOWN, f"{name}: Extra inputs are not permitted")
    _need(isinstance(params["model"], str), "model: Input should be a valid string")
    _need(_is_whole(params["max_tokens"]), "max_tokens: Input should be a valid integer")
    _need(params["max_tokens"] >= 1, "max_tokens: must be greater than or equal to 1")
    _need(not params.get("stream"), "stream: streaming is not supported in a Message Batch")
    _need(params.get("speed") is None, "speed: not supported in a Message Batch")
    for name in _SAMPLING:
        value = params.get(name)
        if value is not None:
            _need(version < STRICT_VERSION, f"{name}: Extra inputs are not permitted")
            _need(isinstance(value, int | float) and value >= 0, f"{name}: Input should be a number of at least 0")
            _need(name == "top_k" or value <= 1, f"{name}: range: 0..1")
    stops = params.get("stop_sequences")
    right = stops is None or (isinstance(stops, list) and all(isinstance(stop, str) and stop.strip() for stop in stops))
    _need(right, "stop_sequences: each stop sequence must contain non-whitespace")


def _text_of(block: Any, where: str, *, user: bool, version: str) -> str:
    _need(isinstance(block.get("text"), str), f"{where}.text: Field required")
    _need(block["text"] != "", f"{where}: text content blocks must be non-empty")
    cited = user and version >= STRICT_VERSION and block.get("citations") is not None
    _need(not cited, f"{where}.citations: Extra inputs are not permitted")
    return str(block["text"])


def _image_url(source: Any, where: str) -> str:
    """The image as the address that a chat completion takes: as it is given, or its data."""
    kind = source.get("type") if isinstance(source, dict) else None
    if kind == "url":
        _need(isinstance(source.get("url"), str), f"{where}.source.url: Field required")
        return str(source["url"])
    _need(kind == "base64", f"{where}.source.type: expected 'base64' or 'url'")
    _need(source.get("media_type") in _IMAGES, f"{where}.source.media_type: Input should be {', '.join(_IMAGES)}")
    try:
        b64decode(source.get("data") or "", validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise BadParams(f"{where}.source.data: invalid base64 data") from error
    _need(bool(source.get("data")), f"{where}.source.data: image cannot be empty")
    return f"data:{source['media_type']};base64,{source['data']}"


def _flat(content: Any) -> str:
    """The text of a tool's result."""
    if isinstance(content, list):
        return "".join(str(block.get("text", "")) for block in content if isinstance(block, dict))
    return str(content or "")


def _part(block: Any, where: str, role: str, version: str) -> dict[str, Any] | None:
    """A content block as a part of a chat message; None where there is nothing to say of it."""
    kind = block.get("type") if isinstance(block, dict) else None
    user = role == "user"
    match kind:
        case "text":
            return {"type": "text", "text": _text_of(block, where, user=user, version=version)}
        case "image" if user:
            return {"type": "image_url", "image_url": {"url": _image_url(block.get("source"), where)}}
        case "document":
            _need(user or version < STRICT_VERSION, f"{where}: document blocks are not permitted in assistant turns")
            source = block.get("source")
            _need(isinstance(source, dict) and source.get("type") in ("text", "base64", "url", "content"), where)
            return {"type": "text", "text": str(source["data"])} if source["type"] == "text" else None
        case "tool_use" if not user:
            return {"type": "text", "text": orjson.dumps(block.get("input")).decode()}
        case "tool_result" if user:
            return {"type": "text", "text": _flat(block.get("content"))}
        case "thinking" | "redacted_thinking" if not user:
            return None
    raise BadParams(f"{where}.type: Input tag '{kind}' is not one of those of role {role}")


def _content(content: Any, where: str, role: str, version: str) -> str | list[dict[str, Any]]:
    """A string where all is text."""
    if isinstance(content, str):
        return content
    _need(isinstance(content, list), f"{where}: Input should be a valid list")
    made = (_part(block, f"{where}.{place}", role, version) for place, block in enumerate(content))
    parts = [part for part in made if part is not None]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _messages(params: Mapping[str, Any], version: str) -> Iterable[dict[str, Any]]:
    system = params.get("system")
    if system is not None:
        text = _content(system, "system", "system", version)
        yield {"role": "system", "content": text}
    given = params["messages"]
    _need(isinstance(given, list), "messages: Input should be a valid list")
    _need(bool(given), "messages: at least one message is required")
    for place, message in enumerate(given):
        where = f"messages.{place}"
        _need(isinstance(message, dict), f"{where}: Input should be a valid dictionary")
        role = message.get("role")
        _need(role in ("user", "assistant"), f"{where}.role: Input should be 'user' or 'assistant'")
        _need(bool(message.get("content")), f"{where}: all messages must have non-empty content")
        yield {"role": role, "content": _content(message["content"], f"{where}.content", role, version)}


def _open_object(schema: Any) -> bool:
    """Whether an object of the schema may have further properties, which structured output refuses."""
    if isinstance(schema, list):
        return any(_open_object(item) for item in schema)
    if not isinstance(schema, dict):
        return False
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        return True
    return any(_open_object(value) for name, value in schema.items() if name not in ("enum", "const", "default"))


def _format(config: Any) -> Any:
    """The JSON schema that `output_config` asks for; None where text will do."""
    if config is None:
        return None
    _need(isinstance(config, dict), "output_config: Input should be a valid dictionary")
    _need(config.get("effort") in _EFFORTS, "output_config.effort: Input should be low, medium, high, xhigh or max")
    form = config.get("format")
    if form is None:
        return None
    right = isinstance(form, dict) and form.get("type") == "json_schema"
    _need(right, "output_config.format.type: Input should be 'json_schema'")
    _need(isinstance(form.get("schema"), dict), "output_config.format.schema: Field required")
    message = "For 'object' type, 'additionalProperties' must be explicitly set to false"
    _need(not _open_object(form["schema"]), f"output_config.format.schema: {message}")
    return form["schema"]


def forced_tool(params: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The tool that must be called: the one named, the first where any will do. Raises BadParams."""
    tools = params.get("tools") or []
    _need(isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools), "tools: expected a list of tools")
    for place, tool in enumerate(tools):
        _need(isinstance(tool.get("name"), str), f"tools.{place}.name: Field required")
        own = tool.get("type") in (None, "custom")
        _need(not own or isinstance(tool.get("input_schema"), dict), f"tools.{place}.input_schema: Field required")
    choice = params.get("tool_choice")
    if choice is None:
        return None
    kind = choice.get("type") if isinstance(choice, dict) else None
    _need(kind in ("auto", "any", "tool", "none"), "tool_choice.type: Input should be auto, any, tool or none")
    if kind in ("auto", "none"):
        return None
    _need(bool(tools), "tool_choice: may only be specified while providing tools")
    named = [tool for tool in tools if kind == "any" or tool["name"] == choice.get("name")]
    _need(bool(named), f"Tool '{choice.get('name')}' not found in provided tools")
    return dict(named[0])


def chat_body(params: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The chat completion that asks for the same. Raises BadParams where the provider would refuse the params."""
    _check_plain(params, version)
    body = {
        "model": params["model"],
        "messages": list(_messages(params, version)),
        "max_completion_tokens": params["max_tokens"],
    }
    tool, schema = forced_tool(params), _format(params.get("output_config"))
    if tool is not None:
        schema = tool.get("input_schema") or {"type": "object"}
    if schema is not None:
        name = "answer" if tool is None else tool["name"]
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}
    for ours, theirs in (("temperature", "temperature"), ("top_p", "top_p"), ("stop_sequences", "stop")):
        if params.get(ours) is not None:
            body[theirs] = params[ours]
    return body
