"""Whose clock tells when a message was sent: the record's, on every machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.clock import FakeClock
from support.runs import BATCH, a_row

from paceline.core.agent import Agent
from paceline.core.ids import Incarnation
from paceline.core.wire import Queue
from paceline.store.memory import MemoryRunStore
from paceline.store.port import WorkerReport
from paceline.tools import Registry
from paceline.worker.desk import Desk
from paceline.worker.messages import Message
from paceline.worker.record_clock import RecordClock
from paceline.worker.scripted_model import ScriptedModel
from paceline.worker.settings import Settings
from paceline.worker.sweeper import Sweeper

pytestmark = pytest.mark.anyio

AGENT = Agent(name="clocked", model="claude-sonnet-5-5")
HOUR_MS = 3_600_000


def a_desk(store: MemoryRunStore, clock: RecordClock, sent: list[Message]) -> Desk:
    return Desk(
        settings=Settings(),
        store=store,
        model=ScriptedModel([]),
        registry=Registry(),
        built_in={},
        incarnation=Incarnation("worker-1"),
        send=sent.extend,
        clock=clock,
    )


def test_a_machine_that_is_an_hour_ahead_tells_the_records_time() -> None:
    record, machine = FakeClock(), FakeClock()
    machine.pass_seconds(3600)
    clock = RecordClock(machine)
    clock.learn(record.now_ms)
    machine.pass_seconds(5)
    assert clock.now_ms() == record.now_ms + 5000


def test_a_message_from_a_sender_that_is_ahead_says_nothing_of_older_ones() -> None:
    record = FakeClock()
    desk = a_desk(MemoryRunStore(record), RecordClock(record), [])
    desk.note_delivery(Queue.TURNS, record.now_ms - 2000)
    desk.note_delivery(Queue.TURNS, record.now_ms + HOUR_MS)
    desk.note_delivery(Queue.STARTS, record.now_ms + 20)
    assert desk.in_flight.delivered_ms == {Queue.TURNS: record.now_ms - 2000, Queue.STARTS: record.now_ms}


async def test_a_backlog_is_not_sent_again_because_one_sender_is_ahead() -> None:
    record, sent = FakeClock(), list[Message]()
    store = MemoryRunStore(record)
    await store.put_agent(AGENT.digest, AGENT.freeze())
    await store.submit(await store.open_batch(replace(BATCH, agent=AGENT.digest)), [a_row()])
    record.pass_seconds(31)
    report = WorkerReport(
        incarnation=Incarnation("worker-1"),
        host="h",
        pid=1,
        started_ms=0,
        concurrency=1,
        in_flight=0,
        delivered_ms={Queue.STARTS: record.now_ms + HOUR_MS},
    )
    assert await store.beat(report, alive_seconds=30) == record.now_ms
    desk = a_desk(store, RecordClock(record), sent)
    await Sweeper(desk=desk, empty_queues=frozenset).sweep()
    assert sent == []
