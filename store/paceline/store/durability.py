"""When a write counts: as soon as the server has it, when it is on its disk, or when a replica has it too.

Waited for where a loss could not be made good later: before a run is called submitted, before a call with an effect
starts, and before a result is reported. docs/guarantees.md says what each choice can lose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from paceline.core.errors import InfrastructureError


class Durability(StrEnum):
    """What a write that matters waits for."""

    FAST = "fast"
    """Nothing: the server's own persistence goes on behind it."""
    FSYNC = "fsync"
    """The server has it on disk: WAITAOF."""
    REPLICATED = "replicated"
    """A replica has it in memory: WAIT."""


def read_durability(text: str) -> Durability:
    """The durability of this name. ValueError says which there are."""
    try:
        return Durability(text.strip().lower())
    except ValueError:
        raise ValueError(f"it must be one of {', '.join(Durability)}") from None


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What is asked of the server behind a write, on the same connection: it answers for that connection's writes."""

    command: tuple[str | int, ...]
    missing: str
    """What to say if the server does not confirm in time."""

    def check(self, answer: int | list[int]) -> None:
        """Raises InfrastructureError unless the server says that one disk, or one replica, has the write."""
        if not (answer[0] if isinstance(answer, list) else answer):
            raise InfrastructureError(self.missing)


_FSYNC = Acknowledgement(
    # Under `appendfsync everysec` a write may wait a second for its turn, and longer for a slow disk.
    ("WAITAOF", 1, 0, 5000),
    "the record's disk did not confirm a write within 5 s (PACELINE_DURABILITY is fsync): is its disk full or slow?",
)
_REPLICATED = Acknowledgement(
    ("WAIT", 1, 500),
    "no replica confirmed a write within 0.5 s (PACELINE_DURABILITY is replicated): is a replica connected?",
)


ACKNOWLEDGEMENTS: Mapping[Durability, Acknowledgement] = MappingProxyType(
    {Durability.FSYNC: _FSYNC, Durability.REPLICATED: _REPLICATED}
)
"""What a write that matters waits for; FAST waits for nothing."""
