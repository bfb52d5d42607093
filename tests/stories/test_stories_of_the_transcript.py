"""Conversations that could no longer be sent elsewhere. See docs/failure-stories.md."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from redis.asyncio import Redis
from support.runs import A_WRITE, a_call, a_queued_run, asking
from support.wire import body
from support.worlds import World, memory_world, redis_world
from worker.box.box import AGENT, ROW, play_out
from worker.box.plan import Plan, Strike
from worker.box.promises import check_promises

from paceline.core.agent import Agent, Limits
from paceline.core.answer import read_answer
from paceline.core.models import max_output_tokens
from paceline.core.run import Run
from paceline.core.step import GoOn, Happening, ModelAnswered, Step, next_step
from paceline.core.transcript import Fragment, check_sendable, check_whole, results_message, user_text
from paceline.store.port import Written
from paceline.worker.scripted_model import ModelRequest, Reply, asks, says


def asks_for_three(request: ModelRequest, seen: int) -> Reply:
    if request.turn > 1:
        return says("done")
    return asks(("c1", "fetch", {}), ("c2", "look", {}), ("c3", "put", {}))


def test_a_kill_between_the_calls_and_their_results_leaves_what_can_be_sent() -> None:
    steps = play_out(asks_for_three).steps
    stored = steps.index("after store.open_calls") + 1
    joined = steps.index("after store.join") + 1
    for step in range(stored, joined + 1):
        over = play_out(asks_for_three, Plan(strikes={step: Strike.KILL}))
        check_promises(over)
        assert over.record.reason == "final_answer", steps[step - 1]
        for request in over.requests:
            check_sendable([Fragment(json.dumps(message).encode()) for message in request.messages])


def test_what_could_not_be_sent_is_never_stored_even_if_the_loop_wanted_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(agent: Agent, run: Run, happening: Happening) -> Step:
        if isinstance(happening, ModelAnswered):
            return GoOn(append=(user_text("go on"), user_text(" ")), advance=True, streaks=run.streaks)
        return next_step(agent, run, happening)

    monkeypatch.setattr("paceline.worker.turn.next_step", wrong)
    over = play_out(lambda request, seen: says("done"))
    check_promises(over)
    assert (over.record.reason, len(over.transcript)) == ("internal_error", 1)


def test_what_could_not_be_sent_is_never_sent_even_if_it_were_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.box.box.ROW", replace(ROW, first=(*ROW.first, asking("c1"))))
    over = play_out(lambda request, seen: says("done"))
    assert (over.record.reason, over.requests) == ("internal_error", ())


@pytest.fixture(params=["memory", "valkey"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "memory":
        yield memory_world()
    else:
        async with redis_world(Redis.from_url(request.getfixturevalue("valkey_url"))) as world:
            yield world


SIGNED = [
    # Members in an order of their own, escapes that need not be, a signature over nothing: as it came, so it stays.
    b'{"signature":"RXJyb3I/Kz0=","type":"thinking","thinking":"Who is\\u0020on call?  \\u2603 \\/"}',
    b'{"type":"thinking","thinking":"","signature":"c2lnbmVk"}',
    b'{ "type": "tool_use", "id": "c1", "name": "fetch", "input": {"b": 1.0, "a": 1e2} }',
    b'{"type":"tool_use","id":"c2","name":"fetch","input":{}}',
]


@pytest.mark.anyio
async def test_signed_thinking_around_calls_is_sent_as_the_bytes_that_came(world: World) -> None:
    raw = b"[" + b",".join(SIGNED) + b"]"
    said = read_answer(body(stop_reason="tool_use").replace(b'"content": []', b'"content": ' + raw)).fragment
    assert said is not None
    run = await a_queued_run(world.store)
    await run.begin()
    calls = [a_call("c1"), a_call("c2")]
    assert await world.store.open_calls(run.held, replace(A_WRITE, append=(said,)), calls) is Written.WRITTEN
    for call in calls:
        await run.run_call(call.call_id)
    results = await world.store.results(run.run_id, 1)
    assert results is not None
    await world.store.join(results.held, results_message(results.calls, results.blocks))
    begun = await run.begin()
    check_whole(begun.fragments)
    sent = AGENT.request(begun.fragments, max_tokens=1000, user_id=run.run_id)
    assert raw in sent
    assert [len(json.loads(sent)["messages"]), begun.run.turn] == [3, 2]


UNLIMITED = replace(AGENT, limits=Limits(turns=None, tokens=None, seconds=None, usd=None))
"""Room for answers as long as the model can give them."""


def cut_calls(request: ModelRequest, seen: int) -> Reply:
    return asks(("c1", "charge", {}), stop_reason="max_tokens")


def test_a_call_that_is_cut_again_and_again_is_never_run_and_ends_the_run_for_its_own_reason() -> None:
    over = play_out(cut_calls, agent=UNLIMITED)
    check_promises(over)
    assert (over.record.reason, over.charges) == ("output_truncated", ())
    asked_for = [request.fields["max_tokens"] for request in over.requests]
    most = max_output_tokens(AGENT.model)
    assert asked_for == [4096, 8192, 16_384, 32_768, 65_536, most, most]
    assert len(over.transcript) == 1, "nothing of a cut answer is kept, so no call is left without its result"


def test_a_call_that_is_cut_until_the_budget_has_no_room_for_more_ends_the_run_as_cut() -> None:
    over = play_out(cut_calls)
    check_promises(over)
    assert (over.record.reason, over.charges) == ("output_truncated", ())
    assert "the answer was cut, and there is no room for one of" in over.record.message
    assert "limits.usd" in over.record.message


def test_a_call_that_was_cut_five_times_runs_once_when_there_is_room_for_it() -> None:
    def cut_five_times(request: ModelRequest, seen: int) -> Reply:
        if request.turn > 1:
            return says("done")
        return cut_calls(request, seen) if seen < 5 else asks(("c1", "charge", {}))

    over = play_out(cut_five_times, agent=UNLIMITED)
    check_promises(over)
    assert (over.record.reason, len(over.charges)) == ("final_answer", 1)
