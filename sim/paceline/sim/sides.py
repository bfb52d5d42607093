"""A conversation as the API reads it: consecutive messages of one role are one side of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paceline.sim.message import Block, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A block and where it stands: its path in the request, the message within its side, and the place there."""

    block: Block
    at: str
    offset: int
    position: int


@dataclass(slots=True, kw_only=True)
class Side:
    """Consecutive messages of one role."""

    role: str
    index: int
    messages: list[Message]

    def places(self) -> Iterator[Place]:
        for offset, message in enumerate(self.messages):
            for position, block in enumerate(message.blocks):
                at = f"messages.{self.index + offset}.content.{position}"
                yield Place(block=block, at=at, offset=offset, position=position)

    @property
    def blocks(self) -> list[Block]:
        return [block for message in self.messages for block in message.blocks]

    @property
    def calls(self) -> list[str]:
        """Ids of the calls made, in order."""
        return [call for message in self.messages for call in message.calls]


def merged(messages: Sequence[Message]) -> list[Side]:
    """The sides of a conversation in order (rule 18)."""
    sides: list[Side] = []
    for index, message in enumerate(messages):
        if sides and sides[-1].role == message.role:
            sides[-1].messages.append(message)
        else:
            sides.append(Side(role=message.role, index=index, messages=[message]))
    return sides
