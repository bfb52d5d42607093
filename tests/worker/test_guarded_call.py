"""What a call's claim comes to when its worker lives and something is wrong: it is given up, and soon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.runs import BATCH, a_call, a_queued_run

from paceline.core.agent import Agent
from paceline.core.ids import CallId, Incarnation, RunId
from paceline.core.step import ModelCallFailed
from paceline.core.tool_spec import Effect
from paceline.store.memory import MemoryRunStore
from paceline.store.port import CallClaim, CallResult, CallStored, CallWritten, OpenCall
from paceline.tools import Registry
from paceline.worker.call import run_call
from paceline.worker.desk import Desk
from paceline.worker.messages import Message
from paceline.worker.scripted_model import ModelRequest, ScriptedModel
from paceline.worker.settings import Settings

pytestmark = pytest.mark.anyio

NOW_MS = 1_800_000_000_000
CALL = CallId("c1")


class Refuses(MemoryRunStore):
    """Cannot store the first results that it is given."""

    refusals = 1

    async def finish_call(self, held: CallClaim, result: CallResult) -> CallStored:
        if self.refusals:
            self.refusals -= 1
            raise ValueError("this result cannot be stored")
        return await super().finish_call(held, result)


def a_desk(store: MemoryRunStore) -> Desk:
    async def nobody(request: ModelRequest) -> ModelCallFailed:
        raise AssertionError("no model is called here")

    def send(messages: Sequence[Message]) -> None:
        """There is no broker."""

    return Desk(
        settings=Settings(),
        store=store,
        model=ScriptedModel(nobody),
        registry=Registry(),
        built_in={},
        incarnation=Incarnation("living"),
        send=send,
    )


async def opened(store: MemoryRunStore, call: OpenCall) -> RunId:
    driven = await a_queued_run(store)
    await driven.in_tools(call, a_call("another"))
    return driven.run_id


async def test_a_call_whose_agent_is_gone_is_answered_and_no_claim_stays() -> None:
    store = MemoryRunStore(lambda: NOW_MS)
    run_id = await opened(store, a_call(CALL))
    ran = await run_call(a_desk(store), run_id, 1, CALL)
    assert ran.written is CallWritten.STORED
    assert (await store.open_call_states(run_id))[0].has_result


async def test_a_call_whose_result_cannot_be_stored_is_answered_with_the_fault() -> None:
    store = Refuses(lambda: NOW_MS)
    run_id = await opened(store, replace(a_call(CALL), answer="not run"))
    await store.put_agent(BATCH.agent, Agent(name="oncall", model="claude-sonnet-5-5").freeze())
    ran = await run_call(a_desk(store), run_id, 1, CALL)
    assert ran.written is CallWritten.STORED
    assert (await store.open_call_states(run_id))[0].has_result


async def test_a_call_that_cannot_be_answered_at_all_is_given_up_and_counted_as_lost() -> None:
    store = Refuses(lambda: NOW_MS)
    store.refusals = 2
    run_id = await opened(store, a_call(CALL))
    assert (await run_call(a_desk(store), run_id, 1, CALL)).written is CallWritten.LOST
    state = (await store.open_call_states(run_id))[0]
    assert (state.owner, state.losses) == ("", 1)


async def test_a_call_with_an_effect_that_cannot_be_answered_stays_claimed_and_is_never_begun_again() -> None:
    store = Refuses(lambda: NOW_MS)
    store.refusals = 2
    run_id = await opened(store, a_call(CALL, Effect.ONCE))
    with pytest.raises(ValueError, match="cannot be stored"):
        await run_call(a_desk(store), run_id, 1, CALL)
    assert (await store.open_call_states(run_id))[0].owner == "living"


async def test_a_calls_claim_ends_soon_after_its_tools_own_timeout() -> None:
    store = MemoryRunStore(lambda: NOW_MS)
    run_id = await opened(store, replace(a_call(CALL), timeout_s=20.0))
    with a_desk(store).claiming(5.0) as claim:
        await store.begin_call(run_id, 1, CALL, claim)
    assert (await store.open_call_states(run_id))[0].claim_until_ms == NOW_MS + 85_000
