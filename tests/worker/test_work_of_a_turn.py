"""The work of a turn, counted: it does not grow with the turns that were, results cleared or not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from support.clock import FakeClock
from support.runs import BATCH, Driven, a_block, a_row, asking

from paceline.core.agent import Agent, Limits
from paceline.core.ids import CallId, Incarnation
from paceline.core.step import FailureKind
from paceline.core.transcript import Fragment, results_message, user_text
from paceline.store.memory import MemoryRunStore
from paceline.store.port import TurnWrite
from paceline.tools import Registry
from paceline.worker.desk import Desk
from paceline.worker.scripted_model import Reply, ScriptedModel, fails, says
from paceline.worker.settings import Settings
from paceline.worker.turn import take_turn

pytestmark = pytest.mark.anyio

FEW, MANY = 10, 1_000
AGENT = Agent(
    name="a", model="claude-opus-4-8", limits=Limits(turns=None, tokens=None, seconds=None, usd=None), compact_at=None
)
RETRIED = fails(FailureKind.TRANSIENT, "500", retry_after_seconds=1.0)


class Unread:
    """A model that answers without a look at what it is asked."""

    def __init__(self, *replies: Reply) -> None:
        self._scripted = ScriptedModel(replies)

    async def call(self, body: bytes, *, seconds: float, betas: Sequence[str] = ()) -> Reply:
        return await self._scripted.call(b'{"metadata":{"user_id":"r"},"messages":[]}', seconds=seconds)

    async def aclose(self) -> None:
        """There is nothing to give back."""


def conversation(turns: int) -> tuple[Fragment, ...]:
    fragments = [user_text("Begin.")]
    for call in (CallId(f"c{turn}") for turn in range(turns)):
        fragments += [asking(call), results_message([call], {call: a_block(call, "x" * 300)})]
    return tuple(fragments)


async def calls_of_a_turn(turns: int, cleared: int = 0) -> int:
    """How many Python functions a worker calls for a turn of a run with so many turns behind it, the second of the
    attempts that it makes at it."""
    clock = FakeClock()
    store = MemoryRunStore(clock)
    await store.put_agent(AGENT.digest, AGENT.freeze())
    row = replace(a_row(), first=conversation(turns))
    await store.submit(await store.open_batch(replace(BATCH, agent=AGENT.digest)), [row])
    desk = Desk(
        settings=Settings(),
        store=store,
        model=Unread(says("Half.", stop_reason="max_tokens"), RETRIED, says("Done.")),
        registry=Registry(),
        built_in={},
        incarnation=Incarnation("worker"),
        send=lambda messages: None,
    )
    await take_turn(desk, row.run_id, 1)
    if cleared:
        await _clear(store, clock, cleared)
    await take_turn(desk, row.run_id, 2)
    clock.pass_seconds(2)
    with counting() as counted:
        await take_turn(desk, row.run_id, 2)
    record = await store.run(row.run_id)
    assert record is not None
    assert record.reason == "final_answer"
    return counted()


async def _clear(store: MemoryRunStore, clock: FakeClock, cleared: int) -> None:
    driven = Driven(store, a_row().run_id)
    await driven.begin()
    await store.hold(
        driven.held, TurnWrite(cleared=cleared, streaks=(await driven.look()).streaks), seconds=1, reason=""
    )
    clock.pass_seconds(1)


class counting:
    """Counts calls of Python functions until the end of the block."""

    def __enter__(self) -> Callable[[], int]:
        self._calls = 0
        sys.setprofile(self._note)
        return lambda: self._calls

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: object, event: str, argument: Any) -> None:
        self._calls += event == "call"


async def test_a_turn_is_as_much_work_after_a_thousand_turns_as_after_ten() -> None:
    await calls_of_a_turn(FEW)  # what is done once in a process is done
    few, many = await calls_of_a_turn(FEW), await calls_of_a_turn(MANY)
    assert many < 1.05 * few


async def test_so_it_is_where_results_are_cleared() -> None:
    """A worker that has taken a turn of the run before has read them."""
    await calls_of_a_turn(FEW)
    few, many = await calls_of_a_turn(FEW), await calls_of_a_turn(MANY, cleared=2 * MANY - 4)
    assert many < 1.05 * few
