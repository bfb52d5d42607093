"""Conversations that grew until nothing moved any more elsewhere. See docs/failure-stories.md."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from redis.asyncio import Redis
from support.clock import FakeClock
from support.runs import BATCH, Driven, a_block, a_call, a_queued_run, a_result, a_row, asking
from support.worlds import World, redis_world
from worker.box.box import AGENT, play_out
from worker.box.promises import check_promises
from worker.box.worker import at_its_path

from paceline.core.agent import Limits
from paceline.core.ids import CallId, Incarnation
from paceline.core.transcript import Fragment, results_message, user_text
from paceline.store.memory import MemoryRunStore
from paceline.store.record import RedisRunStore
from paceline.tools import Registry, Tool, tool
from paceline.worker.desk import Desk
from paceline.worker.scripted_model import ModelRequest, Reply, asks, says
from paceline.worker.settings import Settings
from paceline.worker.turn import take_turn as take_one_turn

TURNS = 100
BASE = "There are 200,000 tokens to begin with. " * 20_000
"""800 kB."""
PAGE_CHARS = 5_000
HUGE_CHARS = 3_000_000
UNLIMITED = Limits(turns=None, tokens=None, seconds=None, usd=None)


def _page_tool() -> Tool:
    @tool(effect="reads", placement="inline")
    async def page(number: int) -> str:
        """A page; the last one is the whole book."""
        return f"{number} " + "x" * (HUGE_CHARS if number == TURNS - 1 else PAGE_CHARS)

    return at_its_path(page)


def turns_pages(request: ModelRequest, seen: int) -> Reply:
    if request.turn == TURNS:
        return says("done")
    return asks((f"c{request.turn}", "page", {"number": request.turn}))


def test_a_hundred_turns_on_a_base_of_200k_tokens_end_with_an_answer() -> None:
    page = _page_tool()
    agent = replace(AGENT, system=BASE, tools=(page.spec,), limits=UNLIMITED)
    over = play_out(turns_pages, agent=agent, tools=[page])
    check_promises(over)
    assert (over.record.reason, len(over.requests)) == ("final_answer", TURNS)
    longest = max(over.transcript, key=len)
    assert sum(map(len, over.transcript)) < TURNS * (PAGE_CHARS + 300) + page.spec.max_result_chars
    assert len(longest) < page.spec.max_result_chars + 300, "of three megabytes the model sees head and tail"
    assert longest.find(b"characters are left out here; read_result(") > 0


@pytest.fixture
async def redis(valkey_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(valkey_url) as client:
        yield client


@pytest.fixture
async def world(valkey_url: str) -> AsyncIterator[World]:
    async with redis_world(Redis.from_url(valkey_url)) as world:
        yield world


async def stored_bytes(redis: Redis, world: World, run: Driven) -> int:
    """What the server keeps of a run, by its own account."""
    assert isinstance(world.store, RedisRunStore)
    keys = [key async for key in redis.scan_iter(match=f"{world.store.keys.prefix}:*{run.run_id}")]
    return sum([int(await redis.memory_usage(key, samples=0) or 0) for key in keys])


async def take_turn(run: Driven, text: str, *, whole: str | None = None) -> None:
    """A turn with one call that brings this result."""
    turn = (await run.look()).turn
    call = CallId(f"c{turn}")
    await run.in_tools(a_call(call))
    held = await run.begin_call(call)
    await run.store.finish_call(held, a_result(call, text, turn=turn, whole=whole))
    results = await run.store.results(run.run_id, turn)
    assert results is not None
    await run.store.join(results.held, results_message(results.calls, results.blocks))


@pytest.mark.anyio
async def test_what_is_stored_grows_by_each_turn_alone(redis: Redis, world: World) -> None:
    run = await a_queued_run(world.store)
    sizes = [await stored_bytes(redis, world, run)]
    for turn in range(1, TURNS + 1):
        await take_turn(run, "x" * PAGE_CHARS)
        if turn % 20 == 0:
            sizes.append(await stored_bytes(redis, world, run))
    grown = [later - earlier for earlier, later in pairwise(sizes)]
    assert max(grown) < 1.1 * min(grown), grown
    assert sizes[-1] < 1.4 * TURNS * PAGE_CHARS


@pytest.mark.anyio
async def test_a_huge_result_is_kept_once_and_apart_from_what_is_sent(redis: Redis, world: World) -> None:
    run = await a_queued_run(world.store)
    before = await stored_bytes(redis, world, run)
    huge = "x" * HUGE_CHARS
    await take_turn(run, huge[:PAGE_CHARS], whole=huge)
    assert await stored_bytes(redis, world, run) < before + HUGE_CHARS * 1.3
    begun = await run.begin()
    assert sum(map(len, begun.fragments)) < 2 * PAGE_CHARS
    assert await world.store.whole_result(run.run_id, CallId("c1")) == huge


LONG, SHORT = 3_000, 10


async def aged(redis: Redis, world: World, run: Driven, turns: int) -> None:
    """As if the run had taken so many turns, with a call in each."""
    assert isinstance(world.store, RedisRunStore)
    keys = world.store.keys
    history = [part for turn in range(turns) for part in (asking(f"c{turn}"), user_text(f"result {turn}"))]
    await redis.rpush(keys.log(run.run_id), *history)
    await redis.hset(keys.run(run.run_id), mapping={"state": "turn_due", "turn": turns})


async def calls_of_commands(redis: Redis) -> Mapping[str, int]:
    stats = await redis.info("commandstats")
    return {name: int(of["calls"]) for name, of in stats.items() if name not in ("cmdstat_info", "cmdstat_script|load")}


async def commands_of_a_turn(redis: Redis, world: World, run: Driven) -> Mapping[str, int]:
    before = await calls_of_commands(redis)
    await take_turn(run, "y")
    after = await calls_of_commands(redis)
    return {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}


class Unread:
    """A model that does not read what it is asked."""

    async def call(self, body: bytes, *, seconds: float, betas: Sequence[str] = ()) -> Reply:
        return says("done")

    async def aclose(self) -> None:
        """There is nothing to give back."""


async def cpu_seconds_of_a_turn(history: Sequence[Fragment]) -> float:
    """What a worker spends on one turn of a run with this transcript."""
    store = MemoryRunStore(FakeClock())
    agent = replace(AGENT, tools=(), limits=UNLIMITED)
    await store.put_agent(agent.digest, agent.freeze())
    row = replace(a_row(), first=tuple(history))
    await store.submit(await store.open_batch(replace(BATCH, agent=agent.digest)), [row])
    desk = Desk(
        settings=Settings(),
        store=store,
        model=Unread(),
        registry=Registry(),
        built_in={},
        incarnation=Incarnation("worker"),
        send=lambda messages: None,
    )
    await desk.agent(agent.digest)
    began = time.process_time()
    await take_one_turn(desk, row.run_id, 1)
    spent = time.process_time() - began
    record = await store.run(row.run_id)
    assert record is not None
    assert record.reason == "final_answer"
    return spent


@pytest.mark.anyio
async def test_a_turn_costs_a_worker_the_bytes_that_it_sends_and_not_the_turns_that_were() -> None:
    question = [user_text("Begin.")]
    many = [part for turn in range(LONG) for part in (asking(f"c{turn}"), a_results_message(f"c{turn}"))]
    size = sum(map(len, many)) // (2 * SHORT)
    few = [part for turn in range(SHORT) for part in (asking(f"c{turn}"), a_results_message(f"c{turn}", "x" * size))]
    long = min([await cpu_seconds_of_a_turn([*question, *many]) for _ in range(5)])
    short = min([await cpu_seconds_of_a_turn([*question, *few]) for _ in range(5)])
    assert long < 10 * short, f"{1000 * long:.1f} ms after {LONG} turns, {1000 * short:.1f} ms for as many bytes"


def a_results_message(call: str, text: str = "Ada") -> Fragment:
    return results_message([CallId(call)], {CallId(call): a_block(call, text)})


@pytest.mark.anyio
async def test_the_three_thousandth_turn_asks_no_more_of_the_record_than_the_tenth(redis: Redis, world: World) -> None:
    asked = []
    for turns in (SHORT, LONG):
        run = await a_queued_run(world.store, f"row-{turns}")
        await take_turn(run, "warm")
        await aged(redis, world, run, turns)
        asked.append(await commands_of_a_turn(redis, world, run))
    assert asked[0] == asked[1]
