"""Field by field: what a message and its blocks may hold."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from paceline.sim.rules import Refusal, Rule, refuse

ROLES = ("user", "assistant", "system")
_ID = re.compile(r"^[a-zA-Z0-9_-]+$")

_TYPES: Mapping[str, tuple[type | tuple[type, ...], str]] = MappingProxyType(
    {
        "string": (str, "a valid string"),
        "list": (list, "a valid list"),
        "object": (dict, "a valid dictionary"),
        "boolean": (bool, "a valid boolean"),
        "integer": (int, "a valid integer"),
        "number": ((int, float), "a valid number"),
        "content": ((str, list), "a valid string or list"),
        "any": (object, "anything"),
    }
)


# What is of its very type needs no closer look.
_EXACT: Mapping[str, object] = {kind: types for kind, (types, _) in _TYPES.items()}


class Fields:
    """What an object may hold, written as `name: type` pairs; a name that ends in `?` may be missing or null."""

    def __init__(self, spec: str) -> None:
        pairs = [pair.split(":") for pair in spec.split()]
        self.types = {name.rstrip("?"): kind for name, kind in pairs}
        self.required = tuple(name for name, _ in pairs if not name.endswith("?"))

    def refusals(self, value: Mapping[str, Any], at: str) -> Iterator[Refusal]:
        """What the object at `at` breaks of this."""
        for name in self.required:
            if name not in value:
                yield refuse(Rule.MISSING_FIELD, f"{at}.{name}")
        for name, part in value.items():
            kind = self.types.get(name)
            if kind is None:
                yield refuse(Rule.EXTRA_FIELD, f"{at}.{name}")
            elif type(part) is not _EXACT[kind] and not (part is None and name not in self.required):
                yield from wrong_type(part, kind, f"{at}.{name}")


def wrong_type(value: object, kind: str, at: str) -> Iterator[Refusal]:
    """A refusal unless `value` is of the named type."""
    python_type, expected = _TYPES[kind]
    is_bool_for_number = isinstance(value, bool) and kind in ("integer", "number")
    if not isinstance(value, python_type) or is_bool_for_number:
        yield refuse(Rule.WRONG_TYPE, at, expected=expected)


_SERVER_RESULT = Fields("type:string tool_use_id:string content:any cache_control?:object caller?:object")
MARKER = Fields("type:string ttl?:string")
_MESSAGE = Fields("role:any content:content")
BLOCKS: Mapping[str, Fields] = MappingProxyType(
    {
        "text": Fields("type:string text:string citations?:list cache_control?:object"),
        "image": Fields("type:string source:object transformations?:any cache_control?:object"),
        "document": Fields(
            "type:string source:object title?:string context?:string citations?:object cache_control?:object"
        ),
        "search_result": Fields(
            "type:string source:string title:string content:list citations?:object cache_control?:object"
        ),
        "thinking": Fields("type:string thinking:string signature:string"),
        "redacted_thinking": Fields("type:string data:string"),
        "tool_use": Fields(
            "type:string id:string name:string input:any caller?:object toolset_name?:string cache_control?:object"
        ),
        "tool_result": Fields(
            "type:string tool_use_id:string content?:content is_error?:boolean toolset_name?:string"
            " cache_control?:object"
        ),
        "server_tool_use": Fields(
            "type:string id:string name:string input:object caller?:object cache_control?:object"
        ),
        "web_search_tool_result": _SERVER_RESULT,
        "web_fetch_tool_result": _SERVER_RESULT,
        "code_execution_tool_result": _SERVER_RESULT,
        "bash_code_execution_tool_result": _SERVER_RESULT,
        "text_editor_code_execution_tool_result": _SERVER_RESULT,
        "tool_search_tool_result": _SERVER_RESULT,
        "advisor_tool_result": _SERVER_RESULT,
        "mcp_tool_use": Fields(
            "type:string id:string name:string server_name:string input:object cache_control?:object"
        ),
        "mcp_tool_result": Fields(
            "type:string tool_use_id:string content?:content is_error?:boolean cache_control?:object"
        ),
        "container_upload": Fields("type:string file_id:string cache_control?:object"),
        "compaction": Fields(
            "type:string content?:string encrypted_content?:string signature?:string tool_changes?:list"
            " cache_control?:object"
        ),
    }
)
RESULT_PARTS: Mapping[str, Fields] = MappingProxyType(
    {
        **{kind: BLOCKS[kind] for kind in ("text", "image", "document", "search_result")},
        "tool_reference": Fields("type:string tool_name:string cache_control?:object"),
    }
)


def message_refusals(message: object) -> Iterator[Refusal]:
    """What one message breaks by itself. Paths begin after `messages.N`."""
    if not isinstance(message, dict):
        yield from wrong_type(message, "object", "")
        return
    yield from _MESSAGE.refusals(message, "")
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        yield refuse(Rule.BAD_ROLE, role=role)
    if isinstance(content, str):
        yield from _text_refusals(content) if content else ()
    else:
        yield from _content_refusals(content, BLOCKS, ".content")
        yield from _side_refusals(content, role)


def block_refusals(block: object, known: Mapping[str, Fields], at: str) -> Iterator[Refusal]:
    """What one block breaks by itself; `known` are the types allowed where it stands."""
    if not isinstance(block, dict):
        yield from wrong_type(block, "object", at)
        return
    kind = block.get("type")
    if kind is None:
        yield refuse(Rule.MISSING_FIELD, f"{at}.type")
    fields = known.get(kind) if isinstance(kind, str) else None
    if fields is None:
        yield refuse(Rule.UNKNOWN_TAG, at, tag=kind, expected=", ".join(f"'{name}'" for name in known))
        return
    yield from fields.refusals(block, f"{at}.{kind}")
    yield from marker_refusals(block, f"{at}.{kind}")
    match kind:
        case "text":
            yield from _marked_empty(block)
            yield from _text_refusals(block["text"])
        case "tool_use":
            yield from _call_refusals(block, f"{at}.tool_use")
        case "tool_result":
            yield from _id_refusals(block["tool_use_id"], f"{at}.tool_result.tool_use_id")
            if isinstance(block.get("content"), list):
                yield from _content_refusals(block["content"], RESULT_PARTS, f"{at}.tool_result.content")


def marker_refusals(block: Mapping[str, Any], at: str) -> Iterator[Refusal]:
    """What the cache marker of a block, or of the request, breaks."""
    marker = block.get("cache_control")
    if marker is None:
        return
    path = f"{at}.cache_control"
    if not isinstance(marker, dict):
        yield from wrong_type(marker, "object", path)
        return
    yield from MARKER.refusals(marker, path)
    if marker.get("type") != "ephemeral":
        yield refuse(Rule.WRONG_TYPE, f"{path}.type", expected="'ephemeral'")
    if (marker.get("ttl") or "5m") not in ("5m", "1h"):
        yield refuse(Rule.WRONG_TYPE, f"{path}.ttl", expected="'5m' or '1h'")


def _content_refusals(blocks: object, known: Mapping[str, Fields], at: str) -> Iterator[Refusal]:
    for index, block in enumerate(blocks if isinstance(blocks, list) else ()):
        yield from block_refusals(block, known, f"{at}.{index}")


def _marked_empty(block: Mapping[str, Any]) -> Iterator[Refusal]:
    if block["text"] == "" and block.get("cache_control") is not None:
        yield refuse(Rule.MARKER_ON_EMPTY_TEXT)


def _text_refusals(text: str) -> Iterator[Refusal]:
    if not text:
        yield refuse(Rule.EMPTY_TEXT)
    elif text.isspace():
        yield refuse(Rule.BLANK_TEXT)


def _call_refusals(block: Mapping[str, Any], at: str) -> Iterator[Refusal]:
    yield from _id_refusals(block["id"], f"{at}.id")
    if not isinstance(block["input"], dict):
        yield refuse(Rule.INPUT_NOT_OBJECT, f"{at}.input")


def _id_refusals(value: str, at: str) -> Iterator[Refusal]:
    if not _ID.match(value):
        yield refuse(Rule.BAD_ID, at)


def _side_refusals(blocks: object, role: object) -> Iterator[Refusal]:
    wrong_kind, right_role = ("tool_use", "assistant") if role == "user" else ("tool_result", "user")
    for index, block in enumerate(blocks if isinstance(blocks, list) else ()):
        if block.get("type") == wrong_kind:
            yield refuse(Rule.WRONG_SIDE, f".content.{index}", kind=wrong_kind, role=right_role)


def late_message_refusals(message: Mapping[str, Any]) -> Iterator[Refusal]:
    """What one sound message breaks since version 2026-10-21. Paths begin after `messages.N`."""
    content = message["content"]
    for index, block in enumerate(content if isinstance(content, list) else ()):
        at = f".content.{index}"
        if block["type"] == "document" and message["role"] == "assistant":
            yield refuse(Rule.DOCUMENT_IN_ANSWER, at)
        if message["role"] != "assistant":
            yield from _citation_refusals(block, at)


def _citation_refusals(block: Mapping[str, Any], at: str) -> Iterator[Refusal]:
    if block["type"] == "text" and block.get("citations"):
        yield refuse(Rule.CITATIONS_IN_INPUT, at)
    if block["type"] in ("search_result", "tool_result") and isinstance(block.get("content"), list):
        for index, part in enumerate(block["content"]):
            if isinstance(part, dict) and isinstance(part.get("type"), str):
                yield from _citation_refusals(part, f"{at}.{block['type']}.content.{index}")
