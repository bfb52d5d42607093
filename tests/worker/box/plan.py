"""What fate has in store for a fleet in a box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto


class Strike(Enum):
    """What may happen at a step."""

    KILL = auto()
    """The worker that takes the step is gone at once; another starts in its place."""
    FREEZE = auto()
    """The worker that takes the step stands still, with all it does, and wakes up later."""
    OUTAGE = auto()
    """From here on the record cannot be reached by anybody, for a while."""
    STOP = auto()
    """The worker that takes the step is told to stop, with no time to finish anything; another starts."""
    CANCEL = auto()
    """Somebody cancels the run."""


class Fate(Enum):
    """What becomes of a message."""

    ARRIVES = auto()
    LOST = auto()
    TWICE = auto()
    LATE = auto()
    """After everything else that is under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What fate has in store: strikes by the number of the step, and what becomes of each message in turn."""

    strikes: Mapping[int, Strike] = field(default_factory=dict)
    fates: Sequence[Fate] = ()
    denials: Sequence[bool] = ()
    """Whether the person who is asked denies a call, each in turn; what comes after these is approved."""
    decides: bool = True
    """Whether there is a person who says anything about calls that want an approval."""
    redrives: int = 0
    """So often somebody lets the run go on when it has failed or was stopped."""
