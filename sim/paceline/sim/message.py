"""One message of a conversation: what is read off it once and used in each request that holds it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from paceline.sim.rules import Refusal, Rule, first_enforced
from paceline.sim.schema import late_message_refusals, message_refusals

CHARS_PER_IMAGE = 5600
_MARKER = r'"cache_control"\s*:\s*(?:\{[^{}]*\}|null)'
_MARKERS = re.compile(rf",\s*{_MARKER}|{_MARKER}\s*,?")
CALL = "tool_use"
RESULT = "tool_result"
COMPACTION = "compaction"
THOUGHTS = ("thinking", "redacted_thinking")
SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_DIRECT = (None, "direct")
_COMMON = frozenset({"text", CALL, RESULT})
_FINDERS = (RESULT, "tool_search_tool_result")
# A message without these words keeps the rules of version 2026-10-21 anyway.
_LATE_WORDS = ('"document"', '"citations"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of the prompt. `digest` covers the role and the block without its cache marker; `id` is that of
    the call or of the call answered; `ttl` is the marker's, None without a marker. `references` are the tools that
    it names, and `is_programmatic` is true for a call made by code that the model wrote."""

    kind: str
    digest: bytes
    chars: int
    id: str = ""
    name: str = ""
    ttl: str | None = None
    text: str = ""
    is_error: bool = False
    references: tuple[str, ...] = ()
    is_programmatic: bool = False

    @property
    def is_server_result(self) -> bool:
        """Whether this is what a tool of the API's own, or of an MCP server, brought."""
        return self.kind.endswith("_tool_result")

    @property
    def is_plain(self) -> bool:
        """Whether nothing but the pairing of calls and results concerns this block."""
        if self.kind in _COMMON:
            return not (self.references or self.is_programmatic)
        return not (self.kind in THOUGHTS or self.kind in SERVER_CALLS or self.is_server_result)

    @property
    def can_be_marked(self) -> bool:
        """Whether the automatic breakpoint may stand on this block."""
        return self.kind not in THOUGHTS and self.chars > 0


@dataclass(slots=True, kw_only=True, eq=False)
class Message:
    """A message as it was sent, and what is asked of it most. `calls` and `results` are ids in order; `is_tidy`
    means that results come first and calls last, `is_plain` that only pairing concerns it. `late_refusal` holds
    since version 2026-10-21 alone. `successor` is the message that last followed it (a guess for the next
    reading), `meanings` a memory of `meanings_of`."""

    raw: str
    value: Any
    role: str
    digest: str
    blocks: tuple[Block, ...]
    chars: int
    calls: tuple[str, ...]
    results: tuple[str, ...]
    is_tidy: bool
    is_marked: bool
    is_plain: bool
    refusal: Refusal | None
    late_refusal: Refusal | None
    successor: Message | None = None
    meanings: tuple[bytes, ...] | None = None

    @property
    def text(self) -> str:
        """The text a person would read: text blocks and the texts of results, in order."""
        return "\n".join(block.text for block in self.blocks if block.text)


def read_message(raw: str, value: Any, unenforced: Collection[Rule] = ()) -> Message:
    """Read a message off its text and its decoded value. A malformed one carries its refusal, path left open."""
    refusal = first_enforced(message_refusals(value), unenforced)
    is_early = refusal is not None or not any(word in raw for word in _LATE_WORDS)
    late = None if is_early else first_enforced(late_message_refusals(value), unenforced)
    role = value.get("role") if isinstance(value, dict) else None
    blocks = () if refusal else tuple(read_block(block, role) for block in content_blocks(value["content"]))
    return Message(
        raw=raw,
        value=value,
        role=role if isinstance(role, str) else "",
        digest=digest_without_markers(raw),
        blocks=blocks,
        chars=sum(block.chars for block in blocks),
        calls=tuple(block.id for block in blocks if block.kind == CALL),
        results=tuple(block.id for block in blocks if block.kind == RESULT),
        is_tidy=_is_tidy([block.kind for block in blocks]),
        is_marked=any(block.ttl is not None for block in blocks),
        is_plain=late is None and all(block.is_plain for block in blocks),
        refusal=refusal,
        late_refusal=late,
    )


def _is_tidy(kinds: list[str]) -> bool:
    return kinds == sorted(kinds, key=lambda kind: {RESULT: 0, CALL: 2}.get(kind, 1))


def content_blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Content as blocks; a string is one text block, the empty string none."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content


def read_block(block: dict[str, Any], level: object) -> Block:
    """Read one block of a message, the system prompt or the tools; `level` says which."""
    kind = block.get("type") or "custom"
    text = _text(block)
    marker = block.get("cache_control")
    return Block(
        kind=kind,
        digest=_digest(block, level),
        chars=_chars(block, kind, text),
        id=block.get("tool_use_id") or block.get("id") or "",
        name=block.get("name", ""),
        ttl=(marker.get("ttl") or "5m") if isinstance(marker, dict) else None,
        text=text,
        is_error=block.get("is_error") is True,
        references=tuple(_references(block, kind)) if kind in _FINDERS else (),
        is_programmatic=kind == CALL and (block.get("caller") or {}).get("type") not in _DIRECT,
    )


def meanings_of(message: Message) -> tuple[bytes, ...]:
    """A digest for each block of what it means: markers, null fields and the order of its fields change nothing."""
    if message.meanings is None:
        blocks = content_blocks(message.value["content"])
        message.meanings = tuple(meaning(block, message.role) for block in blocks)
    return message.meanings


def meaning(block: Mapping[str, Any], level: str) -> bytes:
    """The digest of one block, as `meanings_of` has it."""
    kept = {key: part for key, part in without_markers(block).items() if part is not None}
    written = f"{level}\n{compact(dict(sorted(kept.items())))}"
    return blake2b(written.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _references(block: Mapping[str, Any], kind: str) -> Iterator[str]:
    """Names of the tools that a result, or a search for tools, hands out."""
    content = block.get("content")
    if kind == RESULT and isinstance(content, list):
        yield from (part["tool_name"] for part in content if part["type"] == "tool_reference")
    elif kind == "tool_search_tool_result" and isinstance(content, dict):
        found = content.get("tool_references")
        yield from (str(part.get("tool_name")) for part in found or () if isinstance(part, dict))


def _digest(block: dict[str, Any], level: object) -> bytes:
    written = f"{level}\n{compact(without_markers(block))}"
    return blake2b(written.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def compact(value: Any) -> str:
    """`value` as JSON without spaces, keys in the order they came."""
    return _COMPACT.encode(value)


def without_markers(value: Any) -> Any:
    """`value` without the cache markers of blocks and of the blocks inside them."""
    if not isinstance(value, dict):
        return value
    kept = {key: part for key, part in value.items() if key != "cache_control"}
    if isinstance(kept.get("content"), list):
        kept["content"] = [without_markers(part) for part in kept["content"]]
    return kept


def digest_without_markers(raw: str) -> str:
    """A short hash of JSON text as it was sent, but for its cache markers."""
    if '"cache_control"' in raw:
        raw = _MARKERS.sub("", raw)
    return blake2b(raw.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _text(block: dict[str, Any]) -> str:
    if block.get("type") == "text":
        return str(block["text"])
    if block.get("type") != RESULT:
        return ""
    parts = content_blocks(block.get("content") or [])
    return "\n".join(part["text"] for part in parts if part.get("type") == "text")


def _chars(block: dict[str, Any], kind: str, text: str) -> int:
    """Characters that count as prompt: the text where there is one, else the block as JSON."""
    if kind == "text":
        return len(text)
    if kind == "image":
        return CHARS_PER_IMAGE
    if kind == "thinking":
        return len(str(block["thinking"]))
    if kind == CALL:
        return len(block["name"]) + len(compact(block["input"]))
    if kind == RESULT:
        parts = content_blocks(block.get("content") or [])
        return sum(_chars(part, part["type"], _text(part)) for part in parts)
    return len(compact(without_markers(block)))
