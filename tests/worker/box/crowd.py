"""Many runs in one box: what becomes of a whole batch, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from support.runs import BATCH, a_row

from paceline.core.agent import Agent
from paceline.core.ids import batch_tag
from paceline.core.ledger import Entry
from paceline.store.port import BatchCounts, Budget, RunRecord
from paceline.worker.scripted_model import ModelRequest, Reply, says

from .box import AGENT, LONGEST_SECONDS, Box
from .plan import Plan
from .virtual_time import run_in_virtual_time

Says = Callable[[ModelRequest, float], Reply]
"""What the model says to a request that comes so many seconds after the submission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The crowd at one moment, `at_s` seconds after its submission."""

    at_s: float
    counts: BatchCounts
    requests: int
    """Made so far."""
    messages: int
    """Sent so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdOver:
    """How a crowd of runs ended, and how it stood on the way."""

    records: Sequence[RunRecord]
    ledgers: Sequence[Sequence[Entry]]
    looks: Sequence[Look]
    budget: Budget | None
    steps: Sequence[str]
    raised: Sequence[Exception]


class Crowd(Box):
    """So many runs of one agent, and workers that have room for all of them."""

    def __init__(
        self, answer: Says, agent: Agent, plan: Plan, *, runs: int, model_seconds: float, budget: int | None
    ) -> None:
        super().__init__(lambda request, seen: says("never asked"), plan, agent, budget=budget)
        self._rows = [a_row(f"row-{number}", index=number) for number in range(runs)]
        self._says = answer
        self._model_seconds = model_seconds
        self._began = self._loop.time()

    async def all_out(self, *, workers: int, look_seconds: float) -> CrowdOver:
        """Submit the runs, and look at them every so often until all of them are over."""
        await self._submit(self._rows)
        for _ in range(workers):
            self._start_worker()
        looks = [await self._look()]
        while looks[-1].counts.active:
            assert self._seconds() < LONGEST_SECONDS, looks[-1]
            await asyncio.sleep(look_seconds)
            looks.append(await self._look())
        await self._end()
        records = [record for row in self._rows if (record := await self.store.run(row.run_id))]
        ledgers = [await self.store.ledger(row.run_id) for row in self._rows]
        return CrowdOver(
            records=records,
            ledgers=ledgers,
            looks=looks,
            budget=await self.store.budget(batch_tag(BATCH.name)),
            steps=self.steps,
            raised=self.raised,
        )

    def _seconds(self) -> float:
        return self._loop.time() - self._began

    async def _look(self) -> Look:
        counts = await self.store.counts(batch_tag(BATCH.name))
        return Look(at_s=self._seconds(), counts=counts, requests=len(self.model.requests), messages=self.broker.sent)

    async def _answer(self, request: ModelRequest) -> Reply:
        asked_at = self._seconds()
        await asyncio.sleep(self._model_seconds)
        return self._says(request, asked_at)


def all_out(
    answer: Says,
    *,
    runs: int,
    agent: Agent = AGENT,
    plan: Plan | None = None,
    budget: int | None = None,
    workers: int = 4,
    model_seconds: float = 7.0,
    look_seconds: float = 5.0,
) -> CrowdOver:
    """A batch of runs from its submission until all of them are over; `budget` is what it may cost, in nano-dollars."""

    async def main() -> CrowdOver:
        crowd = Crowd(answer, agent, plan or Plan(), runs=runs, model_seconds=model_seconds, budget=budget)
        return await crowd.all_out(workers=workers, look_seconds=look_seconds)

    return run_in_virtual_time(main())
