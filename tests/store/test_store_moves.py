"""Every operation in every state does what the table of the life cycle says, and nothing where it says nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import pytest
from support.runs import (
    A_WRITE,
    BATCH,
    ENDS,
    Driven,
    a_call,
    a_call_to_approve,
    a_claim,
    a_queued_run,
    a_result,
    approval,
    in_doubt,
    ruled_out,
)
from support.worlds import World

from paceline.core.errors import IllegalTransition
from paceline.core.ids import CallId, batch_tag
from paceline.core.ledger import Redriven
from paceline.core.lifecycle import MOVES, Event, State
from paceline.core.transcript import user_text
from paceline.store.port import Asked, CallBegun, CallClaim

pytestmark = pytest.mark.anyio


async def _begin(driven: Driven) -> object:
    return await driven.store.begin(driven.run_id, (await driven.look()).turn, a_claim())


async def _open_calls(driven: Driven) -> object:
    return await driven.store.open_calls(await driven.now_held(), A_WRITE, [a_call("c2")])


async def _go_on(driven: Driven) -> object:
    return await driven.store.go_on(await driven.now_held(), A_WRITE, advance=True)


async def _hold(driven: Driven) -> object:
    return await driven.store.hold(await driven.now_held(), A_WRITE, seconds=5, reason="busy")


async def _recover(driven: Driven) -> object:
    return await driven.store.recover(await driven.now_held(), A_WRITE)


async def _claimed(driven: Driven) -> CallClaim:
    turn = (await driven.look()).turn
    begun = await driven.store.begin_call(driven.run_id, turn, CallId("c1"), a_claim())
    attempt = begun.attempt if isinstance(begun, CallBegun) else 1
    return CallClaim(run_id=driven.run_id, turn=turn, call_id=CallId("c1"), attempt=attempt)


async def _last_result(driven: Driven) -> object:
    return await driven.store.finish_call(await _claimed(driven), a_result("c1"))


async def _await_decision(driven: Driven) -> object:
    return await driven.store.doubt(await _claimed(driven), Asked.PERSON, in_doubt("c1"))


async def _decide(driven: Driven) -> object:
    return await driven.store.resolve(driven.run_id, CallId("c1"), ruled_out("c1"))


async def _await_approval(driven: Driven) -> object:
    return await driven.store.finish_call(await _claimed(driven), a_result("c1"))


async def _approve(driven: Driven) -> object:
    return await driven.store.approve(driven.run_id, CallId("c1"), approval("c1"), None)


async def _join(driven: Driven) -> object:
    held = await driven.now_held()
    inline = [a_result("c1")] if (await driven.look()).state is State.IN_TOOLS else []
    return await driven.store.join(held, user_text("results"), inline)


async def _redrive(driven: Driven) -> object:
    return await driven.store.redrive(await driven.now_held(), None, Redriven(turn=1, at_ms=1))


def _finish(state: State) -> Callable[[Driven], Awaitable[object]]:
    async def finish(driven: Driven) -> object:
        return await driven.store.finish(await driven.now_held(), A_WRITE, ENDS[state])

    return finish


OPERATIONS: Mapping[Event, Callable[[Driven], Awaitable[object]]] = {
    Event.BEGIN: _begin,
    Event.OPEN_CALLS: _open_calls,
    Event.GO_ON: _go_on,
    Event.HOLD: _hold,
    Event.RECOVER: _recover,
    Event.LAST_RESULT: _last_result,
    Event.AWAIT_DECISION: _await_decision,
    Event.DECIDE: _decide,
    Event.AWAIT_APPROVAL: _await_approval,
    Event.APPROVE: _approve,
    Event.JOIN: _join,
    Event.SUCCEED: _finish(State.SUCCEEDED),
    Event.STOP: _finish(State.STOPPED),
    Event.FAIL: _finish(State.FAILED),
    Event.CANCEL: _finish(State.CANCELLED),
    Event.REDRIVE: _redrive,
}


def test_every_event_has_its_operation() -> None:
    assert set(OPERATIONS) == set(Event)


@pytest.mark.parametrize("event", list(Event))
@pytest.mark.parametrize("state", list(State))
async def test_a_run_moves_as_the_table_says(world: World, state: State, event: Event) -> None:
    driven = await a_queued_run(world.store)
    if (state, event) == (State.IN_TOOLS, Event.AWAIT_APPROVAL):
        await driven.in_tools(a_call("c1"), a_call_to_approve("c2"))
    else:
        await driven.bring_to(state)
    await world.let_pass(10)  # a run on hold may begin
    before = await _everything(driven)
    expected = MOVES.get((state, event))
    with suppress(IllegalTransition):  # so is a finish answered that the table does not have
        await OPERATIONS[event](driven)
    if expected is None:
        assert await _everything(driven) == before
    else:
        assert (await driven.look()).state is expected
        assert await _counted(driven) == {expected: 1}


async def _counted(driven: Driven) -> dict[State, int]:
    counts = await driven.store.counts(batch_tag(BATCH.name))
    return {state: count for state, count in counts.states.items() if count}


async def _everything(driven: Driven) -> object:
    store, run_id = driven.store, driven.run_id
    return (
        await store.run(run_id),
        await store.transcript(run_id),
        await store.ledger(run_id),
        await _counted(driven),
        [(call.call, call.has_result) for call in await store.open_call_states(run_id)],
    )


async def test_an_ending_that_the_table_does_not_have_is_a_bug_and_named(world: World) -> None:
    driven = await a_queued_run(world.store)
    with pytest.raises(IllegalTransition, match="a run that is queued cannot succeed"):
        await _finish(State.SUCCEEDED)(driven)
