"""A fleet over the store in memory, and a hand that plays the workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from paceline.core.agent import Agent
from paceline.core.endings import Outcome, StopReason
from paceline.core.errors import InfrastructureError
from paceline.core.ids import RunId
from paceline.core.ledger import Ended
from paceline.producer.fleet import Fleet
from paceline.store.memory import MemoryRunStore
from paceline.store.port import TurnWrite

from .clock import FakeClock
from .runs import SPENT, Driven, model_called

AGENT = Agent(name="oncall", model="claude-sonnet-5-5")


@dataclass(slots=True)
class Announced:
    """A publisher that keeps what it was told."""

    run_ids: list[RunId] = field(default_factory=list)
    is_closed: bool = False
    refuses: list[bool] = field(default_factory=list)
    """Whether each of the next announcements is refused; those after the last are not."""
    asked: int = 0

    def publish_turns(self, run_ids: Sequence[RunId]) -> None:
        self.asked += 1
        if self.refuses and self.refuses.pop(0):
            raise InfrastructureError(f"refused announcement {self.asked}")
        self.run_ids += run_ids

    def close(self) -> None:
        self.is_closed = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFleet:
    """A fleet, and what is behind it."""

    fleet: Fleet
    store: MemoryRunStore
    announced: Announced
    clock: FakeClock

    def driven(self, run_id: RunId) -> Driven:
        return Driven(self.store, run_id)

    def finish(self, run_id: RunId, outcome: Outcome | None = None) -> None:
        """One turn of the run, and its end: an answer, or this outcome."""
        self.fleet.loop.run(self._finish(run_id, outcome or Outcome(reason=StopReason.FINAL_ANSWER, answer="Ada")))

    async def _finish(self, run_id: RunId, outcome: Outcome) -> None:
        driven = self.driven(run_id)
        await driven.begin()
        ended = Ended(turn=driven.held.turn, at_ms=self.clock.now_ms, reason=outcome.reason, message=outcome.message)
        write = TurnWrite(spent=SPENT, ledger=(model_called(), ended))
        await self.store.finish(driven.held, write, outcome)


@contextmanager
def memory_fleet() -> Iterator[MemoryFleet]:
    """Nothing leaves this process."""
    clock, announced = FakeClock(), Announced()
    store = MemoryRunStore(clock)
    with Fleet.over(store, announced) as fleet:
        yield MemoryFleet(fleet=fleet, store=store, announced=announced, clock=clock)
