"""Where spans go, as the rest of the worker sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paceline.core.ids import RunId
from paceline.core.trace_span import Span


class Tracer(Protocol):
    """Lives on the process's loop. Nothing here raises because of whoever collects the spans."""

    def samples(self, run_id: RunId) -> bool:
        """Whether this run is told at all: every process says the same."""

    def record(self, spans: Sequence[Span]) -> None:
        """Keep these to be sent."""

    async def flush(self) -> None:
        """Return when what was recorded is sent, or at once while nobody takes it."""

    async def aclose(self) -> None:
        """Send what is left, and give the connections back."""
