"""Writes golden files: what this version stores and sends, for later versions to read.

    PYTHONPATH=tests python -m golden.write_golden redis://127.0.0.1:6379/0 record > tests/golden/record-1.json
    PYTHONPATH=tests python -m golden.write_golden redis://127.0.0.1:6379/0 messages > tests/golden/messages-1.json

Run it on an empty server when a version is released, and keep the files of earlier ones as they are.
"""

# mypy: allow-untyped-calls
# redis-py and kombu leave some of what is called here without types.

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from support.clock import FakeClock
from support.runs import BATCH, ENDS, Driven, a_call, a_claim, a_queued_run, a_result

from paceline.core.agent import Agent
from paceline.core.ids import CallId, Incarnation, RunId
from paceline.core.lifecycle import State
from paceline.core.tool_spec import Effect
from paceline.core.transcript import results_message
from paceline.core.wire import Queue
from paceline.producer.publish import KombuPublisher
from paceline.store.port import TurnWrite, WorkerReport
from paceline.store.record import RedisRunStore
from paceline.worker.app import create_app
from paceline.worker.dispatch import Dispatcher
from paceline.worker.messages import ChordMessage, JoinMessage, TurnMessage
from paceline.worker.settings import Settings

PREFIX = "golden"
AGENT = Agent(name="oncall", model="claude-sonnet-5-5", system="You find out who is on call.")
RUN = RunId("batchtag-run")
REPORT = WorkerReport(
    incarnation=Incarnation("worker-1"),
    host="node-7",
    pid=4711,
    started_ms=1_800_000_000_000,
    concurrency=64,
    in_flight=3,
    delivered_ms={"paceline.turns": 1_800_000_000_100},
    problems=("wiki_tools:search cannot be imported",),
)


async def write_record(url: str) -> Mapping[str, object]:
    """A run in each state, under one batch, and what else a record has; all of it as it lies in the server."""
    async with AsyncRedis.from_url(url) as client:
        store = RedisRunStore(client, prefix=PREFIX, clock=FakeClock())
        await store.put_agent(AGENT.digest, AGENT.freeze())
        await store.open_batch(replace(BATCH, agent=AGENT.digest))
        for index, state in enumerate(State):
            await _in_state(await a_queued_run(store, state.value, index=index), state)
        await store.beat(REPORT, alive_seconds=3600)
        await store.hold_model(AGENT.model, seconds=3600)
    async with AsyncRedis.from_url(url, decode_responses=True) as reader:
        return {key: await _stored(reader, key) for key in sorted([key async for key in reader.scan_iter("*")])}


async def _in_state(run: Driven, state: State) -> None:
    """Through a turn with calls where the state lets it, and then there."""
    match state:
        case State.QUEUED | State.IN_TURN | State.AWAITING_APPROVAL | State.AWAITING_DECISION | State.CANCELLED:
            await run.bring_to(state)
        case State.IN_TOOLS:
            await _in_the_midst_of_calls(run)
        case State.FAILED:
            await _in_the_midst_of_calls(run)
            await run.store.finish(await run.now_held(), TurnWrite(), ENDS[state])
        case _:
            await _a_turn(run)
            await run.bring_to(state)


async def _a_turn(run: Driven) -> None:
    await run.in_tools(a_call("t1"), a_call("t2"))
    await run.run_call("t2")
    await run.run_call("t1")
    results = await run.store.results(run.run_id, 1)
    assert results is not None
    await run.store.join(results.held, results_message(results.calls, results.blocks))


async def _in_the_midst_of_calls(run: Driven) -> None:
    """One has its result, of which a part was shown; one is running; one waits."""
    await run.in_tools(a_call("t1"), a_call("t2", Effect.ONCE), a_call("t3", Effect.IDEMPOTENT))
    await run.store.finish_call(await run.begin_call("t1"), a_result("t1", whole="all of it"))
    await run.begin_call("t2", a_claim("worker-2", nonce="n-t2"))


async def _stored(client: Any, key: str) -> object:
    # redis-py types its replies for clients of every kind at once.
    kind = await client.type(key)
    match kind:
        case "string":
            value = await client.get(key)
        case "hash":
            value = await client.hgetall(key)
        case "list":
            value = await client.lrange(key, 0, -1)
        case "set":
            value = sorted(await client.smembers(key))
        case "zset":
            value = dict(await client.zrange(key, 0, -1, withscores=True))
        case _:
            raise AssertionError(f"{key} is of a type that the record does not have: {kind}")
    return {"type": kind, "value": value}


def write_messages(url: str) -> Mapping[str, object]:
    """Each message that is sent, as it lies in the broker, by who sends it."""
    with create_app(Settings(redis_url=url, prefix=PREFIX)) as app:
        dispatcher = Dispatcher(app)
        publisher = KombuPublisher(url, {"global_keyprefix": f"{PREFIX}:broker:"})
        publisher.publish_turns([RUN])
        publisher.close()
        dispatcher.send([TurnMessage(run_id=RUN, turn=2)])
        turn = _taken(url, Queue.TURNS)
        dispatcher.send([JoinMessage(run_id=RUN, turn=2)])
        join = _taken(url, Queue.TURNS)
        dispatcher.send([ChordMessage(run_id=RUN, turn=2, calls=(CallId("toolu_b"), CallId("toolu_a")))])
        return {
            "producer: turn": _taken(url, Queue.STARTS),
            "worker: turn": turn,
            "worker: join": join,
            "worker: tool": _taken(url, Queue.TOOLS),
        }


def _taken(url: str, queue: Queue) -> object:
    """The message that has waited longest; the queue is empty then."""
    with Redis.from_url(url) as client:
        key = f"{PREFIX}:broker:{queue}"
        message: dict[str, Any] = json.loads(client.lrange(key, -1, -1)[0])
        client.delete(key)
    if "origin" in message["headers"]:
        message["headers"]["origin"] = "gen1@node-7"
    return message


if __name__ == "__main__":
    url, what = sys.argv[1:]
    written = asyncio.run(write_record(url)) if what == "record" else write_messages(url)
    print(json.dumps(written, indent=1, ensure_ascii=False, sort_keys=True))
