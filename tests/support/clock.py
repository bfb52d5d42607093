"""A clock that moves when it is told to."""

from __future__ import annotations


class FakeClock:
    """Milliseconds since the epoch; starts at a moment that is easy to read in a failed test."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def pass_seconds(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)
