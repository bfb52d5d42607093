"""Signed thinking: what a signature says, and whether the block still stands where it was thought.

A signature is bound to the model, to the system prompt, the tools and everything said before, and to the place of
the block in its answer. It holds all of that itself, so any process can check what any other has signed.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from typing import Any

from paceline.sim.message import THOUGHTS, Message, content_blocks, meaning, meanings_of
from paceline.sim.prefix import Prefix

_KEY = b"paceline.sim signs for nobody"
_MAC_SIZE = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What a signature says: the model, digests of what came before the answer (`system`, `tools`, `messages`), of
    what came before the block within its turn (`within`) and of its text; and that it is number `index` of the
    `count` thinking blocks of the answer `answer`."""

    model: str
    system: str
    tools: str
    messages: str
    within: str
    text: str
    answer: str
    index: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """A thinking block of a request: where it stands, what its signature says (None: forged), and what a
    signature would say if the block had been thought right there."""

    message: int
    position: int
    kind: str
    is_latest: bool
    signed: Stamp | None
    here: Stamp

    @property
    def at(self) -> str:
        return f"messages.{self.message}.content.{self.position}"


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a conversation: digests of the turns before this one, and of this turn up to here."""

    earlier: bytes = b""
    within: bytes = b""

    def after(self, meaning_of_block: bytes) -> Place:
        return Place(self.earlier, _chain(self.within, meaning_of_block))

    def next_turn(self) -> Place:
        return Place(_chain(self.earlier, self.within))


def thoughts(model: str, prefix: Prefix, messages: Sequence[Message]) -> list[Thought]:
    """Every thinking block of a request."""
    latest = _start_of_latest_turn(messages)
    return [
        Thought(
            message=index,
            position=position,
            kind=block["type"],
            is_latest=index >= latest,
            signed=read_signature(block.get("signature") or block.get("data") or ""),
            here=_stamp(model, prefix, place, block),
        )
        for index, position, block, place in _walk(messages)
        if block["type"] in THOUGHTS
    ]


def signed_content(
    content: Sequence[Mapping[str, Any]], model: str, prefix: Prefix, messages: Sequence[Message], answer: str
) -> list[dict[str, Any]]:
    """The content of the answer named `answer`, with every thinking block that has no signature yet signed."""
    place = _place_of_answer(messages)
    count = sum(block["type"] in THOUGHTS for block in content)
    done: list[dict[str, Any]] = []
    index = 0
    for block in content:
        if block["type"] in THOUGHTS:
            stamp = replace(_stamp(model, prefix, place, block), answer=answer, index=index, count=count)
            block = _signed(block, stamp)
            index += 1
        done.append(dict(block))
        place = place.after(meaning(block, "assistant"))
    return done


def signature(stamp: Stamp) -> str:
    """The stamp as text that only this simulator makes."""
    said = json.dumps(list(asdict(stamp).values()), separators=(",", ":")).encode()
    return base64.b64encode(_mac(said) + said).decode()


def read_signature(text: str) -> Stamp | None:
    """What a signature says; None for one that was not made here."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    said = data[_MAC_SIZE:]
    return (
        Stamp(**dict(zip(Stamp.__slots__, json.loads(said), strict=True))) if _mac(said) == data[:_MAC_SIZE] else None
    )


def _mac(said: bytes) -> bytes:
    return blake2b(said, key=_KEY, digest_size=_MAC_SIZE).digest()


def _signed(block: Mapping[str, Any], stamp: Stamp) -> dict[str, Any]:
    name = "signature" if block["type"] == "thinking" else "data"
    return {**block, name: block.get(name) or signature(stamp)}


def _stamp(model: str, prefix: Prefix, place: Place, block: Mapping[str, Any]) -> Stamp:
    return Stamp(
        model=model,
        system=_short(prefix.system_digest),
        tools=_short(prefix.tools_digest),
        messages=_short(place.earlier),
        within=_short(place.within),
        text=_short(str(block.get("thinking", "")).encode("utf-8", "surrogatepass")),
        answer="",
        index=0,
        count=0,
    )


def _short(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


def _chain(before: bytes, more: bytes) -> bytes:
    return blake2b(before + more, digest_size=16).digest()


def _walk(messages: Sequence[Message]) -> Iterator[tuple[int, int, dict[str, Any], Place]]:
    """Every block with its place; consecutive messages of one role are one turn."""
    place = Place()
    for index, message in enumerate(messages):
        if index and messages[index - 1].role != message.role:
            place = place.next_turn()
        blocks = content_blocks(message.value["content"])
        for position, (block, digest) in enumerate(zip(blocks, meanings_of(message), strict=True)):
            yield index, position, block, place
            place = place.after(digest)


def _place_of_answer(messages: Sequence[Message]) -> Place:
    """Where an answer stands: it goes on with a turn of the model's that is not over."""
    place = Place()
    for index, message in enumerate(messages):
        if index and messages[index - 1].role != message.role:
            place = place.next_turn()
        for digest in meanings_of(message):
            place = place.after(digest)
    return place if messages[-1].role == "assistant" else place.next_turn()


def _start_of_latest_turn(messages: Sequence[Message]) -> int:
    """The index of the first message of the model's latest turn; past the end when it has not spoken."""
    index = len(messages) - 1
    while index >= 0 and messages[index].role != "assistant":
        index -= 1
    if index < 0:
        return len(messages)
    while index > 0 and messages[index - 1].role == "assistant":
        index -= 1
    return index
