"""What the server makes of a context before the model sees it: old results cleared, old messages summed up.

The edits of `context_management` are made on a copy, request by request: what was sent stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from paceline.sim.answer import Spoken, make_id
from paceline.sim.journal import Usage
from paceline.sim.message import CALL, COMPACTION, RESULT, Block, Message
from paceline.sim.prefix import Prefix
from paceline.sim.tokens import tokens

_CLEAR_AT, _KEEP = 100_000, 3
_COMPACT_AT = 150_000
"""The API's own, where an edit names none (Anthropic's pages on context editing and compaction)."""
_PLACEHOLDER_CHARS = 20
"""What is shown of a cleared result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A summary that is to be made of all that came before. `pauses`: nothing else is said with it."""

    block: Mapping[str, Any]
    pauses: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """A context with its edits. `applied` is told of them; `original_tokens` is what it was before."""

    messages: Sequence[Message]
    prefix_chars: int
    original_tokens: int
    applied: tuple[Mapping[str, Any], ...] = ()
    summary: Summary | None = None

    @property
    def tokens(self) -> int:
        return tokens(self.prefix_chars + sum(message.chars for message in self.messages))


def edited(fields: Mapping[str, Any], prefix: Prefix, messages: Sequence[Message], conversation: str) -> Edited | None:
    """The messages of a request as its edits leave them; None for a request that asks for none."""
    asked = fields.get("context_management")
    if asked is None:
        return None
    original = tokens(prefix.chars + sum(message.chars for message in messages))
    context = Edited(messages=_heeded(messages), prefix_chars=prefix.chars, original_tokens=original)
    for edit in asked.get("edits") or ():
        context = _made(edit, context, conversation)
    return context


def _made(edit: Mapping[str, Any], context: Edited, conversation: str) -> Edited:
    match edit.get("type"):
        case "clear_tool_uses_20250919":
            return _cleared(context, edit)
        case "compact_20260112":
            return _summed_up(context, edit, conversation)
        case _:
            return context


def with_summary(spoken: Spoken, edited: Edited | None) -> Spoken:
    """An answer as it goes out: behind the summary that was made before it, if there is one."""
    if edited is None or edited.summary is None or edited.summary.pauses:
        return spoken
    return replace(spoken, content=[dict(edited.summary.block), *spoken.content])


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What an answer cost. A summary is in `iterations` alone: `usage`, the top level, leaves it out."""

    usage: Usage
    iterations: tuple[Mapping[str, Any], ...] = ()


def billed(read: Usage, spoken: Spoken, edited: Edited | None) -> Bill:
    """The bill of an answer to a prompt that cost `read`: where it was summed up, the model saw the summary alone."""
    said = Usage(output_tokens=spoken.output_tokens)
    if edited is None or edited.summary is None:
        return Bill(usage=read + said)
    chars = len(edited.summary.block["content"])
    summing_up = {"type": COMPACTION, **_counted(read + Usage(output_tokens=tokens(chars)))}
    if edited.summary.pauses:
        return Bill(usage=Usage(), iterations=(summing_up,))
    usage = Usage(input_tokens=tokens(edited.prefix_chars + chars)) + said
    return Bill(usage=usage, iterations=(summing_up, {"type": "message", **_counted(usage)}))


def _counted(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
    }


def _heeded(messages: Sequence[Message]) -> Sequence[Message]:
    """Nothing that stands before the last summary reaches the model."""
    for index in range(len(messages) - 1, -1, -1):
        kinds = [block.kind for block in messages[index].blocks]
        if COMPACTION in kinds:
            start = len(kinds) - 1 - kinds[::-1].index(COMPACTION)
            return [_with_blocks(messages[index], messages[index].blocks[start:]), *messages[index + 1 :]]
    return messages


def _cleared(context: Edited, edit: Mapping[str, Any]) -> Edited:
    messages = context.messages
    if not _is_due(context, edit, _CLEAR_AT):
        return context
    kept = (edit.get("keep") or {}).get("value", _KEEP)
    spared = _calls_of(messages, edit.get("exclude_tools") or ())
    results = [block.id for message in messages for block in message.blocks if block.kind == RESULT]
    gone = {id_ for id_ in results[: max(0, len(results) - kept)] if id_ not in spared}
    shown = [_without_results(message, gone) for message in messages]
    saved = tokens(sum(message.chars for message in messages) - sum(message.chars for message in shown))
    least = (edit.get("clear_at_least") or {}).get("value", 0)
    if not gone or saved < least:
        return context
    told = {"type": edit["type"], "cleared_tool_uses": len(gone), "cleared_input_tokens": saved}
    return replace(context, messages=shown, applied=(*context.applied, told))


def _summed_up(context: Edited, edit: Mapping[str, Any], conversation: str) -> Edited:
    if not _is_due(context, edit, _COMPACT_AT):
        return context
    block = {
        "type": COMPACTION,
        "content": f"What was said in {len(context.messages)} messages.",
        "encrypted_content": make_id("", conversation, "encrypted"),
        "signature": make_id("", conversation, "summary"),
    }
    return replace(context, summary=Summary(block=block, pauses=edit.get("pause_after_compaction") is True))


def _is_due(context: Edited, edit: Mapping[str, Any], otherwise: int) -> bool:
    trigger = edit.get("trigger") or {"type": "input_tokens", "value": otherwise}
    if trigger["type"] == "tool_uses":
        return sum(len(message.calls) for message in context.messages) > int(trigger["value"])
    return context.tokens > int(trigger["value"])


def _calls_of(messages: Sequence[Message], tools: Sequence[str]) -> set[str]:
    blocks: Iterator[Block] = (block for message in messages for block in message.blocks)
    return {block.id for block in blocks if block.kind == CALL and block.name in tools}


def _without_results(message: Message, gone: set[str]) -> Message:
    if not gone.intersection(message.results):
        return message
    return _with_blocks(message, [_emptied(block) if block.id in gone else block for block in message.blocks])


def _emptied(block: Block) -> Block:
    digest = blake2b(b"cleared" + block.id.encode(), digest_size=16).digest()
    return replace(block, digest=digest, chars=min(block.chars, _PLACEHOLDER_CHARS), text="")


def _with_blocks(message: Message, blocks: Sequence[Block]) -> Message:
    return replace(message, blocks=tuple(blocks), chars=sum(block.chars for block in blocks), successor=None)
