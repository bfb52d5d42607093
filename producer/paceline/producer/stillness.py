"""Whether a batch that is watched has stopped moving: then a person wants to know why."""

from __future__ import annotations

import time
from collections.abc import Callable

from .fleet import BatchStatus


class Stillness:
    """Tells the moments at which to say why nothing moves: after so many seconds, and as often again."""

    def __init__(self, *, after_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._after_seconds = after_seconds
        self._clock = clock
        self._last: tuple[int, int, int] | None = None
        self._since = clock()

    def is_to_be_told(self, status: BatchStatus) -> bool:
        """Whether the batch is not over, and has not moved since it did, or since that was last told."""
        now, counts = self._clock(), status.counts
        at = (counts.turns, counts.active, counts.spent.tool_calls)
        if at != self._last:
            self._last, self._since = at, now
        if status.is_done or now - self._since < self._after_seconds:
            return False
        self._since = now
        return True
