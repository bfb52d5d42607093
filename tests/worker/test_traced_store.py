"""What is told of runs, held against what was written to their record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    a_result,
    a_row,
    approval,
    asking,
    in_doubt,
    ruled_out,
)
from support.told import Told
from support.worlds import World, memory_world

from paceline.core import trace_names as names
from paceline.core.agent import Agent
from paceline.core.ids import CallId, trace_id
from paceline.core.ledger import AttemptLost, Compacted, Redriven, Source
from paceline.core.lifecycle import State
from paceline.core.request_fields import RequestFields
from paceline.core.run import Spent, Streaks
from paceline.core.tool_spec import Effect, Placement
from paceline.core.trace_ids import TURNS_IN_A_PART, trace_of
from paceline.core.trace_span import Span
from paceline.core.transcript import user_text
from paceline.store.port import Asked, TurnClaim, TurnWrite, Written
from paceline.worker.telemetry.request import server_of
from paceline.worker.telemetry.traced_store import traced

pytestmark = pytest.mark.anyio

AGENT = Agent(name="oncall", model="claude-sonnet-5-5", system="SECRET SYSTEM")


@dataclass(slots=True)
class Stage:
    world: World
    told: Told
    run: Driven


async def _a_stage(told: Told | None = None) -> Stage:
    world, told = memory_world(), told or Told()
    store = traced(world.store, told, now_ms=world.clock)
    await store.put_agent(AGENT.digest, AGENT.freeze())
    batch = await store.open_batch(replace(BATCH, agent=AGENT.digest))
    row = a_row()
    await store.submit(batch, [row])
    return Stage(world=world, told=told, run=Driven(store, row.run_id))


async def test_a_run_is_told_as_one_flat_tree() -> None:
    stage = await _a_stage()
    run = stage.run
    stage.world.clock.pass_seconds(2)
    await run.in_tools(a_call("c1"), a_call("c2"))
    await run.run_call("c1")
    await run.run_call("c2")
    await run.store.join(await run.now_held(), user_text("results"))
    await run.begin()
    assert await run.store.finish(run.held, A_WRITE, ANSWERED) is Written.WRITTEN
    told = stage.told
    told.assert_whole()
    first, second = told.named("turn")
    assert [span.parent for span in (first, second)] == [told.root.place.span] * 2
    assert [span.parent for span in told.named("execute_tool")] == [first.place.span] * 2
    assert [span.parent for span in told.named("chat")] == [first.place.span, second.place.span]
    assert second.links == (first.place,)
    assert first.attributes[names.QUEUE_WAIT] == 2.0
    assert {span.place.trace for span in told.spans} == {trace_id(run.run_id)}


async def test_the_root_has_the_sums_of_what_is_below_it() -> None:
    stage = await _a_stage()
    run = stage.run
    for _ in range(3):
        await run.begin()
        await run.store.go_on(run.held, A_WRITE, advance=True)
    await run.begin()
    await run.store.finish(run.held, A_WRITE, ANSWERED)
    root = stage.told.root
    assert root.name == "invoke_agent oncall"
    assert root.attributes[names.INPUT_TOKENS] == 4 * SPENT.usage.all_input
    assert root.attributes[names.OUTPUT_TOKENS] == 4 * SPENT.usage.output
    assert root.attributes[names.COST] == pytest.approx(4 * SPENT.cost_nanousd / 1e9)
    assert root.attributes[names.STOP_REASON] == "final_answer"
    assert not root.error


async def test_an_attempt_whose_worker_is_gone_has_a_voice() -> None:
    stage = await _a_stage()
    run = stage.run
    await run.begin()
    held, began_ms = run.held, stage.world.clock.now_ms
    other = traced(stage.world.store, stage.told, now_ms=stage.world.clock)
    stage.world.clock.pass_seconds(30)
    lost = AttemptLost(turn=1, attempt=1, at_ms=stage.world.clock.now_ms, worker="worker-1", began_ms=began_ms)
    assert await other.recover(held, TurnWrite(ledger=(lost,))) is Written.WRITTEN
    (span,) = stage.told.spans
    assert (span.name, span.error, span.attributes[names.WORKER]) == ("turn", "worker_lost", "worker-1")
    assert span.end_ms - span.start_ms == 30_000
    assert await run.store.go_on(held, A_WRITE, advance=True) is Written.LOST
    assert len(stage.told.spans) == 1, "who lost a claim tells of nothing"


async def test_a_write_whose_reply_never_came_is_told_by_the_try_that_finds_it_made() -> None:
    stage = await _a_stage()
    run, silent = stage.run, stage.world.store
    await run.in_tools(a_call("c1"))
    await run.run_call("c1")
    await run.store.join(await run.now_held(), user_text("results"))
    await run.begin()
    assert await silent.finish(run.held, A_WRITE, ANSWERED) is Written.WRITTEN
    assert await run.store.finish(run.held, A_WRITE, ANSWERED) is Written.LOST
    stage.told.assert_whole()
    assert len(stage.told.named("turn")) == 2


async def test_a_failed_model_call_and_the_wait_after_it_are_told_without_the_apis_words() -> None:
    stage = await _a_stage()
    run = stage.run
    await run.begin()
    stage.world.clock.pass_seconds(1)
    write = TurnWrite(spent=Spent(working_ms=900), streaks=Streaks(throttles=1))
    await run.store.hold(run.held, write, seconds=7, reason="SECRET WORDS OF THE API")
    turn, chat = stage.told.spans
    assert (turn.error, chat.error, chat.end_ms - chat.start_ms) == ("throttled", "throttled", 900)
    (moment,) = turn.moments
    assert moment.attributes == {names.HOLD: 7}
    assert "SECRET" not in repr(stage.told.spans)


async def test_a_compaction_is_told_on_the_turn_and_on_the_call_that_it_was_made_for() -> None:
    stage = await _a_stage()
    run = stage.run
    await run.begin()
    made = Compacted(
        turn=1,
        at_ms=1,
        cleared=5,
        results=2,
        tokens_before=900,
        tokens_after=300,
        expected_turns=4,
        saved_nanousd=None,
        rewrite_nanousd=35_000_000,
    )
    await run.store.go_on(run.held, replace(A_WRITE, cleared=5, ledger=(made, *A_WRITE.ledger)), advance=True)
    turn, chat = stage.told.spans
    (moment,) = turn.moments
    assert moment.name == names.COMPACTED_EVENT
    assert moment.attributes == {
        names.CLEARED_RESULTS: 2,
        names.TOKENS_BEFORE: 900,
        names.TOKENS_AFTER: 300,
        names.REWRITE: 0.035,
    }, "a price that is not known is not told"
    assert chat.attributes[names.COMPACTED] is True


async def test_an_attempt_that_only_waits_is_no_error() -> None:
    stage = await _a_stage()
    await stage.run.begin()
    await stage.run.store.hold(stage.run.held, TurnWrite(), seconds=7, reason="busy")
    (turn,) = stage.told.spans
    assert not turn.error


@pytest.mark.parametrize(("state", "error"), [(State.STOPPED, "max_turns"), (State.FAILED, "model_error")])
async def test_a_run_without_an_answer_is_an_error_named_by_its_reason(state: State, error: str) -> None:
    stage = await _a_stage()
    await stage.run.begin()
    await stage.run.store.finish(stage.run.held, TurnWrite(), ENDS[state])
    assert stage.told.root.error == error
    assert ENDS[state].message not in repr(stage.told.spans)


async def test_a_cancelled_run_has_its_root_whoever_writes_last() -> None:
    stage = await _a_stage()
    await stage.run.begin()
    await stage.run.store.cancel(stage.run.run_id)
    await stage.run.store.go_on(stage.run.held, A_WRITE, advance=True)
    stage.told.assert_whole()
    assert (stage.told.root.attributes[names.STATUS], stage.told.root.error) == ("cancelled", "")


@pytest.mark.parametrize("state", [State.QUEUED, State.TURN_DUE, State.ON_HOLD, State.JOINING])
async def test_a_run_that_was_cancelled_while_nobody_worked_on_it_is_told_by_who_looks_at_it(state: State) -> None:
    stage = await _a_stage()
    await stage.run.bring_to(state)
    await stage.world.store.cancel(stage.run.run_id)
    assert await stage.run.store.due(limit=2) == [stage.run.run_id]
    await stage.run.store.let_go(stage.run.run_id)
    stage.told.assert_whole()
    assert (stage.told.root.attributes[names.STOP_REASON], stage.told.root.error) == ("cancelled", "")
    await stage.run.store.begin(stage.run.run_id, (await stage.run.look()).turn, a_claim())
    stage.told.assert_whole()
    assert await stage.run.store.due(limit=2) == []


async def test_inline_calls_are_told_below_their_turn() -> None:
    stage = await _a_stage()
    run = stage.run
    await run.in_tools(a_call("c1", placement=Placement.INLINE))
    await run.store.join(run.held, user_text("results"), [a_result("c1")])
    await run.begin()
    await run.store.finish(run.held, A_WRITE, ANSWERED)
    stage.told.assert_whole()
    assert [span.parent for span in stage.told.named("execute_tool")] == [stage.told.named("turn")[0].place.span]


async def test_a_call_in_doubt_is_told() -> None:
    stage = await _a_stage()
    await stage.run.in_tools(a_call("c1", Effect.ONCE))
    held = await stage.run.begin_call("c1")
    await stage.run.store.doubt(held, Asked.PERSON, in_doubt("c1"))
    (span,) = stage.told.named("execute_tool")
    assert span.error == "unknown_effect"


@pytest.mark.parametrize("has_run", [True, False])
async def test_what_a_person_decided_about_a_call_is_told_with_the_root(has_run: bool) -> None:
    stage = await _a_stage()
    run = stage.run
    await run.bring_to(State.AWAITING_DECISION)
    decided = replace(a_result("c1").entry, source=Source.PERSON, took_ms=0, worker="")
    decision = replace(a_result("c1"), entry=decided) if has_run else ruled_out("c1")
    await stage.world.store.resolve(run.run_id, CallId("c1"), decision)
    if not has_run:
        await run.run_call("c1")
    assert len(stage.told.named("execute_tool")) == (1 if has_run else 2), "a producer tells nothing"
    await run.store.finish(await run.now_held(), TurnWrite(), ENDS[State.FAILED])
    stage.told.assert_whole()
    doubtful, settled = stage.told.named("execute_tool")
    assert (doubtful.error, settled.error, settled.parent) == ("unknown_effect", "", doubtful.parent)
    assert settled.attributes.get(names.SOURCE) == ("person" if has_run else None)
    moments = [(moment.name, moment.attributes[names.SOURCE]) for moment in stage.told.root.moments]
    assert moments == ([] if has_run else [(names.RULED_OUT_EVENT, "person")])


@pytest.mark.parametrize("approved", [True, False])
async def test_what_a_person_said_about_a_call_to_approve_is_told_with_the_root(approved: bool) -> None:
    stage = await _a_stage()
    run = stage.run
    await run.bring_to(State.AWAITING_APPROVAL)
    await stage.world.store.approve(run.run_id, CallId("c1"), approval("c1", approved=approved), None)
    await run.store.finish(await run.now_held(), TurnWrite(), ENDS[State.FAILED])
    stage.told.assert_whole()
    (moment,) = stage.told.root.moments
    assert moment.name == (names.APPROVED_EVENT if approved else names.DENIED_EVENT)
    assert moment.attributes == {names.CALL: "c1", names.TOOL: "search", names.SOURCE: "person"}


async def test_a_turn_names_the_queue_that_it_came_by() -> None:
    stage = await _a_stage()
    for _ in range(2):
        await stage.run.begin()
        await stage.run.store.go_on(stage.run.held, A_WRITE, advance=True)
    queues = [turn.attributes[names.QUEUE] for turn in stage.told.named("turn")]
    assert queues == ["paceline.starts", "paceline.turns"]


async def test_a_chat_says_where_it_was_asked_and_what_for() -> None:
    world, told = memory_world(), Told()
    store = traced(world.store, told, now_ms=world.clock, server=server_of({}))
    output = {"effort": "high", "format": {"type": "json_schema", "schema": {}}}
    agent = replace(AGENT, passed_through=RequestFields(body={"output_config": output}))
    await store.put_agent(agent.digest, agent.freeze())
    await store.submit(await store.open_batch(replace(BATCH, agent=agent.digest)), [a_row()])
    run = Driven(store, a_row().run_id)
    await run.begin()
    await store.go_on(run.held, replace(A_WRITE, streaks=Streaks(max_tokens=8192)), advance=False)
    await run.begin()
    await store.go_on(run.held, A_WRITE, advance=True)
    first, second = told.named("chat")
    assert first.attributes[names.SERVER] == "api.anthropic.com"
    assert first.attributes[names.REASONING] == "high"
    assert first.attributes[names.OUTPUT_TYPE] == "json"
    assert [chat.attributes[names.MAX_TOKENS] for chat in (first, second)] == [4096, 8192]


def test_the_server_is_named_by_the_variable_of_the_sdk() -> None:
    def server(url: str) -> tuple[object, ...]:
        return tuple(server_of({"ANTHROPIC_BASE_URL": url}).values())

    assert tuple(server_of({}).values()) == ("api.anthropic.com", 443)
    assert server("http://127.0.0.1:8080/v1") == ("127.0.0.1", 8080)
    assert server("http://gateway") == ("gateway", 80)
    assert server("gateway") == server("http://gateway:door") == ()


async def test_a_later_life_is_told_below_the_root_of_the_first() -> None:
    stage = await _a_stage()
    run = stage.run
    await run.begin()
    await run.store.finish(run.held, A_WRITE, ENDS[State.FAILED])
    redriven = Redriven(turn=1, at_ms=stage.world.clock.now_ms)
    assert await run.store.redrive(await run.now_held(), None, redriven) is Written.WRITTEN
    await run.begin()
    await run.store.finish(run.held, A_WRITE, ANSWERED)
    stage.told.assert_whole()
    first, later = stage.told.named("invoke_agent")
    assert (later.parent, later.attributes[names.LIFE], later.error) == (first.place.span, 1, "")
    assert later.attributes[names.OUTPUT_TOKENS] == SPENT.usage.output


async def test_a_very_long_run_is_told_in_parts_that_are_linked() -> None:
    stage = await _a_stage()
    run = stage.run
    for _ in range(TURNS_IN_A_PART + 1):
        await run.begin()
        await run.store.go_on(run.held, TurnWrite(), advance=True)
    await run.begin()
    await run.store.finish(run.held, TurnWrite(append=(asking("c1"),)), ANSWERED)
    stage.told.assert_whole()
    first, second = stage.told.named("invoke_agent")
    assert [root.place.trace for root in (first, second)] == [trace_of(run.run_id, part) for part in (0, 1)]
    assert (first.parent, second.parent, second.links) == (None, None, (first.place,))
    assert names.STOP_REASON not in first.attributes


async def test_nothing_is_told_of_a_run_that_is_not_sampled() -> None:
    stage = await _a_stage(Told(wants=lambda _: False))
    await stage.run.in_tools(a_call("c1"))
    await stage.run.run_call("c1")
    await stage.run.store.finish(await stage.run.now_held(), TurnWrite(), ENDS[State.FAILED])
    assert stage.told.spans == []


async def test_a_fault_in_the_telling_is_no_fault_of_the_run() -> None:
    class Faulty(Told):
        def record(self, spans: Sequence[Span]) -> None:
            raise ValueError("no")

    stage = await _a_stage(Faulty())
    await stage.run.begin()
    assert await stage.run.store.finish(stage.run.held, A_WRITE, ANSWERED) is Written.WRITTEN


async def test_what_is_not_listened_to_is_handed_on() -> None:
    stage = await _a_stage()
    assert await stage.run.store.now_ms() == stage.world.clock.now_ms
    stale = TurnClaim(run_id=stage.run.run_id, turn=1, fence=99)
    assert await stage.run.store.recover(stale, TurnWrite()) is Written.LOST
