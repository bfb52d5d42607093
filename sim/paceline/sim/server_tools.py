"""Tools that the API runs itself, and calls made by code: what a history that holds them must keep to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paceline.sim.message import RESULT, SERVER_CALLS, Block, Message, content_blocks
from paceline.sim.prefix import Prefix
from paceline.sim.rules import Refusal, Rule, refuse
from paceline.sim.sides import Place, Side

_CODE = ("code_execution", "bash_code_execution", "text_editor_code_execution")
# Later versions of these run their filters as code.
_BRINGS_CODE = ("code_execution_", "web_search_2026", "web_fetch_2026")


def server_tool_refusals(sides: Sequence[Side], prefix: Prefix, container: object) -> Iterator[Refusal]:
    """What calls and results of server tools break, and replies to a turn that waits for the server."""
    open_calls: dict[str, Block] = {}
    for position, side in enumerate(sides):
        if side.role != "assistant":
            continue
        yield from _pair(side, open_calls)
        reply = sides[position + 1] if position + 1 < len(sides) else None
        yield from _open_refusals(side, reply, open_calls, prefix)
        if reply is not None and reply is sides[-1]:
            yield from _reply_refusals(side, reply, open_calls, container)


def reference_refusals(messages: Sequence[Message], prefix: Prefix) -> Iterator[Refusal]:
    """Tools that results hand out must be there."""
    for message in messages:
        for block in message.blocks:
            for name in block.references:
                if name not in prefix.tool_names:
                    yield refuse(Rule.REFERENCE_UNKNOWN, tool=name)


def result_kind(call: Mapping[str, Any]) -> str:
    """The type of the block that answers a call of a server tool."""
    name = str(call.get("name", ""))
    if call.get("type") == "mcp_tool_use":
        return "mcp_tool_result"
    return "tool_search_tool_result" if name.startswith("tool_search_tool") else f"{name}_tool_result"


def runs_code(name: str) -> bool:
    """Whether a server tool runs in a container."""
    return name in _CODE


def _pair(side: Side, open_calls: dict[str, Block]) -> Iterator[Refusal]:
    """Open the calls of a turn and close those that it answers."""
    for place in side.places():
        block = place.block
        if block.kind in SERVER_CALLS:
            open_calls[block.id] = block
        elif block.is_server_result and open_calls.pop(block.id, None) is None:
            use = "mcp_tool_use" if block.kind == "mcp_tool_result" else "server_tool_use"
            yield refuse(Rule.SERVER_RESULT_ALONE, place.at, kind=block.kind, id=block.id, use=use)


def _open_refusals(
    side: Side, reply: Side | None, open_calls: Mapping[str, Block], prefix: Prefix
) -> Iterator[Refusal]:
    """A call may stay open while the turn pauses, or waits for the client as well."""
    for call_id, block in open_calls.items():
        is_provided = block.kind == "mcp_tool_use" or _is_provided(block.name, prefix)
        if is_provided and (reply is None or side.calls):
            continue
        gone = "" if is_provided else f", but no `{block.name}` tool was provided"
        kind = result_kind({"type": block.kind, "name": block.name})
        yield refuse(Rule.SERVER_CALL_UNANSWERED, tool=block.name, id=call_id, result=kind, gone=gone)


def _is_provided(name: str, prefix: Prefix) -> bool:
    if name in prefix.tool_names:
        return True
    return runs_code(name) and any(kind.startswith(_BRINGS_CODE) for kind in prefix.tool_types)


def _reply_refusals(side: Side, reply: Side, open_calls: Mapping[str, Block], container: object) -> Iterator[Refusal]:
    """While the server waits, the client sends results, nothing else, and names the container."""
    by_code = {block.id for block in side.blocks if block.is_programmatic}
    if not by_code and not open_calls:
        return
    if by_code or any(runs_code(block.name) for block in open_calls.values()):
        named = container.get("id") if isinstance(container, dict) else container
        if not named:
            yield refuse(Rule.NO_CONTAINER)
    for place in reply.places():
        if place.block.kind != RESULT:
            yield refuse(Rule.REPLY_NOT_RESULTS_ALONE, place.at)
        elif place.block.id in by_code and not _is_text(place, reply):
            yield refuse(Rule.RESULT_NOT_TEXT, place.at)


def _is_text(place: Place, side: Side) -> bool:
    value = content_blocks(side.messages[place.offset].value["content"])[place.position]
    content = value.get("content") or []
    return isinstance(content, str) or all(part["type"] == "text" for part in content)
