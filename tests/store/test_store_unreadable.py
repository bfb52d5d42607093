"""Runs that nobody here can read, and runs that are put aside."""

from __future__ import annotations

import pytest
from support.runs import a_queued_run
from support.worlds import World

from paceline.core.errors import NewerVersion
from paceline.core.ids import RunId
from paceline.store.port import RunStore
from paceline.store.record import RedisRunStore

pytestmark = pytest.mark.anyio


async def test_a_run_that_cannot_be_read_hides_no_other(world: World) -> None:
    if not isinstance(world.store, RedisRunStore):
        return  # nothing in memory is written by another version
    first, second = await a_queued_run(world.store, "row-1"), await a_queued_run(world.store, "row-2", index=1)
    await world.store.redis.hset(world.store.keys.run(first.run_id), "state", "of_a_later_version")
    await _hides_no_other(world.store, first.run_id, second.run_id)
    with pytest.raises(NewerVersion, match=f"run {first.run_id} is in a state that only a newer paceline knows"):
        await world.store.run(first.run_id)


async def test_a_run_whose_keys_are_of_another_type_hides_no_other(world: World) -> None:
    if not isinstance(world.store, RedisRunStore):
        return
    first, second = await a_queued_run(world.store, "row-1"), await a_queued_run(world.store, "row-2", index=1)
    await world.store.redis.delete(world.store.keys.run(first.run_id))
    await world.store.redis.set(world.store.keys.run(first.run_id), "not a hash")
    await _hides_no_other(world.store, first.run_id, second.run_id)


async def _hides_no_other(store: RunStore, broken: RunId, other: RunId) -> None:
    unreadable, examined = await store.examine([broken, other])
    assert unreadable is None
    assert examined is not None
    assert examined.run.run_id == other


async def test_a_run_that_is_put_aside_is_due_later_and_one_that_is_over_never(world: World) -> None:
    waiting, over = await a_queued_run(world.store, "row-1"), await a_queued_run(world.store, "row-2", index=1)
    await world.store.cancel(over.run_id)
    await world.store.let_go(over.run_id)
    await world.let_pass(31)
    await world.store.look_in([waiting.run_id, over.run_id], seconds=100)
    assert await world.store.due(limit=10) == []
    await world.let_pass(101)
    assert await world.store.due(limit=10) == [waiting.run_id]
