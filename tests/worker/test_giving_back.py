"""What a worker that ends gives back, what it says of that, and how long it tries."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import replace

import pytest
from support.clock import FakeClock
from support.runs import BATCH, a_row
from worker.box.box import AGENT as BOXER
from worker.box.box import play_out
from worker.box.virtual_time import run_in_virtual_time

from paceline.core.agent import Agent
from paceline.core.errors import InfrastructureError
from paceline.core.ids import Incarnation
from paceline.core.ledger import AttemptLost, PossiblyBilled
from paceline.core.step import FailureKind
from paceline.core.tool_spec import ToolSpec
from paceline.store.memory import MemoryRunStore
from paceline.tools import Registry
from paceline.worker.desk import GIVING_BACK_SECONDS, Desk
from paceline.worker.problems import Problems
from paceline.worker.process import LEAVING_SECONDS, close, retire
from paceline.worker.scripted_model import ModelRequest, Reply, ScriptedModel, asks, fails
from paceline.worker.settings import Settings
from paceline.worker.turn import take_turn

pytestmark = pytest.mark.anyio

AGENT = Agent(name="ended", model="claude-sonnet-5-5")
ROW = a_row()


def a_desk(store: MemoryRunStore, *replies: Reply) -> Desk:
    return Desk(
        settings=Settings(),
        store=store,
        model=ScriptedModel(replies),
        registry=Registry(),
        built_in={},
        incarnation=Incarnation("worker-1"),
        send=lambda messages: None,
    )


async def submitted(agent: Agent = AGENT) -> MemoryRunStore:
    store = MemoryRunStore(FakeClock())
    await store.put_agent(agent.digest, agent.freeze())
    await store.submit(await store.open_batch(replace(BATCH, agent=agent.digest)), [ROW])
    return store


async def test_an_attempt_that_made_no_call_is_not_told_as_billed() -> None:
    store = await submitted()
    desk = a_desk(store)
    desk.in_flight.cut_tasks()
    messages = await take_turn(desk, ROW.run_id, 1)
    assert [message.run_id for message in messages] == [ROW.run_id]
    assert await store.ledger(ROW.run_id) == ()


async def test_an_attempt_that_was_cut_in_its_call_is_told_as_lost() -> None:
    store = await submitted()
    desk = a_desk(store)

    async def cut(request: ModelRequest) -> Reply:
        desk.in_flight.cut_tasks()
        return fails(FailureKind.TRANSIENT, "never seen")

    desk.model = ScriptedModel(cut)
    await take_turn(desk, ROW.run_id, 1)
    assert [type(entry) for entry in await store.ledger(ROW.run_id)] == [AttemptLost, PossiblyBilled]


def test_a_worker_that_ends_does_not_wait_for_the_record_for_ever() -> None:
    class Away(MemoryRunStore):
        async def now_ms(self) -> int:
            raise InfrastructureError("away")

    async def give_up() -> None:
        desk = a_desk(Away(FakeClock()))
        desk.in_flight.cut_tasks()
        with pytest.raises(InfrastructureError):
            await desk.until_written(desk.store.now_ms)

    run_in_virtual_time(give_up())


def test_a_worker_that_ends_waits_neither_for_what_is_silent_nor_for_what_holds_on() -> None:
    class Silent(MemoryRunStore):
        async def retire(self, incarnation: Incarnation) -> None:
            await asyncio.sleep(math.inf)

        async def aclose(self) -> None:
            await asyncio.sleep(math.inf)

    async def hold_on(released: asyncio.Event) -> None:
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(LEAVING_SECONDS)

    async def end() -> float:
        loop, desk, released = asyncio.get_running_loop(), a_desk(Silent(FakeClock())), asyncio.Event()
        desk.background.append(asyncio.ensure_future(hold_on(released)))
        await asyncio.sleep(0)
        began = loop.time()
        await retire(desk)
        await close(desk)
        released.set()
        return loop.time() - began

    assert run_in_virtual_time(end()) + GIVING_BACK_SECONDS < LEAVING_SECONDS


def test_an_id_that_is_only_mentioned_is_not_used_again() -> None:
    def mentions(request: ModelRequest, seen: int) -> Reply:
        if request.turn == 1:
            return asks(("c10", "look", {}))
        return asks(("c1", "finish", {"who": "Ada"}))

    over = play_out(mentions, agent=replace(BOXER, finish={"type": "object", "properties": {"who": {}}}))
    assert (over.record.reason, len(over.requests)) == ("finish_tool", 2)


def test_what_no_run_has_met_for_long_is_no_problem_any_more() -> None:
    clock = FakeClock(0)
    problems = Problems(lambda: clock.now_ms / 1000)
    assert problems.note("agent a", "agent a: no module")
    clock.pass_seconds(600)
    assert problems.note("agent b", "agent b: no module")
    clock.pass_seconds(600)
    assert problems.texts() == ("agent b: no module",)
    problems.solve("agent b")
    assert problems.texts() == ()


async def test_a_worker_without_a_tool_says_for_which_agent() -> None:
    spec = ToolSpec(name="gone", path="no_such_module:gone", description="", input_schema={"type": "object"})
    agent = replace(AGENT, tools=(spec,))
    store = await submitted(agent)
    desk = a_desk(store)
    await take_turn(desk, ROW.run_id, 1)
    (problem,) = desk.in_flight.problems.texts()
    assert agent.digest in problem
    assert "no_such_module" in problem
