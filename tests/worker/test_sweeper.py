"""Sweepers over a record in memory: what they send, and how often."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from support.clock import FakeClock
from support.runs import BATCH, a_row

from paceline.core.agent import Agent
from paceline.core.ids import Incarnation
from paceline.core.wire import Queue
from paceline.store.memory import MemoryRunStore
from paceline.tools import Registry
from paceline.worker.desk import Desk
from paceline.worker.messages import Message
from paceline.worker.scripted_model import ScriptedModel
from paceline.worker.settings import Settings
from paceline.worker.sweeper import Sweeper

pytestmark = pytest.mark.anyio

AGENT = Agent(name="swept", model="claude-sonnet-5-5")
ROWS = [a_row(f"row-{number}", index=number) for number in range(40)]


class _AnybodySweeps(MemoryRunStore):
    """Lets every worker sweep, as after a pause that one of them did not see."""

    async def may_sweep(self, owner: Incarnation, *, seconds: float) -> bool:
        return True


def a_sweeper(store: MemoryRunStore, name: str, sent: list[Message]) -> Sweeper:
    desk = Desk(
        settings=Settings(),
        store=store,
        model=ScriptedModel([]),
        registry=Registry(),
        built_in={},
        incarnation=Incarnation(name),
        send=sent.extend,
    )
    return Sweeper(desk=desk, empty_queues=lambda: frozenset(Queue))


async def test_two_sweeps_at_once_send_a_lost_message_once() -> None:
    clock, sent = FakeClock(), list[Message]()
    store = _AnybodySweeps(clock)
    await store.put_agent(AGENT.digest, AGENT.freeze())
    await store.submit(await store.open_batch(replace(BATCH, agent=AGENT.digest)), ROWS)
    clock.pass_seconds(31)
    await asyncio.gather(*(a_sweeper(store, name, sent).sweep() for name in ("worker-1", "worker-2")))
    assert sorted(message.run_id for message in sent) == sorted(row.run_id for row in ROWS)
