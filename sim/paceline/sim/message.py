"""One message of a conversation: what is read off it once and used in each request that holds it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from paceline.sim.rules import Refusal
from paceline.sim.schema import message_refusals

CHARS_PER_IMAGE = 5600
_MARKER = r'"cache_control"\s*:\s*(?:\{[^{}]*\}|null)'
_MARKERS = re.compile(rf",\s*{_MARKER}|{_MARKER}\s*,?")
CALL = "tool_use"
RESULT = "tool_result"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of the prompt. `digest` covers the role and the block without its cache marker; `id` is that of
    the call or of the call answered; `ttl` is the marker's, None without a marker."""

    kind: str
    digest: bytes
    chars: int
    id: str = ""
    name: str = ""
    ttl: str | None = None
    text: str = ""
    is_error: bool = False

    @property
    def can_be_marked(self) -> bool:
        """Whether the automatic breakpoint may stand on this block."""
        return self.kind not in ("thinking", "redacted_thinking") and self.chars > 0


@dataclass(slots=True, kw_only=True, eq=False)
class Message:
    """A message as it was sent, and what is asked of it most. `calls` and `results` are ids in order; `is_tidy`
    means that results come first and calls last. `successor` is the message that last followed it (a guess for
    the next reading)."""

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
    refusal: Refusal | None
    successor: Message | None = None

    @property
    def text(self) -> str:
        """The text a person would read: text blocks and the texts of results, in order."""
        return "\n".join(block.text for block in self.blocks if block.text)


def read_message(raw: str, value: Any) -> Message:
    """Read a message off its text and its decoded value. A malformed one carries its refusal, path left open."""
    refusal = next(message_refusals(value), None)
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
        refusal=refusal,
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
        digest=blake2b(f"{level}\n{compact(without_markers(block))}".encode(), digest_size=16).digest(),
        chars=_chars(block, kind, text),
        id=block.get("tool_use_id") or block.get("id") or "",
        name=block.get("name", ""),
        ttl=(marker.get("ttl") or "5m") if isinstance(marker, dict) else None,
        text=text,
        is_error=block.get("is_error") is True,
    )


def compact(value: Any) -> str:
    """`value` as JSON without spaces, keys in the order they came."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


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
