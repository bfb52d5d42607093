"""A record as an earlier version left it: all of it is read, and every run of it goes on.

`record-N.json` is what `write_golden.py` made of the release that first wrote so: a run in each state, under one batch.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from support.clock import FakeClock
from support.runs import A_WRITE, ANSWERED, BATCH, Driven, a_result, ruled_out

from paceline.core.agent import Agent
from paceline.core.ids import CallId, RunId, batch_tag
from paceline.core.ledger import ModelCalled, Unknown
from paceline.core.lifecycle import State
from paceline.core.transcript import check_whole, results_message
from paceline.producer.redrive import redrive_run
from paceline.store.port import CallClaim, CallWritten, Resolved, Written
from paceline.store.record import RedisRunStore

pytestmark = pytest.mark.anyio

RECORDS = sorted(Path(__file__).parent.glob("record-*.json"))


@dataclass(frozen=True, slots=True)
class Past:
    """The record as it was left, in a server."""

    store: RedisRunStore
    clock: FakeClock
    runs: Mapping[str, RunId]
    """By the state in which it was left."""

    def run(self, state: State) -> Driven:
        return Driven(self.store, self.runs[state])


@pytest.fixture(params=RECORDS, ids=lambda path: path.stem)
async def past(request: pytest.FixtureRequest, valkey_url: str) -> AsyncIterator[Past]:
    prefix = f"test-{uuid.uuid4().hex[:8]}"
    clock = FakeClock()
    store = RedisRunStore(Redis.from_url(valkey_url), prefix=prefix, clock=clock)
    for key, stored in json.loads(request.param.read_text()).items():
        await _put(store.redis, key.replace("golden", prefix, 1), stored["type"], stored["value"])
    rows = await store.batch_rows(batch_tag(BATCH.name), start=0, count=100)
    left = {record.run.row_id: record.run.run_id for record in await store.runs(rows) if record}
    yield Past(store, clock, left)
    await store.aclose()


async def _put(client: Redis, key: str, kind: str, value: Any) -> None:
    match kind:
        case "string":
            await client.set(key, value)
        case "hash":
            await client.hset(key, mapping=value)
        case "list":
            await client.rpush(key, *value)
        case "set":
            await client.sadd(key, *value)
        case "zset":
            await client.zadd(key, value)
    await client.expire(key, 600)


async def test_all_of_it_is_read(past: Past) -> None:
    store, tag = past.store, batch_tag(BATCH.name)
    batch, counts = await store.batch(tag), await store.counts(tag)
    assert batch is not None
    assert (batch.name, counts.runs) == (BATCH.name, len(past.runs))
    frozen = await store.agent(batch.agent)
    assert frozen is not None
    assert Agent.thaw(frozen).name == "oncall"
    assert [report.problems for report in await store.workers()] == [("wiki_tools:search cannot be imported",)]
    assert await store.model_hold_seconds("claude-sonnet-5-5") > 0
    for state, run_id in past.runs.items():
        record = await store.run(run_id)
        assert record is not None
        assert record.run.state == state
        ledger = await store.ledger(run_id)
        assert not any(isinstance(entry, Unknown) for entry in ledger)
        called = [entry for entry in ledger if isinstance(entry, ModelCalled)]
        assert record.run.spent.cost_nanousd == sum(entry.cost_nanousd or 0 for entry in called)
        transcript = await store.transcript(run_id)
        check_whole(transcript[:-1] if state in ("in_tools", "joining", "awaiting_decision", "failed") else transcript)


async def test_a_queued_turn_and_one_that_is_due_are_taken(past: Past) -> None:
    for state in (State.QUEUED, State.TURN_DUE):
        run = past.run(state)
        begun = await run.begin()
        check_whole(begun.fragments)
        assert await past.store.finish(run.held, A_WRITE, ANSWERED) is Written.WRITTEN
        assert (await run.look()).state is State.SUCCEEDED


async def test_a_turn_that_a_worker_of_then_holds_is_recovered_or_written_by_it(past: Past) -> None:
    run = past.run(State.IN_TURN)
    held = await run.now_held()
    assert await past.store.recover(held, A_WRITE) is Written.WRITTEN
    assert await past.store.finish(held, A_WRITE, ANSWERED) is Written.LOST
    await run.begin()
    assert await past.store.finish(run.held, A_WRITE, ANSWERED) is Written.WRITTEN


async def test_calls_in_the_midst_of_which_it_was_left_are_finished_and_joined(past: Past) -> None:
    run = past.run(State.IN_TOOLS)
    states = await past.store.open_call_states(run.run_id)
    assert [(state.call.call_id, state.has_result, state.owner) for state in states] == [
        ("t1", True, "worker-2"),
        ("t2", False, "worker-2"),
        ("t3", False, ""),
    ]
    assert await past.store.whole_result(run.run_id, CallId("t1")) == "all of it"
    of_then = CallClaim(run_id=run.run_id, turn=1, call_id=CallId("t2"), attempt=1)
    assert (await past.store.finish_call(of_then, a_result("t2"))).written is CallWritten.STORED
    assert (await run.run_call("t3")).written is CallWritten.LAST
    await _join(past, run)


async def _join(past: Past, run: Driven) -> None:
    turn = (await run.look()).turn
    results = await past.store.results(run.run_id, turn)
    assert results is not None
    message = results_message(results.calls, results.blocks)
    assert await past.store.join(results.held, message) is Written.WRITTEN
    assert (await run.look()).turn == turn + 1


async def test_results_that_wait_for_their_join_are_joined(past: Past) -> None:
    await _join(past, past.run(State.JOINING))


async def test_a_hold_ends(past: Past) -> None:
    run = past.run(State.ON_HOLD)
    assert (await run.look()).hold_reason == "busy"
    past.clock.pass_seconds(60)
    await run.begin()


async def test_a_decision_that_is_awaited_is_taken(past: Past) -> None:
    run = past.run(State.AWAITING_DECISION)
    assert await past.store.resolve(run.run_id, CallId("c1"), ruled_out("c1")) is Resolved.RESOLVED
    assert (await run.run_call("c1")).written is CallWritten.LAST
    await _join(past, run)


async def test_a_run_that_failed_is_among_the_dead_and_goes_on_with_its_open_calls_answered(past: Past) -> None:
    run = past.run(State.FAILED)
    assert await past.store.dead(limit=10) == [run.run_id]
    assert await redrive_run(past.store, run.run_id)
    begun = await run.begin()
    check_whole(begun.fragments)
    assert len(begun.fragments) == 3


async def test_the_sweeper_sees_each_run_as_it_was_left(past: Past) -> None:
    unfinished = [run_id for state, run_id in past.runs.items() if not State(state).is_terminal]
    found = await past.store.examine(unfinished)
    assert [examined.run.run_id for examined in found if examined] == unfinished
