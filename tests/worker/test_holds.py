"""A run whose model has no room: what its ledger says of that."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.clock import FakeClock
from support.runs import BATCH, a_row

from paceline.core.agent import Agent
from paceline.core.ids import Incarnation
from paceline.core.ledger import Held
from paceline.core.step import FailureKind
from paceline.store.memory import MemoryRunStore
from paceline.tools import Registry
from paceline.worker.desk import Desk
from paceline.worker.scripted_model import Reply, ScriptedModel, fails, says
from paceline.worker.settings import Settings
from paceline.worker.turn import take_turn

pytestmark = pytest.mark.anyio

AGENT = Agent(name="held", model="claude-sonnet-5-5")
ROW = a_row()
WAIT_SECONDS = 1000.0
"""So long that no timer is set: the sweeper's business."""
THROTTLED = fails(FailureKind.THROTTLED, "429 too fast", retry_after_seconds=WAIT_SECONDS)


class Fleet:
    """A record and its clock; each attempt is made by a worker that has just come."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryRunStore(self.clock)

    async def submit(self) -> None:
        await self.store.put_agent(AGENT.digest, AGENT.freeze())
        await self.store.submit(await self.store.open_batch(replace(BATCH, agent=AGENT.digest)), [ROW])

    async def attempt(self, turn: int, *replies: Reply) -> None:
        """One attempt at a turn, and the wait behind it."""
        desk = Desk(
            settings=Settings(),
            store=self.store,
            model=ScriptedModel(replies),
            registry=Registry(),
            built_in={},
            incarnation=Incarnation("worker"),
            send=lambda messages: None,
        )
        await take_turn(desk, ROW.run_id, turn)
        self.clock.pass_seconds(1.2 * WAIT_SECONDS)  # what is added lest all come back at once is a fifth at most

    async def told(self) -> list[str]:
        """What the ledger says, in short."""
        entries = await self.store.ledger(ROW.run_id)
        return [entry.reason if isinstance(entry, Held) else type(entry).__name__ for entry in entries]


async def test_a_turn_that_is_throttled_again_and_again_says_so_once() -> None:
    fleet = Fleet()
    await fleet.submit()
    for _ in range(4):
        await fleet.attempt(1, THROTTLED)
        await fleet.store.hold_model(AGENT.model, seconds=WAIT_SECONDS)  # another run was throttled too
        await fleet.attempt(1)
    assert await fleet.told() == ["429 too fast"]


async def test_a_hold_in_another_turn_is_told_even_if_it_is_for_the_same_reason() -> None:
    fleet = Fleet()
    await fleet.submit()
    await fleet.attempt(1, THROTTLED)
    await fleet.attempt(1, says(""))
    await fleet.attempt(2, THROTTLED)
    assert await fleet.told() == ["429 too fast", "ModelCalled", "429 too fast"]
