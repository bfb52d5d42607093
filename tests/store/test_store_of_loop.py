"""What the record keeps for the loop's own rules, in both stores."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.runs import A_WRITE, a_call, a_queued_run, asking
from support.worlds import World

from paceline.core.run import Streaks
from paceline.core.tool_spec import Placement

pytestmark = pytest.mark.anyio


async def test_a_call_that_is_answered_without_its_tool_is_recorded_with_the_answer(world: World) -> None:
    driven = await a_queued_run(world.store)
    calls = [replace(a_call("c1", placement=Placement.INLINE), answer='not run: "again"'), a_call("c2")]
    await driven.in_tools(*calls)
    assert [state.call for state in await world.store.open_call_states(driven.run_id)] == calls
    await driven.begin_call("c1")
    again = await world.store.examine([driven.run_id])
    assert again[0] is not None
    assert again[0].calls[0].call.answer == 'not run: "again"'


async def test_what_the_last_turns_asked_for_is_known_to_the_next(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.begin()
    known = Streaks(error_turns=2, asked=(frozenset({"0a0a0a0a", "1b1b1b1b"}), frozenset({"0a0a0a0a"})))
    write = replace(A_WRITE, append=(asking("c1"),), streaks=known)
    await world.store.open_calls(driven.held, write, [a_call("c1")])
    assert (await driven.look()).streaks == known


async def test_the_container_of_an_answer_is_kept_until_there_is_another(world: World) -> None:
    driven = await a_queued_run(world.store)
    for container, kept in [("", ""), ("c_1", "c_1"), ("", "c_1"), ("c_2", "c_2")]:
        await driven.begin()
        await world.store.go_on(driven.held, replace(A_WRITE, container=container), advance=True)
        assert (await driven.look()).container == kept
