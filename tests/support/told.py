"""A tracer that keeps what it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from paceline.core.ids import RunId
from paceline.core.trace_span import Span


@dataclass(slots=True)
class Told:
    """A tracer that keeps what it is told. `sent` is what of it was sent when somebody waited for that."""

    wants: Callable[[RunId], bool] = lambda _: True
    spans: list[Span] = field(default_factory=list)
    sent: int = 0

    def samples(self, run_id: RunId) -> bool:
        return self.wants(run_id)

    def record(self, spans: Sequence[Span]) -> None:
        self.spans += spans

    async def flush(self) -> None:
        self.sent = len(self.spans)

    async def aclose(self) -> None:
        await self.flush()

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name.split()[0] == name]

    @property
    def root(self) -> Span:
        (root,) = [span for span in self.spans if span.parent is None]
        return root

    def assert_whole(self) -> None:
        """Nothing is told twice, and nothing without what is above it."""
        places = [span.place for span in self.spans]
        assert len(set(places)) == len(places)
        assert self.sent == len(places)
        for span in self.spans:
            assert span.parent is None or replace(span.place, span=span.parent) in places, f"{span.name} is an orphan"
            assert span.start_ms <= span.end_ms
