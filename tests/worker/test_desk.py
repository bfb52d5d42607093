"""What a worker process has at hand."""

from __future__ import annotations

import asyncio

from worker.box.virtual_time import run_in_virtual_time

from paceline.core.agent import Agent
from paceline.core.ids import Incarnation
from paceline.store.memory import MemoryRunStore
from paceline.tools import Registry
from paceline.worker.desk import Desk
from paceline.worker.scripted_model import ScriptedModel
from paceline.worker.settings import Settings

AGENT = Agent(name="used", model="claude-sonnet-5-5")


def test_an_agent_that_a_worker_uses_is_not_forgotten_by_the_record() -> None:
    async def use_it_for_a_month() -> bytes | None:
        loop = asyncio.get_running_loop()
        store = MemoryRunStore(lambda: round(loop.time() * 1000))
        await store.put_agent(AGENT.digest, AGENT.freeze())
        desk = Desk(
            settings=Settings(),
            store=store,
            model=ScriptedModel([]),
            registry=Registry(),
            built_in={},
            incarnation=Incarnation("worker"),
            send=lambda messages: None,
        )
        for _ in range(30):
            assert await desk.agent(AGENT.digest) == AGENT
            await asyncio.sleep(86_400)
        return await store.agent(AGENT.digest)

    assert run_in_virtual_time(use_it_for_a_month()) == AGENT.freeze()
