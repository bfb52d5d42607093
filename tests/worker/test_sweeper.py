"""Sweepers over a record in memory: what they send, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.clock import FakeClock
from support.runs import BATCH, a_row

from paceline.core.agent import Agent
from paceline.core.ids import Incarnation, RunId, batch_tag
from paceline.core.ledger import AttemptLost, the
from paceline.core.wire import Queue
from paceline.store.memory import MemoryRunStore
from paceline.store.port import ClaimRequest, Examined, TurnClaim, Written
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


async def _overdue(store: MemoryRunStore, clock: FakeClock) -> None:
    await store.put_agent(AGENT.digest, AGENT.freeze())
    await store.submit(await store.open_batch(replace(BATCH, agent=AGENT.digest)), ROWS)
    clock.pass_seconds(31)


async def test_two_sweeps_at_once_send_a_lost_message_once() -> None:
    clock, sent = FakeClock(), list[Message]()
    store = _AnybodySweeps(clock)
    await _overdue(store, clock)
    await asyncio.gather(*(a_sweeper(store, name, sent).sweep() for name in ("worker-1", "worker-2")))
    assert sorted(message.run_id for message in sent) == sorted(row.run_id for row in ROWS)


async def test_a_run_that_was_cancelled_is_let_go_by_the_next_sweep() -> None:
    clock, sent = FakeClock(), list[Message]()
    store = MemoryRunStore(clock)
    await _overdue(store, clock)
    for row in ROWS:
        await store.cancel(row.run_id)
    assert await store.due(limit=1)
    await a_sweeper(store, "worker-1", sent).sweep()
    assert await store.due(limit=1) == []
    assert sent == []


async def test_a_lost_attempt_is_told_with_its_beginning_as_far_as_that_is_known() -> None:
    clock = FakeClock()
    store = MemoryRunStore(clock)
    await _overdue(store, clock)
    began_ms = clock.now_ms
    claim = ClaimRequest(owner=Incarnation("gone"), nonce="n", longest_seconds=Settings().model_seconds + 60)
    await store.begin(ROWS[0].run_id, 1, claim)
    clock.pass_seconds(31)
    await a_sweeper(store, "worker-1", []).sweep()
    lost = the(AttemptLost, await store.ledger(ROWS[0].run_id))
    assert lost is not None
    assert lost.began_ms == min(began_ms, lost.at_ms)


class _OneRunBreaks(MemoryRunStore):
    """Fails whatever is done about the first row."""

    async def send_again(self, held: TurnClaim, *, seconds: float, sent_ms: int) -> Written:
        if held.run_id == ROWS[0].run_id:
            raise ValueError("this run is broken")
        return await super().send_again(held, seconds=seconds, sent_ms=sent_ms)


class _OneRunIsUnreadable(MemoryRunStore):
    """Cannot read the first row."""

    async def examine(self, run_ids: Sequence[RunId]) -> list[Examined | None]:
        found = await super().examine(run_ids)
        return [None if run_id == ROWS[0].run_id else examined for run_id, examined in zip(run_ids, found, strict=True)]


@pytest.mark.parametrize("kind", [_OneRunBreaks, _OneRunIsUnreadable])
async def test_one_unreadable_run_does_not_keep_the_others_from_being_mended(kind: type[MemoryRunStore]) -> None:
    clock, sent = FakeClock(), list[Message]()
    store = kind(clock)
    await _overdue(store, clock)
    await a_sweeper(store, "worker-1", sent).sweep()
    assert len(sent) == len(ROWS) - 1
    assert await store.due(limit=1) == [], "it is in nobody's way for a while"
    clock.pass_seconds(900)
    assert ROWS[0].run_id in await store.due(limit=100), "and not forgotten"


async def test_a_sweep_that_needs_no_broker_goes_on_while_the_broker_is_away(caplog: pytest.LogCaptureFixture) -> None:
    clock, sent = FakeClock(), list[Message]()
    store = MemoryRunStore(clock)
    await _overdue(store, clock)
    claim = ClaimRequest(owner=Incarnation("gone"), nonce="n", longest_seconds=60)
    await store.begin(ROWS[0].run_id, 1, claim)
    clock.pass_seconds(31)

    def away() -> frozenset[Queue]:
        raise ConnectionError("nobody listens")

    sweeper = replace(a_sweeper(store, "worker-1", sent), empty_queues=away)
    await sweeper.sweep()
    assert [message.run_id for message in sent] == [ROWS[0].run_id]
    clock.pass_seconds(60)
    await sweeper.sweep()
    assert [record.levelname for record in caplog.records if "broker" in record.message] == ["WARNING"]


async def test_what_is_swept_for_weeks_keeps_its_agent_and_its_batch() -> None:
    clock = FakeClock()
    store = MemoryRunStore(clock)
    await _overdue(store, clock)
    sweeper = a_sweeper(store, "worker-1", [])
    for _ in range(4):
        clock.pass_seconds(6 * 86_400)
        await sweeper.sweep()
    assert await store.agent(AGENT.digest) == AGENT.freeze()
    assert len(await store.batch_rows(batch_tag(BATCH.name), start=0, count=99)) == len(ROWS)
