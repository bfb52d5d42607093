"""Answers of the Messages API as bytes of the wire, plain and odd."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

Draw = Any
"""Hypothesis' own draw function has no public type."""

USAGE: Mapping[str, Any] = {
    "input_tokens": 12,
    "cache_creation_input_tokens": 3000,
    "cache_read_input_tokens": 50000,
    "cache_creation": {"ephemeral_5m_input_tokens": 3000, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 400,
    "server_tool_use": None,
    "service_tier": "standard",
}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def tool_use(call_id: str, name: str = "search", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def thinking(value: str = "Let me see.") -> dict[str, Any]:
    return {"type": "thinking", "thinking": value, "signature": "c2lnbmVk=="}


def message(*blocks: Mapping[str, Any], stop_reason: object = "end_turn", **other: Any) -> dict[str, Any]:
    """A message as the API writes it; `other` replaces or adds members."""
    return {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-5",
        "content": list(blocks),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": USAGE,
    } | other


def body(*blocks: Mapping[str, Any], stop_reason: object = "end_turn", **other: Any) -> bytes:
    return json.dumps(message(*blocks, stop_reason=stop_reason, **other)).encode()


whitespace = st.sampled_from(["", "", " ", "\n", "\t", " \r\n  "])
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def spelled(draw: Draw, value: Any) -> str:
    """A JSON text of this value, spelled in any of the ways that JSON allows."""

    def space() -> str:
        return str(draw(whitespace))

    match value:
        case dict():
            members = [f"{space()}{draw(spelled(k))}{space()}:{draw(spelled(v))}" for k, v in value.items()]
            out = "{" + ",".join(members or [space()]) + "}"
        case list():
            out = "[" + ",".join([draw(spelled(item)) for item in value] or [space()]) + "]"
        case str():
            out = json.dumps(value, ensure_ascii=draw(st.booleans()))
            out = out.replace("/", "\\/") if draw(st.booleans()) else out
        case _:
            out = json.dumps(value)
    return f"{space()}{out}{space()}"


def member_texts(texts: Sequence[tuple[str, str]]) -> str:
    """An object of members whose values are JSON texts already."""
    return "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in texts) + "}"
