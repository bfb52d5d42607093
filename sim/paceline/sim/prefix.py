"""System prompt and tools: the part of a prompt that stays the same through a run, so read only once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from typing import Any

from paceline.sim.fields import system_refusals
from paceline.sim.message import Block, content_blocks, meaning, read_block
from paceline.sim.rules import Refusal, Rule, first_enforced
from paceline.sim.tool_definitions import tool_refusals


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """Tools and system prompt as blocks, in that order, and the path of each; `sha256` is of their bytes as
    sent, system first. `tools_digest` and `system_digest` are of what they mean. A malformed one has no blocks but a
    refusal."""

    blocks: tuple[Block, ...]
    paths: tuple[str, ...]
    chars: int
    sha256: str
    tools_digest: bytes
    system_digest: bytes
    tool_names: frozenset[str]
    tool_types: tuple[str, ...]
    refusal: Refusal | None


class PrefixShelf:
    """Prefixes read lately, at most `size` of them."""

    def __init__(self, size: int = 256, unenforced: Collection[Rule] = ()) -> None:
        self._size = size
        self._unenforced = unenforced
        self._prefixes: OrderedDict[tuple[str, str], Prefix] = OrderedDict()

    def read(self, fields: Mapping[str, Any], raw: Mapping[str, str]) -> Prefix:
        """The prefix of a request whose tools and system have the right types."""
        key = (raw.get("system", ""), raw.get("tools", ""))
        prefix = self._prefixes.get(key)
        if prefix is None:
            prefix = _read(fields.get("system"), fields.get("tools"), "".join(key), self._unenforced)
            self._prefixes[key] = prefix
            if len(self._prefixes) > self._size:
                self._prefixes.popitem(last=False)
        return prefix


def _read(system: str | list[Any] | None, tools: list[Any] | None, raw: str, unenforced: Collection[Rule]) -> Prefix:
    refusal = first_enforced(chain(system_refusals(system), tool_refusals(tools)), unenforced)
    sound = tools if tools and not refusal else []
    placed = () if refusal else tuple(_placed(system, tools))
    return Prefix(
        blocks=tuple(block for block, _ in placed),
        paths=tuple(path for _, path in placed),
        chars=sum(block.chars for block, _ in placed),
        sha256=sha256(raw.encode("utf-8", "surrogatepass")).hexdigest(),
        tools_digest=b"".join(meaning(tool, "tools") for tool in sound),
        system_digest=b"".join(meaning(block, "system") for block in _system_blocks(system, refusal)),
        tool_names=frozenset(str(tool.get("name")) for tool in sound),
        tool_types=tuple(str(tool.get("type") or "custom") for tool in sound),
        refusal=refusal,
    )


def _system_blocks(system: str | list[Any] | None, refusal: Refusal | None) -> list[dict[str, Any]]:
    return [] if refusal else content_blocks(system or [])


def _placed(system: str | list[Any] | None, tools: list[Any] | None) -> Iterator[tuple[Block, str]]:
    for index, tool in enumerate(tools or ()):
        yield read_block({"type": "custom", **tool}, "tools"), f"tools.{index}"
    for index, block in enumerate(content_blocks(system or [])):
        yield read_block(block, "system"), f"system.{index}"
