"""What sound parts of a request break together: thinking, server tools, output formats and versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from paceline.sim.message import Message, content_blocks
from paceline.sim.prefix import Prefix
from paceline.sim.rules import Refusal, Rule, refuse
from paceline.sim.server_tools import reference_refusals, server_tool_refusals
from paceline.sim.sides import merged


def combination_refusals(
    fields: Mapping[str, Any], messages: Sequence[Message], prefix: Prefix, *, is_late: bool
) -> Iterator[Refusal]:
    """What a conversation breaks with the other fields; `is_late` for requests of version 2026-10-21."""
    if not fields.get("tools") and any(message.calls or message.results for message in messages):
        yield refuse(Rule.CALLS_WITHOUT_TOOLS)
    if (fields.get("output_config") or {}).get("format"):
        yield from _format_refusals(messages)
    if all(message.is_plain for message in messages):
        return
    if is_late:
        for index, message in enumerate(messages):
            if message.late_refusal is not None:
                yield message.late_refusal.under(f"messages.{index}")
    yield from server_tool_refusals(merged(messages), prefix, fields.get("container"))
    yield from reference_refusals(messages, prefix)


def _format_refusals(messages: Sequence[Message]) -> Iterator[Refusal]:
    if messages[-1].role == "assistant" and messages[-1].is_plain:
        yield refuse(Rule.FORMAT_WITH_PREFILL)
    for index, message in enumerate(messages):
        for position, block in enumerate(content_blocks(message.value["content"])):
            if any(_cites(each) for each in chain([block], _inner(block))):
                yield refuse(Rule.FORMAT_WITH_CITATIONS, f"messages.{index}.content.{position}")


def _inner(block: Mapping[str, Any]) -> list[Any]:
    content = block.get("content")
    return content if isinstance(content, list) else []


def _cites(block: Any) -> bool:
    citations = block.get("citations") if isinstance(block, dict) else None
    return isinstance(citations, dict) and citations.get("enabled") is True
