"""The record's time without asking for it: moments that machines tell each other must be by one clock."""

from __future__ import annotations

import time
from collections.abc import Callable

_SLACK_MS = 1000
"""The way to the record and back makes two machines differ by so much, at most."""


def now_ms() -> int:
    """The time of this machine: for what is measured and told, never for what is decided between machines."""
    return int(time.time() * 1000)


class RecordClock:
    """This machine's clock, and how far the record's is ahead of it. Any thread may read it."""

    def __init__(self, here_ms: Callable[[], int] = now_ms) -> None:
        self._here_ms = here_ms
        self._ahead_ms = 0

    def learn(self, record_ms: int) -> None:
        """This is the record's time now."""
        self._ahead_ms = record_ms - self._here_ms()

    def now_ms(self) -> int:
        """The record's time; this machine's, before it was learnt."""
        return self._here_ms() + self._ahead_ms


def believed_ms(sent_ms: int, now_ms: int) -> int | None:
    """When a message was sent, as its sender says; None for a time that has not come: the sender's clock is wrong."""
    return min(sent_ms, now_ms) if sent_ms <= now_ms + _SLACK_MS else None
