"""What a call came to, in the form the API takes: never empty, never too long, never broken."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from .bounding import bounded
from .images import Image
from .plain import NotPlain, plain, unbroken

Block: TypeAlias = dict[str, Any]
"""A content block, ready for JSON."""

NO_OUTPUT = "(no output)"
"""Stands for no text at all, which the API refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The content of a `tool_result` block."""

    content: str | list[Block]
    is_error: bool
    chars: int
    """The text's length before it was bounded."""
    whole: str | None = None
    """The whole text, if `content` has only its head and tail."""


def result_of(value: object, *, max_chars: int, call_id: str) -> ToolResult:
    """What a tool returned, as its result. Raises NotPlain for a value that has no form here.

    A str is itself; None, like a text without a character to see, is `NO_OUTPUT`; an Image, or a list or tuple with
    an Image in it, is a list of blocks; all else is JSON. If the texts of such a list are too long together, they
    are joined into one, bounded, and stand before the images.
    """
    match value:
        case Image():
            return ToolResult(content=[value.block()], is_error=False, chars=0)
        case list() | tuple() if any(isinstance(member, Image) for member in value):
            return _mixed(value, max_chars=max_chars, call_id=call_id)
        case _:
            return text_result(_text_of(value), max_chars=max_chars, call_id=call_id)


def text_result(text: str, *, max_chars: int, call_id: str, is_error: bool = False) -> ToolResult:
    """A text as a result: mended, bounded, never empty."""
    mended = unbroken(text)
    shown = bounded(mended, max_chars, call_id=call_id)
    return ToolResult(
        content=shown if shown.strip() else NO_OUTPUT,
        is_error=is_error,
        chars=len(mended),
        whole=None if shown is mended else mended,
    )


def _text_of(value: object) -> str:
    match value:
        case None:
            return ""
        case str():
            return str(value)
        case bytes() | bytearray() | memoryview():
            raise NotPlain("bytes are neither text nor an image: decode them, or return Image(data, media_type)")
        case _:
            return json.dumps(plain(value), ensure_ascii=False)


def _mixed(members: Sequence[object], *, max_chars: int, call_id: str) -> ToolResult:
    blocks = [block for member in members if (block := _block(member))]
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    chars = sum(len(text) for text in texts)
    if chars <= max_chars:
        return ToolResult(content=blocks, is_error=False, chars=chars)
    joined = text_result("\n\n".join(texts), max_chars=max_chars, call_id=call_id)
    images = [block for block in blocks if block["type"] == "image"]
    content = [{"type": "text", "text": joined.content}, *images]
    return ToolResult(content=content, is_error=False, chars=joined.chars, whole=joined.whole)


def _block(member: object) -> Block | None:
    if isinstance(member, Image):
        return member.block()
    text = unbroken(_text_of(member))
    return {"type": "text", "text": text} if text.strip() else None
