"""A message as server-sent events, in the API's order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

CHARS_PER_DELTA = 48
_SAID_AT_THE_START = ("cache_creation", "service_tier", "inference_geo", "speed")
PING = b'event: ping\ndata: {"type": "ping"}\n\n'


def event(kind: str, **fields: Any) -> bytes:
    """One event."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def events(message: dict[str, Any]) -> Iterator[bytes]:
    """The events that a message is streamed as."""
    usage = {**message["usage"], "output_tokens": 1}
    yield event("message_start", message={**message, "content": [], "stop_reason": None, "usage": usage})
    yield PING
    last = len(message["content"]) - 1
    for index, block in enumerate(message["content"]):
        yield event("content_block_start", index=index, content_block=_opened(block))
        is_cut = index == last and message["stop_reason"] == "max_tokens"
        for delta in _deltas(block, is_cut):
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    ending = {name: message.get(name) for name in ("stop_reason", "stop_sequence", "stop_details", "container")}
    yield event("message_delta", delta=ending, usage=_cumulative(message["usage"]))
    yield event("message_stop")


def _opened(block: dict[str, Any]) -> dict[str, Any]:
    """A block as it starts: what deltas will bring is empty."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}
        case "thinking":
            return {**block, "thinking": "", "signature": ""}
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            return {**block, "input": {}}
        case _:
            return block


def _deltas(block: dict[str, Any], is_cut: bool) -> Iterator[dict[str, Any]]:
    """The parts of a block. The input of a call that is cut breaks off before its end."""
    match block["type"]:
        case "text":
            for part in _parts(block["text"]):
                yield {"type": "text_delta", "text": part}
        case "thinking":
            for part in _parts(block["thinking"]):
                yield {"type": "thinking_delta", "thinking": part}
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            yield {"type": "input_json_delta", "partial_json": ""}
            written = json.dumps(block["input"])
            for part in _parts(written[:-1] if is_cut else written):
                yield {"type": "input_json_delta", "partial_json": part}


def _parts(text: str) -> Iterator[str]:
    for start in range(0, len(text), CHARS_PER_DELTA):
        yield text[start : start + CHARS_PER_DELTA]


def _cumulative(usage: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in usage.items() if name not in _SAID_AT_THE_START}
