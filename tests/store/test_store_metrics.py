"""What the record counts: with each transition, once, whatever is repeated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from support.runs import (
    A_WRITE,
    ANSWERED,
    BATCH,
    ENDS,
    SPENT,
    Driven,
    a_call,
    a_claim,
    a_queued_run,
    a_result,
    a_row,
    in_doubt,
    submitted,
)
from support.worlds import World

from paceline.core.ids import BatchName, Incarnation, batch_tag
from paceline.core.ledger import Redriven
from paceline.core.lifecycle import State
from paceline.core.metrics import (
    ACTIVE_RUNS,
    AGENTS_COUNTED,
    HOLDS,
    QUEUE_WAIT,
    RUN_CONTEXT,
    RUN_COST,
    RUN_MODEL_CALLS,
    RUN_SECONDS,
    RUN_TOOL_CALLS,
    RUN_TURNS,
    RUNS,
    SWEEPER_RECOVERIES,
    HoldReason,
    Metric,
    observed,
)
from paceline.core.run import ContextUsed
from paceline.core.tool_spec import Effect
from paceline.core.transcript import user_text
from paceline.store.port import Asked, CountedAgent, Submitted, TurnWrite, WorkerReport, Written

pytestmark = pytest.mark.anyio

AN_AGENT = CountedAgent(model="claude-sonnet-5-5", cost_budget_usd=0.5)


async def counted(world: World, metric: Metric) -> Mapping[str, int]:
    """What was counted of this metric and is not 0, by its labels."""
    counts = (await world.store.metrics()).counts
    start = f"{metric.name}|"
    return {name.removeprefix(start): by for name, by in counts.items() if by and name.startswith(start)}


def fields(metric: Metric, *labels: str, stored: int) -> Mapping[str, int]:
    """One observation, as `counted` shows it."""
    seen = observed(metric, *labels, stored=stored)
    return {name.removeprefix(f"{metric.name}|"): by for name, by in seen.items() if by}


# Where runs stand ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [state for state in State if not state.is_terminal])
async def test_a_run_is_counted_where_it_stands(world: World, state: State) -> None:
    await (await a_queued_run(world.store)).bring_to(state)
    assert await counted(world, ACTIVE_RUNS) == {f"oncall|{state}": 1}


@pytest.mark.parametrize("end", ENDS)
async def test_a_run_that_is_over_stands_nowhere_until_it_goes_on(world: World, end: State) -> None:
    driven = await a_queued_run(world.store)
    await driven.bring_to(end)
    assert await counted(world, ACTIVE_RUNS) == {}


async def test_a_hold_is_counted_by_its_reason_until_the_run_goes_on(world: World) -> None:
    one, other = await a_queued_run(world.store), await a_queued_run(world.store, "row-2")
    for driven, reason in ((one, HoldReason.THROTTLED), (other, HoldReason.RETRY)):
        await driven.begin()
        await world.store.hold(driven.held, A_WRITE, seconds=1, reason="busy", counted_as=reason)
    assert await counted(world, HOLDS) == {"throttled": 1, "retry": 1}
    await world.let_pass(1)
    await one.begin()
    await world.store.cancel(other.run_id)
    assert await counted(world, HOLDS) == {}


async def test_runs_of_an_agent_beyond_the_cap_are_counted_together(world: World) -> None:
    for number in range(AGENTS_COUNTED):
        await world.store.count_agent(f"agent-{number}", AN_AGENT)
    await a_queued_run(world.store)
    assert await counted(world, ACTIVE_RUNS) == {"other|queued": 1}
    assert len((await world.store.metrics()).agents) == AGENTS_COUNTED


async def test_an_agent_that_is_known_may_change(world: World) -> None:
    for usd in (0.5, None):
        await world.store.count_agent("oncall", CountedAgent(model="claude-sonnet-5-5", cost_budget_usd=usd))
    assert (await world.store.metrics()).agents == {"oncall": replace(AN_AGENT, cost_budget_usd=None)}


async def test_agents_that_nobody_has_asked_to_count_are_counted_together(world: World) -> None:
    row = a_row(batch=BatchName("hourly"))
    batch = await world.store.open_batch(replace(BATCH, name=BatchName("hourly")))
    assert await world.store.submit(batch, [row]) == [Submitted.CREATED]
    assert await counted(world, ACTIVE_RUNS) == {"other|queued": 1}


# What turns and calls bring ------------------------------------------------------------------------------------------


async def test_what_a_write_brings_is_added_once(world: World) -> None:
    driven = await a_queued_run(world.store)
    write = replace(A_WRITE, counts={"agent_cost_usd_total|oncall|m": 7})
    for advance in (True, False):
        await driven.begin()
        assert await world.store.go_on(driven.held, write, advance=advance) is Written.WRITTEN
    assert (await world.store.metrics()).counts["agent_cost_usd_total|oncall|m"] == 14


async def test_a_write_that_is_refused_adds_nothing(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.begin()
    late = replace(driven.held, fence=driven.held.fence - 1)
    write = replace(A_WRITE, counts={"agent_cost_usd_total|oncall|m": 7})
    assert await world.store.go_on(late, write, advance=True) is Written.LOST
    assert "agent_cost_usd_total|oncall|m" not in (await world.store.metrics()).counts


async def test_what_a_result_brings_is_added_with_the_first_one(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1"), a_call("c2"))
    held = await driven.begin_call("c1")
    result = replace(a_result("c1"), counts={"x|y": 3})
    for _ in range(2):
        await world.store.finish_call(held, result)
    assert (await world.store.metrics()).counts["x|y"] == 3


async def test_inline_results_bring_what_they_count(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.bring_to(State.IN_TOOLS)
    inline = replace(a_result("c1"), counts={"x|y": 3})
    assert await world.store.join(driven.held, user_text("results"), [inline]) is Written.WRITTEN
    assert (await world.store.metrics()).counts["x|y"] == 3


async def test_waiting_is_measured_from_when_something_was_due_to_when_it_began(world: World) -> None:
    driven = await a_queued_run(world.store)
    await world.let_pass(3)
    await driven.begin()
    assert await counted(world, QUEUE_WAIT) == fields(QUEUE_WAIT, "paceline.starts", stored=3000)
    await driven.open_calls(a_call("c1"))
    await world.let_pass(0.2)
    held = await driven.begin_call("c1")
    waits = await counted(world, QUEUE_WAIT)
    assert fields(QUEUE_WAIT, "paceline.tools", stored=200).items() <= waits.items()
    await world.store.recover_call(held)
    await driven.begin_call("c1")
    assert await counted(world, QUEUE_WAIT) == waits, "a second try has waited for something else"


async def test_the_end_of_a_hold_begins_the_wait(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.bring_to(State.ON_HOLD)
    before = await counted(world, QUEUE_WAIT)
    await world.let_pass(11)
    await driven.begin()
    waited = {name: by - before.get(name, 0) for name, by in (await counted(world, QUEUE_WAIT)).items()}
    assert waited == {**dict.fromkeys(waited, 0), **fields(QUEUE_WAIT, "paceline.starts", stored=1000)}


# Ends ----------------------------------------------------------------------------------------------------------------


async def _ended(world: World, driven: Driven) -> None:
    """A run of one turn with one call that took 90 s from its submission."""
    await driven.in_tools(a_call("c1"))
    await driven.run_call("c1")
    await world.store.join(await driven.now_held(), user_text("results"))
    await world.let_pass(90)
    await driven.begin()
    await world.store.finish(driven.held, TurnWrite(context_used=ContextUsed(model="m", millionths=610_000)), ANSWERED)


async def test_the_end_of_a_run_counts_its_totals(world: World) -> None:
    await _ended(world, await a_queued_run(world.store))
    assert await counted(world, RUNS) == {"oncall|final_answer": 1}
    assert await counted(world, RUN_TURNS) == fields(RUN_TURNS, "oncall", "succeeded", stored=1)
    assert await counted(world, RUN_MODEL_CALLS) == fields(RUN_MODEL_CALLS, "oncall", stored=1)
    assert await counted(world, RUN_TOOL_CALLS) == fields(RUN_TOOL_CALLS, "oncall", stored=1)
    assert await counted(world, RUN_SECONDS) == fields(RUN_SECONDS, "oncall", stored=90_000)
    assert await counted(world, RUN_COST) == fields(RUN_COST, "oncall", stored=SPENT.cost_nanousd)
    assert await counted(world, RUN_CONTEXT) == fields(RUN_CONTEXT, "oncall", "m", stored=610_000)


async def test_a_cancel_that_no_worker_carries_out_is_an_end_too(world: World) -> None:
    driven = await a_queued_run(world.store)
    await world.store.cancel(driven.run_id)
    assert await counted(world, RUNS) == {"oncall|cancelled": 1}
    assert await counted(world, RUN_TURNS) == fields(RUN_TURNS, "oncall", "cancelled", stored=0)
    assert await counted(world, RUN_CONTEXT) == {}


async def test_what_cannot_be_priced_is_not_counted_as_free(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.begin()
    unpriced = replace(A_WRITE, spent=replace(SPENT, unpriced_calls=1))
    await world.store.finish(driven.held, unpriced, ANSWERED)
    assert await counted(world, RUN_COST) == {}
    assert await counted(world, RUNS) == {"oncall|final_answer": 1}


async def test_a_run_that_goes_on_after_its_end_ends_again(world: World) -> None:
    driven = await a_queued_run(world.store)
    for _ in range(2):
        await driven.bring_to(State.FAILED)
        await world.store.redrive(await driven.now_held(), None, Redriven(turn=1, at_ms=6))
    assert await counted(world, RUNS) == {"oncall|model_error": 2}
    assert await counted(world, ACTIVE_RUNS) == {"oncall|turn_due": 1}


async def test_the_most_of_the_window_that_was_used_is_kept(world: World) -> None:
    driven = await a_queued_run(world.store)
    used = ContextUsed(model="claude-sonnet-5-5", millionths=1)
    await driven.begin()
    await world.store.go_on(driven.held, replace(A_WRITE, context_used=used), advance=True)
    await driven.begin()
    await world.store.go_on(driven.held, A_WRITE, advance=True)
    assert (await driven.look()).context_used == used


# Sweepers, and what only a look tells --------------------------------------------------------------------------------


async def test_what_sweepers_mend_is_counted_by_what_was_lost(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1"), a_call("c2", Effect.ONCE))
    await world.store.recover_call(await driven.begin_call("c1"), lost=True)
    await world.store.recover_call(await driven.begin_call("c1"))
    held = await driven.begin_call("c2")
    await world.store.doubt(held, Asked.TOOL, in_doubt("c2"), lost=True)
    sent_ms = (await driven.look()).sent_ms
    await world.store.send_again(await driven.now_held(), seconds=5, sent_ms=sent_ms)
    assert await counted(world, SWEEPER_RECOVERIES) == {"call": 1, "doubt": 1, "message": 1}


async def test_dead_letters_and_living_workers_are_told(world: World) -> None:
    await (await a_queued_run(world.store)).bring_to(State.FAILED)
    report = WorkerReport(
        incarnation=Incarnation("worker-1"), host="node", pid=1, started_ms=1, concurrency=1, in_flight=0
    )
    await world.store.beat(report, alive_seconds=10)
    read = await world.store.metrics()
    assert (read.dead_letters, read.workers, read.now_ms) == (1, 1, world.clock.now_ms)


async def test_what_is_counted_is_kept_as_long_as_runs_are_looked_at(world: World) -> None:
    await submitted(world.store, a_row())
    for _ in range(2):
        await world.let_pass(6 * 86_400)
        await world.store.keep([batch_tag(BATCH.name)], [])
    assert list((await world.store.metrics()).agents) == ["oncall"]
    assert await counted(world, ACTIVE_RUNS) == {"oncall|queued": 1}


async def test_a_claim_that_is_asked_for_again_has_waited_once(world: World) -> None:
    driven = await a_queued_run(world.store)
    await world.let_pass(3)
    claim = a_claim()
    for _ in range(2):
        await driven.begin(claim)
    assert await counted(world, QUEUE_WAIT) == fields(QUEUE_WAIT, "paceline.starts", stored=3000)
