"""A whole prompt as the cache sees it: tools, system and messages as one row of blocks, some of them marked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, chain
from typing import Any

from paceline.sim.message import Block, Message
from paceline.sim.models import Model
from paceline.sim.prefix import Prefix
from paceline.sim.rules import Refusal, Rule, refuse
from paceline.sim.tokens import tokens

MAX_MARKERS = 4
# Fields whose change spares what is cached of tools and system, but not of the messages.
_MESSAGE_LEVEL = ("tool_choice", "thinking", "output_config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A cache breakpoint: after the block at `position` of the row, which stands at the path `at`."""

    position: int
    ttl: str
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The prompt of one request. `markers` are in order; `settings` are the fields that messages depend on."""

    prefix: Prefix
    messages: Sequence[Message]
    markers: tuple[Marker, ...]
    settings: str

    @property
    def tokens(self) -> int:
        return tokens(self.prefix.chars + sum(message.chars for message in self.messages))

    def tokens_up_to(self) -> list[int]:
        """For each position, the tokens of the prompt up to and with that block."""
        return [tokens(chars) for chars in accumulate(block.chars for block in self._row())]

    def keys(self, scope: str) -> list[bytes]:
        """For each position, a name for the prompt up to and with that block; equal for equal bytes in `scope`."""
        key = blake2b(scope.encode(), digest_size=16).digest()
        keys = []
        for position, block in enumerate(self._row()):
            if position == len(self.prefix.blocks):
                key += self.settings.encode()
            key = blake2b(key + block.digest, digest_size=16).digest()
            keys.append(key)
        return keys

    def _row(self) -> Iterator[Block]:
        return chain(self.prefix.blocks, (block for message in self.messages for block in message.blocks))


def read_prompt(fields: Mapping[str, Any], prefix: Prefix, messages: Sequence[Message]) -> Prompt:
    """The prompt of a request whose parts are sound."""
    return Prompt(
        prefix=prefix,
        messages=messages,
        markers=tuple(_markers(fields.get("cache_control"), prefix, messages)),
        settings=_settings(fields),
    )


def _settings(fields: Mapping[str, Any]) -> str:
    given = {name: fields[name] for name in _MESSAGE_LEVEL if fields.get(name)}
    return json.dumps(given) if given else ""


def prompt_refusals(prompt: Prompt, model: Model) -> Iterator[Refusal]:
    """What the markers of a prompt break together, and its length."""
    if len(prompt.markers) > MAX_MARKERS:
        yield refuse(Rule.TOO_MANY_MARKERS, found=len(prompt.markers))
    is_short = False
    for marker in prompt.markers:
        if is_short and marker.ttl == "1h":
            yield refuse(Rule.LONG_AFTER_SHORT, marker.at)
        is_short = is_short or marker.ttl == "5m"
    if prompt.tokens > model.window_tokens:
        yield refuse(Rule.PROMPT_TOO_LONG, tokens=prompt.tokens, most=model.window_tokens)


def _markers(automatic: Mapping[str, Any] | None, prefix: Prefix, messages: Sequence[Message]) -> Iterator[Marker]:
    explicit = list(_explicit(prefix, messages))
    yield from explicit
    last = _last_cacheable(prefix, messages) if automatic else None
    # On a block that is marked already the automatic breakpoint adds nothing.
    if automatic and last and last[0] not in [marker.position for marker in explicit]:
        yield Marker(position=last[0], ttl=automatic.get("ttl") or "5m", at=last[1])


def _explicit(prefix: Prefix, messages: Sequence[Message]) -> Iterator[Marker]:
    for position, (block, path) in enumerate(zip(prefix.blocks, prefix.paths, strict=True)):
        if block.ttl is not None:
            yield Marker(position=position, ttl=block.ttl, at=path)
    start = len(prefix.blocks)
    for index, message in enumerate(messages):
        if message.is_marked:
            for offset, block in enumerate(message.blocks):
                if block.ttl is not None:
                    yield Marker(position=start + offset, ttl=block.ttl, at=f"messages.{index}.content.{offset}")
        start += len(message.blocks)


def _last_cacheable(prefix: Prefix, messages: Sequence[Message]) -> tuple[int, str] | None:
    position = len(prefix.blocks) + sum(len(message.blocks) for message in messages)
    for index in range(len(messages) - 1, -1, -1):
        blocks = messages[index].blocks
        for offset in range(len(blocks) - 1, -1, -1):
            position -= 1
            if blocks[offset].can_be_marked:
                return position, f"messages.{index}.content.{offset}"
    return (len(prefix.blocks) - 1, prefix.paths[-1]) if prefix.blocks else None
