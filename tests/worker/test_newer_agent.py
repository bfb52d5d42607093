"""While a fleet is upgraded, runs of an agent that only a newer worker can read are left to that worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

from support.clock import FakeClock
from support.runs import BATCH, Driven, a_call, a_row

from paceline.core.agent import Agent
from paceline.core.ids import CallId, Incarnation
from paceline.core.lifecycle import State
from paceline.core.wire import Queue
from paceline.store.memory import MemoryRunStore
from paceline.store.port import CallWritten, WorkerReport
from paceline.tools import Registry
from paceline.worker.call import run_call
from paceline.worker.desk import Desk
from paceline.worker.messages import Message
from paceline.worker.scripted_model import ScriptedModel
from paceline.worker.settings import Settings
from paceline.worker.sweeper import Sweeper
from paceline.worker.turn import take_turn

AGENT = Agent(name="oncall", model="claude-sonnet-5-5")
NEWER = json.dumps(json.loads(AGENT.freeze()) | {"version": 2}).encode()


def _send(messages: Sequence[Message]) -> None:
    """To nobody."""


def _desk(store: MemoryRunStore) -> Desk:
    return Desk(
        settings=Settings(),
        store=store,
        model=ScriptedModel([]),
        registry=Registry(),
        built_in={},
        incarnation=Incarnation("worker-1"),
        send=_send,
    )


async def _a_run_of_a_newer_agent(store: MemoryRunStore) -> Driven:
    await store.put_agent(AGENT.digest, NEWER)
    batch = await store.open_batch(replace(BATCH, agent=AGENT.digest))
    await store.submit(batch, [a_row()])
    return Driven(store, a_row().run_id)


def test_a_turn_is_put_on_hold_with_the_reason() -> None:
    async def main() -> None:
        store = MemoryRunStore(FakeClock())
        driven = await _a_run_of_a_newer_agent(store)
        await take_turn(_desk(store), driven.run_id, 1)
        run = await driven.look()
        assert (run.state, run.lost_attempts) == (State.ON_HOLD, 0)
        assert "version 2 cannot be read here" in run.hold_reason

    asyncio.run(main())


def test_a_call_is_given_back() -> None:
    async def main() -> None:
        store = MemoryRunStore(FakeClock())
        driven = await _a_run_of_a_newer_agent(store)
        await driven.in_tools(a_call("c1"))
        ran = await run_call(_desk(store), driven.run_id, 1, CallId("c1"))
        assert ran.written is CallWritten.LOST
        (state,) = await store.open_call_states(driven.run_id)
        assert (state.owner, state.has_result) == ("", False)

    asyncio.run(main())


def test_a_sweep_ends_nothing() -> None:
    async def main() -> None:
        clock = FakeClock()
        store = MemoryRunStore(clock)
        driven = await _a_run_of_a_newer_agent(store)
        desk = _desk(store)
        report = WorkerReport(incarnation=desk.incarnation, host="h", pid=1, started_ms=0, concurrency=1, in_flight=0)
        await store.beat(report, alive_seconds=1000)
        clock.pass_seconds(60)
        await Sweeper(desk=desk, empty_queues=lambda: frozenset(Queue)).sweep()
        assert (await driven.look()).state is State.QUEUED
        assert not await store.due(limit=1)

    asyncio.run(main())
