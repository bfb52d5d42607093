"""Whether the record has heard this process without a break: one that it has not heard must not call others dead.

A record that was away, or refused every write, has lost everybody's sign of life, and whoever reaches it first would
find all others gone. So after a break of its own a process judges nobody until the others had time for a beat.
"""

from __future__ import annotations

BEATS_PER_CLAIM = 6
"""Several beats may fail before the sign of life runs out."""
_BREAK_BEATS = 2.0
_PATIENCE_BEATS = 1.5


class Pulse:
    """The beats of a process, every `seconds`. Moments are those of its loop's clock."""

    def __init__(self, *, seconds: float) -> None:
        self.seconds = seconds
        self._last: float | None = None
        self._steady_from = float("-inf")

    def note_beat(self, now: float) -> None:
        """The record has taken a sign of life."""
        if self._has_stopped(now):
            self._steady_from = now + _PATIENCE_BEATS * self.seconds
        self._last = now

    def is_steady(self, now: float) -> bool:
        """Whether a sign of life that is missing in the record means that its process is gone."""
        return now >= self._steady_from and not self._has_stopped(now)

    def _has_stopped(self, now: float) -> bool:
        # A process that has never beaten knows of no break: what it finds is as it finds it.
        return self._last is not None and now - self._last > _BREAK_BEATS * self.seconds
