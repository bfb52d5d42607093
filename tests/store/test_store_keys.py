"""What the record leaves in Redis: where its keys are, and that each of them goes some day."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from redis.asyncio import Redis
from redis.crc import key_slot
from support.runs import A_WRITE, BATCH, ENDS, Driven, a_call, a_claim, a_queued_run, a_result, a_row, submitted
from support.worlds import World, redis_world

from paceline.core.errors import InfrastructureError
from paceline.core.ids import SHARDS, BatchName, Incarnation, RunId, batch_tag, shard_of
from paceline.core.lifecycle import TERMINAL, State
from paceline.core.transcript import user_text
from paceline.store.keys import Keys
from paceline.store.port import TurnClaim, WorkerReport
from paceline.store.record import RedisRunStore

pytestmark = pytest.mark.anyio


@pytest.fixture
async def world(valkey_url: str) -> AsyncIterator[World]:
    async with redis_world(Redis.from_url(valkey_url)) as redis:
        yield redis


def _of(world: World) -> RedisRunStore:
    assert isinstance(world.store, RedisRunStore)
    return world.store


async def _time_to_live(store: RedisRunStore) -> dict[str, int]:
    """Seconds that each key has left; -1: for ever."""
    keys = [key.decode() async for key in store.redis.scan_iter(match=f"{store.keys.prefix}:*")]
    return {key: await store.redis.ttl(key) for key in keys}


async def _a_whole_life(driven: Driven, end: State) -> None:
    """Two turns with calls, and an ending."""
    await driven.in_tools(a_call("c1"), a_call("c2"))
    held = await driven.begin_call("c1")
    await driven.store.recover_call(held)
    await driven.store.finish_call(await driven.begin_call("c1"), a_result("c1", whole="all of it"))
    await driven.run_call("c2")
    await driven.store.join(await driven.now_held(), user_text("results"))
    await driven.bring_to(end)


async def test_no_key_is_left_for_ever_when_every_run_is_over(world: World) -> None:
    store = _of(world)
    await store.put_agent(BATCH.agent, b"frozen")
    for row, end in enumerate(sorted(TERMINAL)):
        driven = await a_queued_run(store, f"row-{row}")
        await _a_whole_life(driven, end)
        await store.let_go(driven.run_id)
    report = WorkerReport(
        incarnation=Incarnation("worker-1"), host="node", pid=1, started_ms=1, concurrency=1, in_flight=0
    )
    await store.beat(report, alive_seconds=10)
    await store.may_sweep(report.incarnation, seconds=5)
    await store.hold_model("claude-sonnet-5-5", seconds=5)
    await store.set_budget(batch_tag(BATCH.name), 1_000)
    await store.reserve(TurnClaim(run_id=a_row().run_id, turn=1, fence=1), spent=0, call=10)
    left = await _time_to_live(store)
    kinds = {key.removeprefix(store.keys.prefix).split(":")[2 if "}:" in key else 1] for key in left if "{" in key}
    assert kinds == {"run", "log", "ledger", "seen", "whole", "dead", "counts", "metrics", "batch", "rows", "budget"}
    assert {key: seconds for key, seconds in left.items() if not 0 < seconds <= 7 * 86_400} == {}


async def test_what_a_failed_run_left_open_goes_with_it(world: World) -> None:
    store = _of(world)
    driven = await a_queued_run(store)
    await driven.in_tools(a_call("c1"), a_call("c2"))
    await driven.run_call("c1")
    await store.finish(await driven.now_held(), A_WRITE, ENDS[State.FAILED])
    left = await _time_to_live(store)
    assert any(":calls:" in key for key in left)
    assert any(":results:" in key for key in left)
    assert {key: seconds for key, seconds in left.items() if seconds < 0} == {}


async def test_no_run_is_thrown_away_before_it_is_over(world: World) -> None:
    store = _of(world)
    for row, state in enumerate(state for state in State if not state.is_terminal):
        await (await a_queued_run(store, f"row-{row}")).bring_to(state)
    runs = await store.batch_rows(batch_tag(BATCH.name), start=0, count=100)
    left = await _time_to_live(store)
    own = [key for key in left if any(key.endswith(run_id) for run_id in runs)]
    assert len(own) >= 3 * len(runs) - 3
    assert {left[key] for key in own} == {-1}


async def test_a_budget_lives_as_long_as_its_batch(world: World) -> None:
    store, tag = _of(world), batch_tag(BATCH.name)
    await store.open_batch(BATCH)
    await store.set_budget(tag, 1_000)
    await world.let_pass(86_400)
    await store.keep([tag], [])
    assert await store.redis.ttl(store.keys.budget(tag)) > 7 * 86_400
    assert key_slot(store.keys.budget(tag).encode()) == key_slot(store.keys.batch(tag).encode())


async def test_a_batch_that_gets_more_runs_keeps_its_totals(world: World) -> None:
    store = _of(world)
    first = a_row("a")
    same_shard = next(
        row
        for row in (a_row(str(number)) for number in range(10_000))
        if shard_of(row.run_id) == shard_of(first.run_id)
    )
    await submitted(store, first)
    await store.cancel(first.run_id)
    counts_key = store.keys.of_run(first.run_id)[2]
    assert await store.redis.ttl(counts_key) > 0
    await submitted(store, same_shard)
    assert await store.redis.ttl(counts_key) == -1


async def test_what_is_kept_is_renewed_seldom_and_totals_of_living_runs_get_no_end(world: World) -> None:
    store = _of(world)
    await submitted(store, a_row())
    tag = batch_tag(BATCH.name)
    await store.keep([tag], [])
    await world.let_pass(3600)
    ends_ms = await store.redis.pexpiretime(store.keys.batch(tag))
    await store.keep([tag], [])
    assert await store.redis.pexpiretime(store.keys.batch(tag)) == ends_ms
    await world.let_pass(86_400)
    await store.keep([tag], [])
    assert await store.redis.ttl(store.keys.batch(tag)) > 7 * 86_400
    assert await store.redis.ttl(store.keys.of_run(a_row().run_id)[2]) == -1


async def test_names_of_forgotten_batches_leave_the_list_when_a_batch_is_opened(world: World) -> None:
    store = _of(world)
    for number in range(5):
        await store.open_batch(replace(BATCH, name=BatchName(f"batch-{number}"), opened_ms=world.clock.now_ms))
        await world.let_pass(3 * 86_400)
    assert await store.redis.zcard(store.keys.batches()) == 3


async def test_everything_that_one_script_touches_is_in_one_slot() -> None:
    keys = Keys("paceline")
    for number in range(200):
        run = a_row(f"row-{number}").run_id
        slots = {key_slot(key.encode()) for key in keys.of_run(run)}
        assert len(slots) == 1
        assert slots == {key_slot(f"{{{shard_of(run):02d}}}".encode())}
    assert len({key_slot(key.encode()) for key in keys.due()}) == SHARDS


def test_the_index_and_the_totals_of_a_run_are_among_those_that_readers_collect() -> None:
    keys = Keys("paceline")
    run = a_row().run_id
    assert keys.of_run(run)[1] in keys.due()
    assert keys.of_run(run)[2] in keys.counts(batch_tag(BATCH.name))
    assert keys.of_run(run)[10] in keys.metrics()


def test_no_two_keys_of_different_things_are_the_same() -> None:
    keys = Keys("paceline")
    one, other = keys.of_run(RunId("aaaaaaaa-1")), keys.of_run(RunId("bbbbbbbb-2"))
    shared = {*keys.due(), *keys.dead(), *keys.metrics()}
    private_one, private_other = set(one) - shared, set(other) - shared
    assert not private_one & private_other


async def test_a_server_that_has_forgotten_the_scripts_is_told_them_again(world: World) -> None:
    store = _of(world)
    driven = await a_queued_run(store)
    await store.redis.script_flush()
    await driven.begin()
    await store.redis.script_flush()
    await submitted(store, a_row("b"))


async def test_without_a_clock_of_its_own_the_record_goes_by_the_servers(valkey_url: str) -> None:
    async with redis_world(Redis.from_url(valkey_url)) as world:
        store = RedisRunStore(_of(world).redis, prefix=_of(world).keys.prefix)
        seconds, _ = await store.redis.time()
        assert seconds * 1000 <= await store.now_ms()
        driven = await a_queued_run(store)
        begun = await driven.begin()
        assert seconds * 1000 <= begun.run.submitted_ms <= begun.now_ms <= await store.now_ms()
        assert await store.due(limit=10) == []
        await store.go_on(driven.held, A_WRITE, advance=True)
        await store.look_again(await driven.now_held(), seconds=0)
        assert await store.due(limit=10) == [driven.run_id]


async def test_a_look_at_what_is_due_reads_little_of_each_shard_and_the_longest_due_first(world: World) -> None:
    store = _of(world)
    crowded, other = store.keys.due()[:2]
    await store.redis.zadd(crowded, {f"crowd-{number:03d}": number for number in range(200)})
    await store.redis.zadd(other, {"late": 500, "early": -1})
    due = await store.due(limit=400)
    assert due == ["early", *(f"crowd-{number:03d}" for number in range(50)), "late"]
    assert await store.due(limit=3) == ["early", "crowd-000", "crowd-001"]


async def test_an_unreachable_server_is_the_operators_to_mend() -> None:
    store = RedisRunStore(Redis.from_url("redis://127.0.0.1:1/0", retry=None))
    with pytest.raises(InfrastructureError, match="could not be reached"):
        await store.begin(RunId("aaaaaaaa-1"), 1, a_claim())
    await store.aclose()


async def test_a_run_that_was_never_counted_in_is_not_counted_out(world: World) -> None:
    store = _of(world)
    driven = await a_queued_run(store)
    (key,) = [key for key in store.keys.metrics() if key.partition("}")[0] in store.keys.run(driven.run_id)]
    await store.redis.hdel(store.keys.run(driven.run_id), "label")
    await store.redis.delete(key)
    await driven.bring_to(State.FAILED)
    counts = (await store.metrics()).counts
    assert not [name for name, by in counts.items() if by < 0]
    assert counts["agent_runs_total|other|model_error"] == 1
