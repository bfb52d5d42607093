"""What every store promises, method by method."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from support.runs import (
    A_WRITE,
    ANSWERED,
    BATCH,
    ENDS,
    QUESTION,
    SPENT,
    Driven,
    a_block,
    a_call,
    a_call_to_approve,
    a_claim,
    a_queued_run,
    a_result,
    a_row,
    approval,
    asking,
    call_ran,
    in_doubt,
    model_called,
    ruled_out,
    submitted,
)
from support.worlds import World

from paceline.core.approval import Permission
from paceline.core.ids import AgentDigest, BatchName, BatchTag, CallId, Incarnation, RunId, batch_tag, run_id
from paceline.core.ledger import AttemptLost, Ended, ModelCalled, Redriven, Source
from paceline.core.lifecycle import AWAITS_PERSON, TERMINAL, State
from paceline.core.run import Spent, Streaks
from paceline.core.tool_spec import Effect, Placement
from paceline.core.transcript import results_message, user_text
from paceline.store.port import (
    Approved,
    Asked,
    BatchInfo,
    Begun,
    Budget,
    CallBegun,
    CallClaim,
    CallStored,
    CallWritten,
    Cancelled,
    Doubt,
    NotBegun,
    OpenCall,
    Remains,
    Reserved,
    Resolved,
    RunRecord,
    Submitted,
    TurnClaim,
    TurnWrite,
    WorkerReport,
    Written,
)

pytestmark = pytest.mark.anyio

TAG = batch_tag(BATCH.name)
NOBODY = RunId("aaaaaaaa-bbbbbbbbbbbbbbbb")
INLINE = Placement.INLINE
JOINED = user_text("results")


async def counted(world: World) -> dict[State, int]:
    """A batch's runs by state, without the states that no run is in."""
    return {state: count for state, count in (await world.store.counts(TAG)).states.items() if count}


# Submission ----------------------------------------------------------------------------------------------------------


async def test_an_agent_is_kept_as_it_was_put(world: World) -> None:
    digest = AgentDigest("5f0c")
    await world.store.put_agent(digest, b"frozen \x00 bytes")
    await world.store.put_agent(digest, b"frozen \x00 bytes")
    assert await world.store.agent(digest) == b"frozen \x00 bytes"
    assert await world.store.agent(AgentDigest("0000")) is None


async def test_a_batch_is_opened_once_and_found_by_its_tag(world: World) -> None:
    assert await world.store.open_batch(BATCH) == BATCH
    assert await world.store.open_batch(replace(BATCH, tenant="other", opened_ms=2)) == BATCH
    assert await world.store.batch(TAG) == BATCH
    assert await world.store.batch(BatchTag("zzzzzzzz")) is None


async def test_batches_are_listed_newest_first(world: World) -> None:
    names = [BatchName(f"batch-{number}") for number in range(3)]
    for moment, name in enumerate(names):
        await world.store.open_batch(replace(BATCH, name=name, opened_ms=1_000 + moment))
    await world.store.open_batch(replace(BATCH, name=names[0], opened_ms=9_000))
    assert [batch.name for batch in await world.store.batches(limit=2)] == [names[2], names[1]]


async def test_a_new_run_is_queued_with_its_first_messages(world: World) -> None:
    row = replace(a_row(), first=(QUESTION, user_text("Quickly.")))
    assert await submitted(world.store, row) == [Submitted.CREATED]
    record = await world.store.run(row.run_id)
    assert record is not None
    assert (record.run.state, record.run.turn, record.run.fence, record.run.row_id) == (State.QUEUED, 1, 0, "row-1")
    assert (record.run.agent, record.run.submitted_ms) == (BATCH.agent, world.clock.now_ms)
    assert (record.reason, record.answer, record.ended_ms) == ("", None, 0)
    assert await world.store.transcript(row.run_id) == row.first


async def test_submitting_the_same_rows_again_changes_nothing(world: World) -> None:
    rows = [a_row("a", index=0), a_row("b", index=1)]
    assert await submitted(world.store, *rows) == [Submitted.CREATED, Submitted.CREATED]
    before = await world.store.runs([row.run_id for row in rows])
    later = [replace(row, index=9 - row.index) for row in rows]
    assert await submitted(world.store, *later) == [Submitted.EXISTS, Submitted.EXISTS]
    assert await world.store.runs([row.run_id for row in rows]) == before
    assert await world.store.batch_rows(TAG, start=0, count=9) == [row.run_id for row in rows]
    assert await counted(world) == {State.QUEUED: 2}


async def test_another_row_under_a_known_id_is_a_conflict_and_changes_nothing(world: World) -> None:
    await submitted(world.store, a_row("a"))
    other = replace(a_row("a", digest="d2"), first=(user_text("Another question"),))
    assert await submitted(world.store, other, a_row("b")) == [Submitted.CONFLICT, Submitted.CREATED]
    assert await world.store.transcript(other.run_id) == (QUESTION,)


async def test_rows_come_in_the_order_of_the_input_whatever_the_order_of_submission(world: World) -> None:
    rows = [a_row(f"row-{index}", index=index) for index in range(12)]
    await submitted(world.store, *reversed(rows[6:]))
    await submitted(world.store, *rows[:6])
    ids = [row.run_id for row in rows]
    assert await world.store.batch_rows(TAG, start=0, count=100) == ids
    assert await world.store.batch_rows(TAG, start=5, count=4) == ids[5:9]
    assert await world.store.batch_rows(TAG, start=12, count=4) == []
    assert await world.store.batch_rows(BatchTag("zzzzzzzz"), start=0, count=4) == []


async def test_a_submission_of_no_rows_is_no_mistake(world: World) -> None:
    assert await submitted(world.store) == []


# The budget of a batch -----------------------------------------------------------------------------------------------


async def under_budget(world: World, nanousd: int, *row_ids: str) -> list[Driven]:
    """Runs of a batch that may cost so much, each with a claim."""
    batch = await world.store.open_batch(replace(BATCH, has_budget=True))
    await world.store.set_budget(TAG, nanousd)
    rows = [a_row(row_id, index=index) for index, row_id in enumerate(row_ids)]
    await world.store.submit(batch, rows)
    runs = [Driven(world.store, row.run_id) for row in rows]
    for run in runs:
        await run.begin()
    return runs


async def test_a_budget_is_what_was_set_last_and_a_run_knows_whether_there_is_one(world: World) -> None:
    plain = await a_queued_run(world.store)
    assert (await plain.look()).has_budget is False
    assert await world.store.budget(TAG) is None
    await world.store.set_budget(TAG, 100)
    await world.store.set_budget(TAG, 70)
    assert await world.store.budget(TAG) == Budget(total=70, spent=0, held=0)
    other = BatchName("hourly")
    opened = await world.store.open_batch(replace(BATCH, name=other, has_budget=True))
    row = a_row(batch=other)
    await world.store.submit(opened, [row])
    assert opened.has_budget
    assert (await Driven(world.store, row.run_id).look()).has_budget


async def test_calls_are_made_as_long_as_all_of_them_fit_and_no_longer(world: World) -> None:
    a, b, c = await under_budget(world, 100, "a", "b", "c")
    assert await world.store.reserve(a.held, spent=10, call=40) is Reserved.RESERVED
    assert await world.store.reserve(b.held, spent=0, call=50) is Reserved.RESERVED
    assert await world.store.budget(TAG) == Budget(total=100, spent=10, held=100)
    # It would fit if the two under way cost nothing more, so it may fit later.
    assert await world.store.reserve(c.held, spent=0, call=1) is Reserved.WAIT
    assert await world.store.reserve(c.held, spent=0, call=90) is Reserved.WAIT
    assert await world.store.reserve(c.held, spent=0, call=91) is Reserved.SPENT
    assert await world.store.budget(TAG) == Budget(total=100, spent=10, held=100)
    await world.store.release(b.held, spent=20)
    assert await world.store.budget(TAG) == Budget(total=100, spent=30, held=70)
    assert await world.store.reserve(c.held, spent=0, call=30) is Reserved.RESERVED


async def test_a_budget_that_is_raised_lets_more_calls_through_and_one_that_is_lowered_none(world: World) -> None:
    a, b = await under_budget(world, 100, "a", "b")
    assert await world.store.reserve(a.held, spent=0, call=100) is Reserved.RESERVED
    await world.store.release(a.held, spent=100)
    assert await world.store.reserve(b.held, spent=0, call=1) is Reserved.SPENT
    await world.store.set_budget(TAG, 101)
    assert await world.store.reserve(b.held, spent=0, call=1) is Reserved.RESERVED
    await world.store.set_budget(TAG, 50)
    assert await world.store.reserve(b.held, spent=0, call=1) is Reserved.SPENT
    assert await world.store.budget(TAG) == Budget(total=50, spent=100, held=100)


async def test_the_latest_claims_word_counts_and_its_release_after_its_reservation(world: World) -> None:
    [run] = await under_budget(world, 100, "a")
    first = run.held
    assert await world.store.reserve(first, spent=0, call=60) is Reserved.RESERVED
    await world.store.recover(first, TurnWrite())
    await run.begin()
    # Nobody released what the lost attempt held: the next one's reservation takes its place.
    assert await world.store.reserve(run.held, spent=30, call=60) is Reserved.RESERVED
    assert await world.store.reserve(first, spent=0, call=10) is Reserved.STALE
    await world.store.release(first, spent=7)
    assert await world.store.budget(TAG) == Budget(total=100, spent=30, held=90)
    await world.store.release(run.held, spent=35)
    assert await world.store.reserve(run.held, spent=30, call=60) is Reserved.STALE
    assert await world.store.budget(TAG) == Budget(total=100, spent=35, held=35)


async def test_a_refused_call_gives_back_what_an_earlier_attempt_still_held(world: World) -> None:
    a, b = await under_budget(world, 100, "a", "b")
    await world.store.reserve(a.held, spent=0, call=90)
    await world.store.recover(a.held, TurnWrite())
    await a.begin()
    assert await world.store.reserve(a.held, spent=90, call=90) is Reserved.SPENT
    assert await world.store.budget(TAG) == Budget(total=100, spent=90, held=90)
    assert await world.store.reserve(b.held, spent=0, call=10) is Reserved.RESERVED


async def test_what_costs_nothing_is_never_refused_and_large_sums_are_exact(world: World) -> None:
    a, b = await under_budget(world, 2**52 + 1, "a", "b")
    assert await world.store.reserve(a.held, spent=1, call=2**52) is Reserved.RESERVED
    assert await world.store.budget(TAG) == Budget(total=2**52 + 1, spent=1, held=2**52 + 1)
    assert await world.store.reserve(b.held, spent=0, call=1) is Reserved.WAIT
    assert await world.store.reserve(b.held, spent=0, call=0) is Reserved.RESERVED


# Beginning a turn ----------------------------------------------------------------------------------------------------


async def test_the_first_claim_of_a_turn_gets_the_run_and_its_transcript(world: World) -> None:
    driven = await a_queued_run(world.store)
    begun = await world.store.begin(driven.run_id, 1, a_claim("worker-1", longest_seconds=90))
    assert isinstance(begun, Begun)
    assert (begun.run.state, begun.run.fence, begun.run.attempts) == (State.IN_TURN, 1, 1)
    assert (begun.run.owner, begun.run.claim_until_ms) == ("worker-1", world.clock.now_ms + 90_000)
    assert begun.fragments == (QUESTION,)
    assert begun.run == await driven.look()


async def test_a_duplicate_delivery_finds_the_claim_taken(world: World) -> None:
    driven = await a_queued_run(world.store)
    begun = await driven.begin()
    assert await world.store.begin(driven.run_id, 1, a_claim("worker-2")) is NotBegun.BUSY
    assert await driven.look() == begun.run


async def test_a_claim_whose_reply_was_lost_is_answered_the_same_again(world: World) -> None:
    driven = await a_queued_run(world.store)
    claim = a_claim()
    first = await driven.begin(claim)
    assert await world.store.begin(driven.run_id, 1, claim) == first


async def test_a_message_for_another_turn_is_stale(world: World) -> None:
    driven = await a_queued_run(world.store)
    assert await world.store.begin(driven.run_id, 2, a_claim()) is NotBegun.STALE
    await driven.bring_to(State.TURN_DUE)
    assert await world.store.begin(driven.run_id, 1, a_claim()) is NotBegun.STALE


@pytest.mark.parametrize("state", sorted({State.IN_TOOLS, *AWAITS_PERSON, State.JOINING, *TERMINAL}))
async def test_no_turn_begins_in_another_phase(world: World, state: State) -> None:
    driven = await a_queued_run(world.store)
    await driven.bring_to(state)
    turn = (await driven.look()).turn
    assert await world.store.begin(driven.run_id, turn, a_claim()) is NotBegun.STALE


async def test_a_run_on_hold_begins_when_its_moment_has_come_and_not_before(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.bring_to(State.ON_HOLD)
    await world.let_pass(9.999)
    assert await world.store.begin(driven.run_id, 1, a_claim()) is NotBegun.HELD
    await world.let_pass(0.001)
    begun = await driven.begin()
    assert (begun.run.state, begun.run.attempts) == (State.IN_TURN, 2)


async def test_an_unknown_run_is_missing_everywhere(world: World) -> None:
    nobody = TurnClaim(run_id=NOBODY, turn=1, fence=0)
    store = world.store
    assert await store.begin(NOBODY, 1, a_claim()) is NotBegun.MISSING
    assert await store.begin_call(NOBODY, 1, CallId("c1"), a_claim()) is NotBegun.MISSING
    assert await store.cancel(NOBODY) is Cancelled.MISSING
    assert await store.go_on(nobody, A_WRITE, advance=True) is Written.LOST
    assert await store.hold(nobody, A_WRITE, seconds=1, reason="busy") is Written.LOST
    assert await store.open_calls(nobody, A_WRITE, [a_call("c1")]) is Written.LOST
    assert await store.finish(nobody, A_WRITE, ANSWERED) is Written.LOST
    assert await store.recover(nobody, A_WRITE) is Written.LOST
    assert await store.join(nobody, JOINED) is Written.LOST
    await store.look_again(nobody, seconds=0)
    assert await store.send_again(nobody, seconds=0, sent_ms=0) is Written.LOST
    assert await store.results(NOBODY, 1) is None
    assert await store.examine([NOBODY]) == [None]
    assert await store.runs([NOBODY]) == [None]
    assert (await store.transcript(NOBODY), await store.ledger(NOBODY)) == ((), ())
    assert await store.open_call_states(NOBODY) == ()
    assert await store.due(limit=10) == []
    driven = Driven(store, NOBODY)
    held = await _held_call(await a_queued_run(store))
    stored = await driven.finish_call(replace(held, run_id=NOBODY))
    assert stored == CallStored(written=CallWritten.LOST)
    assert await store.recover_call(replace(held, run_id=NOBODY)) is Written.LOST


async def test_of_many_claims_at_once_one_is_held(world: World) -> None:
    driven = await a_queued_run(world.store)
    answers = await asyncio.gather(*(world.store.begin(driven.run_id, 1, a_claim(f"w{n}")) for n in range(20)))
    assert sorted(type(answer).__name__ for answer in answers) == ["Begun", *["NotBegun"] * 19]
    assert {answer for answer in answers if isinstance(answer, NotBegun)} == {NotBegun.BUSY}


# The end of an attempt -----------------------------------------------------------------------------------------------


async def test_going_on_gives_the_claim_back_and_makes_the_next_turn_due(world: World) -> None:
    driven = await a_queued_run(world.store)
    begun = await driven.begin()
    await world.let_pass(3)
    write = replace(A_WRITE, append=(asking("c1"),), context_tokens=163, streaks=Streaks(pauses=1))
    assert await world.store.go_on(driven.held, write, advance=True) is Written.WRITTEN
    assert await driven.look() == replace(
        begun.run,
        state=State.TURN_DUE,
        turn=2,
        owner="",
        claim_until_ms=0,
        context_tokens=163,
        spent=SPENT,
        streaks=Streaks(pauses=1),
        sent_ms=world.clock.now_ms,
    )
    assert await world.store.transcript(driven.run_id) == (QUESTION, asking("c1"))
    assert await world.store.ledger(driven.run_id) == write.ledger


async def test_the_same_turn_is_due_again_when_nothing_was_answered(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.begin()
    await world.store.go_on(driven.held, TurnWrite(context_tokens=50), advance=False)
    begun = await driven.begin()
    await world.store.go_on(driven.held, TurnWrite(), advance=False)
    run = await driven.look()
    assert (run.state, run.turn, run.attempts, begun.run.fence) == (State.TURN_DUE, 1, 2, 2)
    assert run.context_tokens == 50, "a write without context_tokens leaves what was known"


async def test_what_is_cleared_stays_so_until_the_next_compaction(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.begin()
    await world.store.hold(driven.held, TurnWrite(cleared=3, context_tokens=50), seconds=1, reason="busy")
    await world.let_pass(1)
    assert (await driven.begin()).run.cleared == 3
    await world.store.go_on(driven.held, TurnWrite(), advance=True)
    begun = await driven.begin()
    assert (begun.run.cleared, begun.run.context_tokens) == (3, 50)
    assert begun.fragments == (QUESTION,), "the transcript itself is whole"


async def test_a_hold_waits_for_its_moment_without_an_owner(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.begin()
    write = TurnWrite(streaks=Streaks(throttles=1))
    held = await world.store.hold(driven.held, write, seconds=2.5, reason="529 overloaded", timed=True)
    assert held is Written.WRITTEN
    run = await driven.look()
    until_ms = world.clock.now_ms + 2_500
    assert (run.state, run.turn, run.owner, run.claim_until_ms) == (State.ON_HOLD, 1, "", 0)
    assert (run.hold_until_ms, run.hold_reason, run.sent_ms) == (until_ms, "529 overloaded", until_ms)
    assert run.streaks == Streaks(throttles=1)


@pytest.mark.parametrize("timed", [True, False])
async def test_a_hold_is_looked_at_in_time_and_later_if_its_message_is_sent_anyway(world: World, timed: bool) -> None:
    driven = await a_queued_run(world.store)
    await driven.begin()
    await world.store.hold(driven.held, A_WRITE, seconds=2.5, reason="busy", timed=timed)
    assert bool((await driven.look()).sent_ms) is timed
    await world.let_pass(2.5)
    assert await world.store.due(limit=1) == ([] if timed else [driven.run_id])
    await world.let_pass(30)
    assert await world.store.due(limit=1) == [driven.run_id]


async def test_why_a_run_was_held_is_known_until_its_turn_is_over(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.bring_to(State.ON_HOLD)
    await world.let_pass(10)
    assert (await driven.begin()).run.hold_reason == "busy"
    await world.store.go_on(driven.held, A_WRITE, advance=True)
    run = await driven.look()
    assert (run.hold_until_ms, run.hold_reason) == (0, "")


async def test_calls_that_are_opened_after_a_hold_are_not_held(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.bring_to(State.ON_HOLD)
    await world.let_pass(10)
    await driven.in_tools(a_call("c1"))
    run = await driven.look()
    assert (run.hold_until_ms, run.hold_reason) == (0, "")


async def test_recovery_takes_the_turn_from_a_lost_worker(world: World) -> None:
    driven = await a_queued_run(world.store)
    begun = await driven.begin()
    lost = AttemptLost(turn=1, attempt=1, at_ms=world.clock.now_ms, worker="worker-1")
    write = TurnWrite(ledger=(lost,), streaks=begun.run.streaks)
    assert await world.store.recover(driven.held, write) is Written.WRITTEN
    run = await driven.look()
    assert (run.state, run.turn, run.fence, run.owner) == (State.TURN_DUE, 1, 2, "")
    assert (run.attempts, run.lost_attempts) == (1, 1)
    assert await world.store.ledger(driven.run_id) == (lost,)


@pytest.mark.parametrize("state", sorted(ENDS))
async def test_the_end_of_a_run_is_kept_with_its_reason(world: World, state: State) -> None:
    driven = await a_queued_run(world.store)
    await driven.begin()
    await world.let_pass(4)
    outcome = ENDS[state]
    ended = Ended(turn=1, at_ms=world.clock.now_ms, reason=outcome.reason, message=outcome.message)
    write = replace(A_WRITE, append=(asking("c1"),), ledger=(model_called(), ended))
    assert await world.store.finish(driven.held, write, outcome) is Written.WRITTEN
    record = await world.store.run(driven.run_id)
    assert record is not None
    assert (record.run.state, record.reason, record.message) == (state, outcome.reason, outcome.message)
    assert (record.error_class, record.answer) == (outcome.blames or "", outcome.answer)
    assert (record.ended_ms, record.run.owner, record.run.claim_until_ms) == (world.clock.now_ms, "", 0)
    assert await world.store.ledger(driven.run_id) == write.ledger
    assert await world.store.transcript(driven.run_id) == (QUESTION, asking("c1"))
    assert record.run.spent == SPENT


async def test_an_empty_answer_is_an_answer(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.begin()
    await world.store.finish(driven.held, TurnWrite(), replace(ANSWERED, answer=""))
    record = await world.store.run(driven.run_id)
    assert record is not None
    assert record.answer == ""


@pytest.mark.parametrize("state", [State.QUEUED, State.TURN_DUE, State.ON_HOLD, *sorted(AWAITS_PERSON)])
async def test_the_sweeper_can_end_a_run_that_nobody_holds(world: World, state: State) -> None:
    driven = await a_queued_run(world.store)
    await driven.bring_to(state)
    assert await world.store.finish(await driven.now_held(), TurnWrite(), ENDS[State.STOPPED]) is Written.WRITTEN
    run = await driven.look()
    assert (run.state, run.hold_until_ms, run.hold_reason) == (State.STOPPED, 0, "")


# Fencing -------------------------------------------------------------------------------------------------------------


async def _every_write(world: World, held: TurnClaim) -> list[Written]:
    store = world.store
    return [
        await store.open_calls(held, A_WRITE, [a_call("c9")]),
        await store.go_on(held, A_WRITE, advance=True),
        await store.hold(held, A_WRITE, seconds=1, reason="busy"),
        await store.recover(held, A_WRITE),
        await store.join(held, JOINED),
        await store.finish(held, A_WRITE, ANSWERED),
        await _send_again(world, held),
    ]


async def _send_again(world: World, held: TurnClaim) -> Written:
    """As somebody does who has just examined the run."""
    record = await world.store.run(held.run_id)
    assert record is not None
    return await world.store.send_again(held, seconds=60, sent_ms=record.run.sent_ms)


async def _everything(world: World, run: RunId) -> object:
    store = world.store
    return (
        await store.run(run),
        await store.transcript(run),
        await store.ledger(run),
        await store.counts(TAG),
        await store.open_call_states(run),
        await store.due(limit=10),
    )


async def test_a_lost_claim_can_change_nothing(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.begin()
    lost = driven.held
    await world.store.recover(lost, TurnWrite())
    before = await _everything(world, driven.run_id)
    assert set(await _every_write(world, lost)) == {Written.LOST}
    await world.store.look_again(lost, seconds=0)
    assert await _everything(world, driven.run_id) == before
    await driven.begin()
    before = await _everything(world, driven.run_id)
    assert set(await _every_write(world, lost)) == {Written.LOST}
    assert await _everything(world, driven.run_id) == before


async def test_a_claim_that_was_given_back_for_the_next_turn_can_change_nothing(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.begin()
    await world.store.go_on(driven.held, A_WRITE, advance=True)
    before = await _everything(world, driven.run_id)
    assert set(await _every_write(world, driven.held)) == {Written.LOST}
    assert await _everything(world, driven.run_id) == before


@pytest.mark.parametrize("state", sorted(TERMINAL))
async def test_nothing_changes_a_run_that_is_over(world: World, state: State) -> None:
    driven = await a_queued_run(world.store)
    await driven.bring_to(state)
    before = await _everything(world, driven.run_id)
    assert set(await _every_write(world, await driven.now_held())) == {Written.LOST}
    assert await world.store.cancel(driven.run_id) is Cancelled.ENDED
    await world.store.look_again(await driven.now_held(), seconds=0)
    assert await _everything(world, driven.run_id) == before


# Opening calls -------------------------------------------------------------------------------------------------------


async def test_calls_are_on_record_in_id_order_before_any_of_them_runs(world: World) -> None:
    driven = await a_queued_run(world.store)
    calls = [a_call("z", Effect.ONCE), a_call("a"), a_call("m", Effect.IDEMPOTENT, INLINE)]
    await driven.in_tools(*calls)
    states = await world.store.open_call_states(driven.run_id)
    assert [state.call for state in states] == calls
    assert {(state.attempt, state.owner, state.claim_until_ms, state.has_result) for state in states} == {
        (0, "", 0, False)
    }
    assert await world.store.transcript(driven.run_id) == (QUESTION, asking("z", "a", "m"))
    assert (await driven.look()).state is State.IN_TOOLS


async def test_inline_calls_run_under_the_claim_of_their_turn(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1", placement=INLINE), a_call("c2", placement=INLINE))
    run = await driven.look()
    assert (run.owner, run.claim_until_ms) == ("worker-1", world.clock.now_ms + 120_000)


async def test_a_turn_whose_calls_all_run_elsewhere_gives_its_claim_back(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1"), a_call("c2"))
    run = await driven.look()
    assert (run.owner, run.claim_until_ms) == ("", 0)


async def test_an_answer_that_uses_a_known_call_id_changes_nothing(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1"), a_call("c2"))
    await driven.run_call("c1")
    await driven.run_call("c2")
    await world.store.join(await driven.now_held(), JOINED)
    await driven.begin()
    before = await _everything(world, driven.run_id)
    assert await driven.open_calls(a_call("c3"), a_call("c2")) is Written.DUPLICATE_CALL
    assert await _everything(world, driven.run_id) == before
    assert await driven.open_calls(a_call("c3"), a_call("c4")) is Written.WRITTEN


# Calls ---------------------------------------------------------------------------------------------------------------


async def _held_call(driven: Driven) -> CallClaim:
    await driven.in_tools(a_call("c1"), a_call("c2"))
    return await driven.begin_call("c1")


async def test_a_call_is_claimed_before_it_runs(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1"), a_call("c2"))
    claim = a_claim("worker-2", longest_seconds=60)
    begun = await world.store.begin_call(driven.run_id, 1, CallId("c1"), claim)
    assert begun == CallBegun(call=a_call("c1"), attempt=1, agent=BATCH.agent, label="oncall")
    claimed, other = await world.store.open_call_states(driven.run_id)
    assert (claimed.attempt, claimed.owner, claimed.claim_until_ms) == (1, "worker-2", world.clock.now_ms + 60_000)
    assert (other.attempt, other.owner) == (0, "")


async def test_a_call_whose_claim_is_held_is_busy_and_the_same_claim_is_answered_again(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1"), a_call("c2"))
    claim = a_claim("worker-2")
    first = await world.store.begin_call(driven.run_id, 1, CallId("c1"), claim)
    assert await world.store.begin_call(driven.run_id, 1, CallId("c1"), a_claim("worker-3")) is NotBegun.BUSY
    assert await world.store.begin_call(driven.run_id, 1, CallId("c1"), claim) == first


async def test_a_call_that_has_its_result_is_done(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1"), a_call("c2"))
    await driven.run_call("c1")
    assert await world.store.begin_call(driven.run_id, 1, CallId("c1"), a_claim()) is NotBegun.DONE


async def test_a_call_of_another_turn_or_unknown_to_this_one_is_stale(world: World) -> None:
    driven = await a_queued_run(world.store)
    assert await world.store.begin_call(driven.run_id, 1, CallId("c1"), a_claim()) is NotBegun.STALE
    await driven.in_tools(a_call("c1"), a_call("c2"))
    assert await world.store.begin_call(driven.run_id, 2, CallId("c1"), a_claim()) is NotBegun.STALE
    assert await world.store.begin_call(driven.run_id, 1, CallId("c9"), a_claim()) is NotBegun.STALE


async def test_once_calls_run_one_after_another_in_id_order_beside_the_parallel_ones(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("z", Effect.ONCE), a_call("p"), a_call("a", Effect.ONCE), a_call("m", Effect.ONCE))
    assert await world.store.begin_call(driven.run_id, 1, CallId("a"), a_claim()) is NotBegun.WAITS
    parallel = await driven.begin_call("p")
    first = await driven.begin_call("z")
    assert await world.store.begin_call(driven.run_id, 1, CallId("a"), a_claim()) is NotBegun.WAITS
    assert await driven.finish_call(first) == CallStored(written=CallWritten.STORED, next_once=CallId("a"))
    assert await world.store.begin_call(driven.run_id, 1, CallId("m"), a_claim()) is NotBegun.WAITS
    assert await driven.finish_call(parallel) == CallStored(written=CallWritten.STORED)
    assert (await driven.run_call("a")).next_once == "m"
    assert await driven.run_call("m") == CallStored(written=CallWritten.LAST)


async def test_the_last_result_makes_the_join_due(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1"), a_call("c2", placement=INLINE))
    await world.let_pass(2)
    assert (await driven.run_call("c2")).written is CallWritten.STORED
    assert (await driven.look()).state is State.IN_TOOLS
    assert (await driven.run_call("c1")).written is CallWritten.LAST
    run = await driven.look()
    assert (run.state, run.owner, run.sent_ms) == (State.JOINING, "", world.clock.now_ms)
    assert run.spent == SPENT + Spent(working_ms=10, tool_calls=2)
    assert (await world.store.ledger(driven.run_id))[1:] == (call_ran("c2"), call_ran("c1"))


async def test_of_many_results_at_once_one_is_the_last(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(*(a_call(f"c{n}") for n in range(12)))
    held = [await driven.begin_call(f"c{n}") for n in range(12)]
    answers = await asyncio.gather(*(driven.finish_call(call) for call in reversed(held)))
    assert sum(answer.written is CallWritten.LAST for answer in answers) == 1
    results = await world.store.results(driven.run_id, 1)
    assert results is not None
    assert results.calls == tuple(f"c{n}" for n in range(12))
    assert results.asked == asking(*results.calls)


async def test_the_first_result_of_a_call_wins(world: World) -> None:
    driven = await a_queued_run(world.store)
    held = await _held_call(driven)
    await driven.finish_call(held)
    before = await _everything(world, driven.run_id)
    again = await world.store.finish_call(held, a_result("c1", "Grace", whole="Grace Hopper"))
    assert again.written is CallWritten.LOST
    assert await _everything(world, driven.run_id) == before
    await driven.run_call("c2")
    results = await world.store.results(driven.run_id, 1)
    assert results is not None
    assert results.blocks[CallId("c1")] == a_block("c1", "Ada")


async def test_a_result_without_a_claim_or_for_another_turn_is_lost(world: World) -> None:
    driven = await a_queued_run(world.store)
    held = await _held_call(driven)
    for other in (
        replace(held, call_id=CallId("c2")),
        replace(held, call_id=CallId("c9")),
        replace(held, turn=2),
        replace(held, attempt=2),
        replace(held, attempt=0),
    ):
        assert (await driven.finish_call(other)).written is CallWritten.LOST
    assert (await driven.finish_call(held)).written is CallWritten.STORED


async def test_a_recovered_call_is_taken_again_and_its_late_result_is_lost(world: World) -> None:
    driven = await a_queued_run(world.store)
    late = await _held_call(driven)
    assert await world.store.recover_call(replace(late, attempt=2)) is Written.LOST
    assert await world.store.recover_call(late) is Written.WRITTEN
    state = (await world.store.open_call_states(driven.run_id))[0]
    assert (state.attempt, state.owner, state.claim_until_ms) == (1, "", 0)
    assert (await driven.finish_call(late)).written is CallWritten.LOST
    again = await driven.begin_call("c1")
    assert again.attempt == 2
    assert (await driven.finish_call(late)).written is CallWritten.LOST
    assert await world.store.recover_call(late) is Written.LOST
    assert (await driven.finish_call(again)).written is CallWritten.STORED
    assert await world.store.recover_call(again) is Written.LOST


# Calls in doubt ------------------------------------------------------------------------------------------------------


async def _in_doubt(world: World, *others: OpenCall, asked: Asked = Asked.PERSON) -> tuple[Driven, CallClaim]:
    """A run with a `once` call `c1` in doubt, before others of its turn."""
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1", Effect.ONCE), *others)
    return driven, await driven.doubt("c1", asked)


async def test_a_run_awaits_a_decision_about_a_call_of_which_nobody_knows_what_it_did(world: World) -> None:
    driven, _ = await _in_doubt(world)
    run = await driven.look()
    assert (run.state, run.owner) == (State.AWAITING_DECISION, "")
    assert (await world.store.ledger(driven.run_id))[-1] == in_doubt("c1")
    state = (await world.store.open_call_states(driven.run_id))[0]
    assert (state.owner, state.attempt, state.has_result) == ("", 1, False)
    assert state.doubt == Doubt(asked=Asked.PERSON, worker="worker-2", began_ms=world.clock.now_ms)


async def test_a_call_in_doubt_is_not_begun_and_its_late_result_is_lost(world: World) -> None:
    driven, late = await _in_doubt(world, a_call("p"))
    before = await _everything(world, driven.run_id)
    assert await world.store.begin_call(driven.run_id, 1, CallId("c1"), a_claim()) is NotBegun.IN_DOUBT
    assert (await driven.finish_call(late)).written is CallWritten.LOST
    assert await world.store.doubt(late, Asked.PERSON, in_doubt("c1")) is Written.LOST
    assert await world.store.recover_call(late) is Written.LOST
    assert await world.store.rule_out(late, ruled_out("c1")) is Written.LOST
    assert await _everything(world, driven.run_id) == before


async def test_other_calls_run_to_their_end_before_a_decision_is_awaited_and_once_calls_wait(world: World) -> None:
    driven, _ = await _in_doubt(world, a_call("p"), a_call("q"), a_call("c2", Effect.ONCE))
    running = await driven.begin_call("p")
    assert await world.store.begin_call(driven.run_id, 1, CallId("c2"), a_claim()) is NotBegun.WAITS
    assert await driven.run_call("q") == CallStored(written=CallWritten.STORED)
    assert (await driven.look()).state is State.IN_TOOLS
    assert await driven.finish_call(running) == CallStored(written=CallWritten.STORED)
    assert (await driven.look()).state is State.AWAITING_DECISION
    assert len(await world.store.open_call_states(driven.run_id)) == 4


async def test_a_call_that_may_run_again_keeps_its_run_from_awaiting_a_decision(world: World) -> None:
    driven, _ = await _in_doubt(world, a_call("p"))
    await world.store.recover_call(await driven.begin_call("p"))
    assert (await driven.look()).state is State.IN_TOOLS
    await driven.run_call("p")
    assert (await driven.look()).state is State.AWAITING_DECISION


async def test_a_call_that_has_not_taken_effect_may_run(world: World) -> None:
    driven, _ = await _in_doubt(world, a_call("c2", Effect.ONCE))
    await world.let_pass(60)
    assert await world.store.resolve(driven.run_id, CallId("c1"), ruled_out("c1")) is Resolved.RESOLVED
    assert (await driven.look()).state is State.IN_TOOLS
    assert await world.store.due(limit=10) == [driven.run_id]
    assert (await world.store.ledger(driven.run_id))[-1] == ruled_out("c1")
    again = await driven.begin_call("c1")
    assert again.attempt == 2
    assert await driven.finish_call(again) == CallStored(written=CallWritten.STORED, next_once=CallId("c2"))


async def test_a_call_that_has_taken_effect_gets_its_result_from_whoever_knows_it(world: World) -> None:
    driven, _ = await _in_doubt(world, a_call("c2", Effect.ONCE))
    known = replace(a_result("c1", "charged", whole="charged 5"), entry=replace(call_ran("c1"), source=Source.PERSON))
    assert await world.store.resolve(driven.run_id, CallId("c1"), known) is Resolved.RESOLVED
    assert (await world.store.ledger(driven.run_id))[-1] == known.entry
    assert await world.store.whole_result(driven.run_id, CallId("c1")) == "charged 5"
    assert await world.store.begin_call(driven.run_id, 1, CallId("c1"), a_claim()) is NotBegun.DONE
    assert await driven.run_call("c2") == CallStored(written=CallWritten.LAST)
    results = await world.store.results(driven.run_id, 1)
    assert results is not None
    assert results.blocks[CallId("c1")] == known.block


async def test_a_decision_that_brings_the_last_result_makes_the_join_due(world: World) -> None:
    driven, _ = await _in_doubt(world, a_call("p"))
    await driven.run_call("p")
    assert await world.store.resolve(driven.run_id, CallId("c1"), a_result("c1")) is Resolved.RESOLVED
    assert (await driven.look()).state is State.JOINING
    assert await world.store.due(limit=10) == [driven.run_id]


async def test_a_sweeper_that_saw_a_run_wait_cannot_put_off_what_is_due_since_the_decision(world: World) -> None:
    driven, _ = await _in_doubt(world)
    seen = await driven.now_held()
    await world.store.resolve(driven.run_id, CallId("c1"), ruled_out("c1"))
    await world.store.look_again(seen, seconds=900)
    assert await world.store.due(limit=10) == [driven.run_id]


async def test_a_call_can_be_decided_while_others_of_its_turn_still_run(world: World) -> None:
    driven, _ = await _in_doubt(world, a_call("p"))
    running = await driven.begin_call("p")
    assert await world.store.resolve(driven.run_id, CallId("c1"), a_result("c1")) is Resolved.RESOLVED
    assert await driven.finish_call(running) == CallStored(written=CallWritten.LAST)


async def test_there_is_nothing_to_decide_about_a_call_in_no_doubt(world: World) -> None:
    driven, _ = await _in_doubt(world, a_call("p"))
    store = world.store
    for call in ("p", "unknown"):
        assert await store.resolve(driven.run_id, CallId(call), ruled_out(call)) is Resolved.NOT_IN_DOUBT
    assert await store.resolve(NOBODY, CallId("c1"), ruled_out("c1")) is Resolved.MISSING
    await store.resolve(driven.run_id, CallId("c1"), a_result("c1"))
    for entry in (ruled_out("c1"), a_result("c1", "another")):
        assert await store.resolve(driven.run_id, CallId("c1"), entry) is Resolved.NOT_IN_DOUBT
    await store.cancel(driven.run_id)
    assert await store.resolve(driven.run_id, CallId("c1"), ruled_out("c1")) is Resolved.NOT_IN_DOUBT


async def test_a_tool_is_asked_under_a_claim_that_says_so(world: World) -> None:
    driven, _ = await _in_doubt(world, asked=Asked.TOOL)
    assert (await driven.look()).state is State.IN_TOOLS
    began_ms = world.clock.now_ms
    await world.let_pass(31)
    begun = await world.store.begin_call(driven.run_id, 1, CallId("c1"), a_claim("worker-3", nonce="n"))
    doubt = Doubt(asked=Asked.TOOL, worker="worker-2", began_ms=began_ms)
    assert begun == CallBegun(call=a_call("c1", Effect.ONCE), attempt=2, agent=BATCH.agent, label="oncall", doubt=doubt)
    assert await world.store.begin_call(driven.run_id, 1, CallId("c1"), a_claim("worker-3", nonce="n")) == begun
    nothing_to_say = await world.store.resolve(driven.run_id, CallId("c1"), ruled_out("c1"))
    assert nothing_to_say is Resolved.NOT_IN_DOUBT, "the tool is asked first"


async def test_what_the_tool_says_its_call_came_to_is_its_result(world: World) -> None:
    driven, _ = await _in_doubt(world, asked=Asked.TOOL)
    assert await driven.run_call("c1") == CallStored(written=CallWritten.LAST)


async def test_a_call_that_its_tool_rules_out_may_run(world: World) -> None:
    driven, _ = await _in_doubt(world, asked=Asked.TOOL)
    asked = await driven.begin_call("c1")
    assert await world.store.rule_out(asked, ruled_out("c1", Source.RECONCILE)) is Written.WRITTEN
    assert await world.store.rule_out(asked, ruled_out("c1", Source.RECONCILE)) is Written.LOST
    begun = await world.store.begin_call(driven.run_id, 1, CallId("c1"), a_claim())
    assert begun == CallBegun(call=a_call("c1", Effect.ONCE), attempt=3, agent=BATCH.agent, label="oncall")


async def test_a_tool_that_cannot_say_leaves_it_to_a_person_and_the_lost_try_is_remembered(world: World) -> None:
    driven, _ = await _in_doubt(world, asked=Asked.TOOL)
    began_ms = world.clock.now_ms
    await world.let_pass(31)
    asked = await driven.begin_call("c1", a_claim("worker-3"))
    assert await world.store.doubt(asked, Asked.PERSON, in_doubt("c1")) is Written.WRITTEN
    assert (await driven.look()).state is State.AWAITING_DECISION
    state = (await world.store.open_call_states(driven.run_id))[0]
    assert state.doubt == Doubt(asked=Asked.PERSON, worker="worker-2", began_ms=began_ms)


async def test_a_lost_question_to_the_tool_is_asked_again(world: World) -> None:
    driven, _ = await _in_doubt(world, asked=Asked.TOOL)
    assert await world.store.recover_call(await driven.begin_call("c1")) is Written.WRITTEN
    begun = await world.store.begin_call(driven.run_id, 1, CallId("c1"), a_claim())
    assert isinstance(begun, CallBegun)
    assert begun.doubt is not None


async def test_only_a_call_in_doubt_can_be_ruled_out(world: World) -> None:
    driven = await a_queued_run(world.store)
    held = await _held_call(driven)
    assert await world.store.rule_out(held, ruled_out("c1")) is Written.LOST


async def test_a_cancelled_run_does_not_await_a_decision(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1", Effect.ONCE))
    held = await driven.begin_call("c1")
    await world.store.cancel(driven.run_id)
    assert await world.store.doubt(held, Asked.PERSON, in_doubt("c1")) is Written.WRITTEN
    assert (await driven.look()).state is State.CANCELLED
    assert (await world.store.ledger(driven.run_id))[-1] == in_doubt("c1")


# Calls to approve ----------------------------------------------------------------------------------------------------


async def _to_approve(world: World, *others: OpenCall) -> Driven:
    """A run whose call `c1` wants an approval, before others of its turn."""
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call_to_approve("c1"), *others)
    return driven


async def _approve(driven: Driven, call_id: str, *, told: bool = False, approved: bool = False) -> Approved:
    entry, result = approval(call_id, approved=approved), a_result(call_id, "denied") if told else None
    return await driven.store.approve(driven.run_id, CallId(call_id), entry, result)


async def test_a_run_awaits_an_approval_from_the_moment_its_calls_are_on_record(world: World) -> None:
    driven = await _to_approve(world)
    assert ((await driven.look()).state, (await driven.look()).owner) == (State.AWAITING_APPROVAL, "")
    assert await counted(world) == {State.AWAITING_APPROVAL: 1}
    assert await world.store.due(limit=10) == [driven.run_id]
    state = (await world.store.open_call_states(driven.run_id))[0]
    assert (state.call, state.permission, state.owner) == (a_call_to_approve("c1"), Permission.WANTED, "")
    assert await world.store.begin_call(driven.run_id, 1, CallId("c1"), a_claim()) is NotBegun.STALE


async def test_other_calls_run_to_their_end_before_an_approval_is_awaited(world: World) -> None:
    driven = await _to_approve(world, a_call("p"), a_call("c2", Effect.ONCE))
    assert (await driven.look()).state is State.IN_TOOLS
    assert await world.store.begin_call(driven.run_id, 1, CallId("c1"), a_claim()) is NotBegun.NOT_APPROVED
    assert await world.store.begin_call(driven.run_id, 1, CallId("c2"), a_claim()) is NotBegun.WAITS
    assert await driven.run_call("p") == CallStored(written=CallWritten.STORED)
    assert (await driven.look()).state is State.AWAITING_APPROVAL


async def test_a_call_that_is_approved_may_run_and_the_run_is_due_at_once(world: World) -> None:
    driven = await _to_approve(world)
    seen = await driven.now_held()
    assert await _approve(driven, "c1", approved=True) is Approved.TAKEN
    run = await driven.look()
    assert (run.state, run.sent_ms) == (State.IN_TOOLS, 0)
    await world.store.look_again(seen, seconds=900)
    assert await world.store.due(limit=10) == [driven.run_id]
    assert (await world.store.ledger(driven.run_id))[-1] == approval("c1")
    assert await driven.run_call("c1") == CallStored(written=CallWritten.LAST)


async def test_a_once_call_is_not_named_as_the_next_before_it_is_approved(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1", Effect.ONCE), a_call_to_approve("c2"))
    assert await driven.run_call("c1") == CallStored(written=CallWritten.STORED)
    assert (await driven.look()).state is State.AWAITING_APPROVAL


async def test_an_approved_call_behind_one_that_waits_does_not_let_the_run_go_on(world: World) -> None:
    driven = await _to_approve(world, a_call_to_approve("c2"))
    assert await _approve(driven, "c2", approved=True) is Approved.TAKEN
    assert (await driven.look()).state is State.AWAITING_APPROVAL
    assert await _approve(driven, "c1", approved=True) is Approved.TAKEN
    assert await driven.run_call("c1") == CallStored(written=CallWritten.STORED, next_once=CallId("c2"))


async def test_a_denial_that_the_model_is_told_is_the_result_of_its_call(world: World) -> None:
    driven = await _to_approve(world)
    assert await _approve(driven, "c1", told=True) is Approved.TAKEN
    assert (await driven.look()).state is State.JOINING
    assert await world.store.due(limit=10) == [driven.run_id]
    assert (await world.store.ledger(driven.run_id))[-2:] == (approval("c1", approved=False), call_ran("c1"))
    results = await world.store.results(driven.run_id, 1)
    assert results is not None
    assert results.blocks == {CallId("c1"): a_block("c1", "denied")}


async def test_a_call_that_is_denied_for_good_never_begins_and_is_told_so_after_the_end(world: World) -> None:
    driven = await _to_approve(world, a_call("p"))
    assert await _approve(driven, "c1") is Approved.TAKEN
    assert await world.store.begin_call(driven.run_id, 1, CallId("c1"), a_claim()) is NotBegun.NOT_APPROVED
    await driven.run_call("p")
    assert (await driven.look()).state is State.AWAITING_APPROVAL
    await world.store.finish(await driven.now_held(), TurnWrite(), ENDS[State.STOPPED])
    remains = await world.store.remains(driven.run_id)
    assert remains is not None
    assert [state.permission for state in remains.calls] == [Permission.DENIED, Permission.GIVEN]


async def test_a_decision_about_a_doubt_comes_first_and_leaves_the_approval_to_be_awaited(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1", Effect.ONCE), a_call_to_approve("c2", Effect.READS))
    await driven.doubt("c1")
    assert (await driven.look()).state is State.AWAITING_DECISION
    assert await world.store.resolve(driven.run_id, CallId("c1"), a_result("c1")) is Resolved.RESOLVED
    assert (await driven.look()).state is State.AWAITING_APPROVAL


async def test_nobody_is_asked_twice_about_a_call_or_about_one_that_wants_no_approval(world: World) -> None:
    driven = await _to_approve(world, a_call("p"))
    for call in ("p", "unknown"):
        assert await _approve(driven, call, approved=True) is Approved.NOT_WANTED
    assert await world.store.approve(NOBODY, CallId("c1"), approval("c1"), None) is Approved.MISSING
    await _approve(driven, "c1", approved=True)
    for word in ({"approved": True}, {"told": True}, {}):
        assert await _approve(driven, "c1", **word) is Approved.NOT_WANTED


async def test_a_run_that_awaits_an_approval_is_cancelled_at_once(world: World) -> None:
    driven = await _to_approve(world)
    assert await world.store.cancel(driven.run_id) is Cancelled.CANCELLED
    assert await _approve(driven, "c1", approved=True) is Approved.NOT_WANTED


# Joining -------------------------------------------------------------------------------------------------------------


async def test_results_are_there_when_all_are_and_in_id_order(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("z"), a_call("a"), a_call("m"))
    await driven.run_call("m")
    await driven.run_call("a")
    assert await world.store.results(driven.run_id, 1) is None
    await driven.run_call("z")
    results = await world.store.results(driven.run_id, 1)
    assert results is not None
    assert results.calls == ("z", "a", "m")
    assert results.blocks == {CallId(call): a_block(call) for call in "zam"}
    assert results.held == await driven.now_held()
    assert await world.store.results(driven.run_id, 2) is None


async def test_a_join_appends_the_results_and_makes_the_next_turn_due(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1"), a_call("c2"))
    await driven.run_call("c2")
    await driven.run_call("c1")
    results = await world.store.results(driven.run_id, 1)
    assert results is not None
    await world.let_pass(1)
    message = results_message(results.calls, results.blocks)
    assert await world.store.join(results.held, message) is Written.WRITTEN
    run = await driven.look()
    assert (run.state, run.turn, run.owner, run.sent_ms) == (State.TURN_DUE, 2, "", world.clock.now_ms)
    assert await world.store.transcript(driven.run_id) == (QUESTION, asking("c1", "c2"), message)
    assert await world.store.open_call_states(driven.run_id) == ()
    assert await world.store.join(results.held, message) is Written.LOST, "a second callback finds the run moved"


async def test_a_turn_of_inline_calls_joins_without_further_ado(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1", placement=INLINE), a_call("c2", placement=INLINE))
    results = [a_result("c1"), a_result("c2", whole="Ada Lovelace")]
    assert await world.store.join(driven.held, JOINED, results) is Written.WRITTEN
    run = await driven.look()
    assert (run.state, run.turn, run.owner) == (State.TURN_DUE, 2, "")
    assert run.spent == SPENT + Spent(working_ms=10, tool_calls=2)
    assert (await world.store.ledger(driven.run_id))[1:] == (call_ran("c1"), call_ran("c2"))
    assert await world.store.whole_result(driven.run_id, CallId("c2")) == "Ada Lovelace"


async def test_the_whole_of_a_result_is_kept_where_the_model_was_shown_a_part(world: World) -> None:
    driven = await a_queued_run(world.store)
    held = await _held_call(driven)
    await world.store.finish_call(held, a_result("c1", "A…", whole="Ada, Grace, \u2603 and\x00 Edsger"))
    await driven.run_call("c2")
    await world.store.join(await driven.now_held(), JOINED)
    assert await world.store.whole_result(driven.run_id, CallId("c1")) == "Ada, Grace, \u2603 and\x00 Edsger"
    assert await world.store.whole_result(driven.run_id, CallId("c2")) is None
    assert await world.store.whole_result(NOBODY, CallId("c1")) is None


async def test_a_turn_with_open_calls_does_not_join(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1"), a_call("c2", placement=INLINE))
    await driven.run_call("c2")
    before = await _everything(world, driven.run_id)
    assert await world.store.join(driven.held, JOINED, [a_result("c2")]) is Written.LOST
    assert await world.store.join(driven.held, JOINED) is Written.LOST
    assert await _everything(world, driven.run_id) == before


@pytest.mark.parametrize("came_of_it", ["runs", "given back", "result"])
async def test_a_worker_that_lost_its_inline_calls_does_not_join_over_whoever_has_them(
    world: World, came_of_it: str
) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1", placement=INLINE), a_call("c2", placement=INLINE))
    held = await driven.begin_call("c1")
    if came_of_it == "given back":
        await world.store.recover_call(held)
    elif came_of_it == "result":
        await driven.finish_call(held)
    before = await _everything(world, driven.run_id)
    assert await world.store.join(driven.held, JOINED, [a_result("c1"), a_result("c2")]) is Written.LOST
    assert await _everything(world, driven.run_id) == before


# Cancelling ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.QUEUED, State.TURN_DUE, State.ON_HOLD, State.JOINING, *sorted(AWAITS_PERSON)])
async def test_a_run_of_which_nothing_runs_is_cancelled_at_once(world: World, state: State) -> None:
    driven = await a_queued_run(world.store)
    await driven.bring_to(state)
    held = await driven.now_held()
    assert await world.store.cancel(driven.run_id) is Cancelled.CANCELLED
    record = await world.store.run(driven.run_id)
    assert record is not None
    assert (record.run.state, record.reason, record.error_class) == (State.CANCELLED, "cancelled", "cancelled")
    assert (record.answer, record.ended_ms, record.run.hold_until_ms) == (None, world.clock.now_ms, 0)
    assert set(await _every_write(world, held)) == {Written.LOST}
    assert await world.store.cancel(driven.run_id) is Cancelled.ENDED


async def test_a_run_that_is_cancelled_at_once_is_looked_at_once_more(world: World) -> None:
    driven = await a_queued_run(world.store)
    await world.store.let_go(driven.run_id)
    world.clock.pass_seconds(60)
    assert await world.store.due(limit=2) == [driven.run_id], "a run that is not over is not let go"
    await world.store.cancel(driven.run_id)
    await world.store.look_again(await driven.now_held(), seconds=900)
    assert await world.store.due(limit=2) == [driven.run_id]
    for _ in range(2):
        await world.store.let_go(driven.run_id)
        assert await world.store.due(limit=2) == []


async def test_calls_that_nobody_has_begun_are_cancelled_with_their_run(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1"), a_call("c2"))
    await driven.run_call("c1")
    assert await world.store.cancel(driven.run_id) is Cancelled.CANCELLED
    assert await world.store.begin_call(driven.run_id, 1, CallId("c2"), a_claim()) is NotBegun.STALE


async def test_a_cancelled_turn_ends_with_the_write_of_its_worker_which_still_counts(world: World) -> None:
    for row, write_name in enumerate(("go_on", "hold", "open_calls", "recover")):
        driven = await a_queued_run(world.store, f"row-{row}")
        await driven.begin()
        assert await world.store.cancel(driven.run_id) is Cancelled.REQUESTED
        assert await world.store.cancel(driven.run_id) is Cancelled.REQUESTED
        assert (await driven.look()).cancel_requested
        write = replace(A_WRITE, append=(asking("c1"),))
        match write_name:
            case "go_on":
                written = await world.store.go_on(driven.held, write, advance=True)
            case "hold":
                written = await world.store.hold(driven.held, write, seconds=5, reason="busy")
            case "open_calls":
                written = await world.store.open_calls(driven.held, write, [a_call("c1")])
            case _:
                written = await world.store.recover(driven.held, write)
        assert written is Written.WRITTEN
        record = await world.store.run(driven.run_id)
        assert record is not None
        assert (record.run.state, record.reason, record.run.turn) == (State.CANCELLED, "cancelled", 1), write_name
        assert record.run.spent == SPENT
        assert await world.store.ledger(driven.run_id) == write.ledger
    await world.let_pass(3600)
    assert await world.store.due(limit=10) == []


async def test_a_run_that_finishes_before_it_is_cancelled_keeps_its_answer(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.begin()
    await world.store.cancel(driven.run_id)
    await world.store.finish(driven.held, A_WRITE, ANSWERED)
    record = await world.store.run(driven.run_id)
    assert record is not None
    assert (record.run.state, record.answer) == (State.SUCCEEDED, "Ada")


async def test_a_cancelled_run_starts_no_call_and_ends_with_the_last_that_runs(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1"), a_call("c2"), a_call("c3"))
    claim = a_claim("worker-2")
    first, second = await driven.begin_call("c1", claim), await driven.begin_call("c2")
    assert await world.store.cancel(driven.run_id) is Cancelled.REQUESTED
    assert await world.store.begin_call(driven.run_id, 1, CallId("c3"), a_claim()) is NotBegun.CANCELLED
    assert isinstance(await world.store.begin_call(driven.run_id, 1, CallId("c1"), claim), CallBegun)
    assert await driven.finish_call(first) == CallStored(written=CallWritten.STORED)
    assert (await driven.look()).state is State.IN_TOOLS
    assert await driven.finish_call(second) == CallStored(written=CallWritten.STORED)
    record = await world.store.run(driven.run_id)
    assert record is not None
    assert (record.run.state, record.reason) == (State.CANCELLED, "cancelled")
    assert record.run.spent.tool_calls == 2


async def test_a_cancelled_run_ends_when_its_last_call_is_recovered(world: World) -> None:
    driven = await a_queued_run(world.store)
    held = await _held_call(driven)
    await world.store.cancel(driven.run_id)
    assert await world.store.recover_call(held) is Written.WRITTEN
    assert (await driven.look()).state is State.CANCELLED


async def test_a_cancelled_turn_of_inline_calls_ends_when_they_are_joined(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1", placement=INLINE))
    assert await world.store.cancel(driven.run_id) is Cancelled.REQUESTED
    assert await world.store.join(driven.held, JOINED, [a_result("c1")]) is Written.WRITTEN
    run = await driven.look()
    assert (run.state, run.spent.tool_calls) == (State.CANCELLED, 1)


async def test_a_mixed_turn_is_cancelled_at_once_while_no_call_of_it_runs(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1", placement=INLINE), a_call("c2"))
    await driven.run_call("c1")
    assert await world.store.cancel(driven.run_id) is Cancelled.CANCELLED


async def test_workers_can_ask_which_of_their_runs_are_to_be_cancelled(world: World) -> None:
    first, second = await a_queued_run(world.store, "a"), await a_queued_run(world.store, "b")
    await first.begin()
    await second.begin()
    await world.store.cancel(second.run_id)
    assert await world.store.cancel_requested([first.run_id, second.run_id, NOBODY]) == [second.run_id]
    assert await world.store.cancel_requested([]) == []


# Sweeping ------------------------------------------------------------------------------------------------------------


async def test_a_queued_run_is_looked_at_when_nobody_has_begun_it_in_time(world: World) -> None:
    driven = await a_queued_run(world.store)
    await world.let_pass(29.999)
    assert await world.store.due(limit=10) == []
    await world.let_pass(0.001)
    assert await world.store.due(limit=10) == [driven.run_id]


@pytest.mark.parametrize(
    ("state", "after_seconds"),
    [
        (State.IN_TURN, 30),
        (State.TURN_DUE, 30),
        (State.ON_HOLD, 10),
        (State.IN_TOOLS, 30),
        (State.JOINING, 30),
        (State.AWAITING_DECISION, 0),
        (State.AWAITING_APPROVAL, 0),
    ],
)
async def test_each_move_says_when_to_look_at_the_run(world: World, state: State, after_seconds: int) -> None:
    driven = await a_queued_run(world.store)
    await world.let_pass(20)
    await driven.bring_to(state)
    if after_seconds:
        await world.let_pass(after_seconds - 0.001)
        assert await world.store.due(limit=10) == []
        await world.let_pass(0.001)
    assert await world.store.due(limit=10) == [driven.run_id]


async def test_beginning_a_call_does_not_put_off_the_look_at_its_run(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1"), a_call("c2"))
    await world.let_pass(29)
    await driven.run_call("c1")
    await world.let_pass(1)
    assert await world.store.due(limit=10) == [driven.run_id]


async def test_a_run_that_is_over_is_never_looked_at_again(world: World) -> None:
    for row, state in enumerate(sorted(TERMINAL - {State.CANCELLED})):
        await (await a_queued_run(world.store, f"row-{row}")).bring_to(state)
    await world.let_pass(3600)
    assert await world.store.due(limit=10) == []


async def test_the_run_that_has_been_due_longest_comes_first(world: World) -> None:
    ids = []
    for row in range(5):
        ids.append((await a_queued_run(world.store, f"row-{row}")).run_id)
        await world.let_pass(1)
    await world.let_pass(30)
    assert await world.store.due(limit=10) == ids
    assert await world.store.due(limit=2) == ids[:2]


async def test_looking_again_puts_the_look_off(world: World) -> None:
    driven = await a_queued_run(world.store)
    await world.let_pass(30)
    before = await driven.look()
    await world.store.look_again(await driven.now_held(), seconds=5)
    assert await world.store.due(limit=10) == []
    assert await driven.look() == before
    await world.let_pass(5)
    assert await world.store.due(limit=10) == [driven.run_id]


async def test_sending_again_puts_the_look_off_and_notes_when_it_was_sent(world: World) -> None:
    driven = await a_queued_run(world.store)
    await world.let_pass(30)
    before = await driven.look()
    assert await _send_again(world, await driven.now_held()) is Written.WRITTEN
    assert await driven.look() == replace(before, sent_ms=world.clock.now_ms)
    await world.let_pass(59.999)
    assert await world.store.due(limit=10) == []
    await world.let_pass(0.001)
    assert await world.store.due(limit=10) == [driven.run_id]


async def test_of_many_who_examined_a_run_at_once_one_sends_its_message_again(world: World) -> None:
    driven = await a_queued_run(world.store)
    await world.let_pass(30)
    held, examined = await driven.now_held(), await driven.look()
    sending = (world.store.send_again(held, seconds=30, sent_ms=examined.sent_ms) for _ in range(8))
    assert sorted(await asyncio.gather(*sending)) == [*[Written.LOST] * 7, Written.WRITTEN]


async def test_inline_calls_that_others_are_asked_to_run_are_lost_to_the_worker_that_had_them(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1", placement=INLINE))
    await world.let_pass(30)
    assert await _send_again(world, await driven.now_held()) is Written.WRITTEN
    run = await driven.look()
    assert (run.fence, run.owner, run.claim_until_ms) == (driven.held.fence + 1, "", 0)
    assert await world.store.join(driven.held, JOINED, [a_result("c1")]) is Written.LOST
    assert await driven.run_call("c1") == CallStored(written=CallWritten.LAST)


async def test_an_old_look_at_a_run_does_not_put_off_the_next(world: World) -> None:
    driven = await a_queued_run(world.store)
    old = await driven.now_held()
    await driven.begin()
    for other in (old, replace(driven.held, turn=2)):
        await world.store.look_again(other, seconds=600)
        assert await _send_again(world, other) is Written.LOST
    await world.let_pass(30)
    assert await world.store.due(limit=10) == [driven.run_id]


async def test_runs_are_examined_with_their_open_calls(world: World) -> None:
    first, second = await a_queued_run(world.store, "a"), await a_queued_run(world.store, "b")
    await first.in_tools(a_call("z"), a_call("a"), a_call("m"))
    await first.begin_call("a")
    await first.run_call("m")
    examined, missing, queued = await world.store.examine([first.run_id, NOBODY, second.run_id])
    assert missing is None
    assert examined is not None
    assert queued is not None
    assert (queued.run, queued.calls) == (await second.look(), ())
    assert examined.run == await first.look()
    assert examined.calls == await world.store.open_call_states(first.run_id)
    assert [(call.call.call_id, call.owner, call.has_result) for call in examined.calls] == [
        ("z", "", False),
        ("a", "worker-2", False),
        ("m", "worker-2", True),
    ]


async def test_only_claims_that_were_lost_with_their_worker_count_as_losses(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1", Effect.ONCE), a_call("c2"))

    async def losses() -> list[int]:
        return [state.losses for state in await world.store.open_call_states(driven.run_id)]

    await world.store.recover_call(await driven.begin_call("c2"))
    assert await losses() == [0, 0]
    await world.store.recover_call(await driven.begin_call("c2"), lost=True)
    await world.store.doubt(await driven.begin_call("c1"), Asked.TOOL, in_doubt("c1"), lost=True)
    assert await losses() == [1, 1]
    await world.store.rule_out(await driven.begin_call("c1"), ruled_out("c1"))
    await driven.finish_call(await driven.begin_call("c2"))
    assert await losses() == [1, 1], "what else becomes of a call changes nothing of that"


async def test_one_worker_sweeps_at_a_time(world: World) -> None:
    first, second = Incarnation("worker-1"), Incarnation("worker-2")
    assert await world.store.may_sweep(first, seconds=5)
    assert not await world.store.may_sweep(second, seconds=5)
    assert await world.store.may_sweep(first, seconds=5), "who sweeps goes on for as long as it asks"
    await world.let_pass(5)
    assert await world.store.may_sweep(second, seconds=5)


# Totals --------------------------------------------------------------------------------------------------------------


async def test_a_batch_adds_up_to_its_runs(world: World) -> None:
    driven = [await a_queued_run(world.store, f"row-{number}", index=number) for number in range(12)]
    for run, state in zip(driven, State, strict=False):
        await run.bring_to(state)
    entries = [entry for run in driven for entry in await world.store.ledger(run.run_id)]
    counts = await world.store.counts(TAG)
    records = [record for record in await world.store.runs([run.run_id for run in driven]) if record]
    assert len(records) == counts.runs == 12
    assert counts.active == 12 - len(TERMINAL)
    assert counts.states == {state: sum(record.run.state is state for record in records) for state in State}
    assert counts.reasons == {outcome.reason: 1 for outcome in ENDS.values()}
    assert counts.spent == sum((record.run.spent for record in records), Spent())
    assert counts.turns == sum(isinstance(entry, ModelCalled) for entry in entries)


async def test_an_unknown_price_is_counted_not_added(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.begin()
    await world.store.go_on(driven.held, TurnWrite(spent=Spent(unpriced_calls=1)), advance=True)
    assert (await world.store.counts(TAG)).spent == Spent(unpriced_calls=1)


async def test_a_batch_that_nobody_opened_has_no_runs(world: World) -> None:
    counts = await world.store.counts(BatchTag("zzzzzzzz"))
    assert (counts.runs, counts.active, counts.turns, counts.spent) == (0, 0, 0, Spent())
    assert counts.reasons == {}


async def test_two_batches_are_counted_apart(world: World) -> None:
    await submitted(world.store, a_row("a"))
    other = BatchInfo(name=BatchName("hourly"), tenant="t", agent=AgentDigest("77"), agent_name="x", opened_ms=1)
    await world.store.submit(await world.store.open_batch(other), [a_row("a", batch=other.name)])
    assert (await world.store.counts(TAG)).runs == 1
    assert (await world.store.counts(batch_tag(other.name))).runs == 1
    record = await world.store.run(run_id(other.name, "a"))
    assert record is not None
    assert record.run.agent == "77"


async def test_a_run_is_forgotten_when_its_retention_is_over(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.bring_to(State.SUCCEEDED)
    week_seconds = 7 * 86_400
    await world.let_pass(week_seconds - 1)
    assert await world.store.run(driven.run_id) is not None
    await world.let_pass(1)
    assert await world.store.run(driven.run_id) is None
    assert await world.store.transcript(driven.run_id) == ()


DAY_SECONDS = 86_400.0
AGENT = b"frozen"


async def _known_of_batch(world: World) -> tuple[BatchInfo | None, int, list[BatchInfo], int, bytes | None]:
    """What there is to know of the batch beside its runs; its agent is used by that."""
    return (
        await world.store.batch(TAG),
        len(await world.store.batch_rows(TAG, start=0, count=9)),
        await world.store.batches(limit=9),
        (await world.store.counts(TAG)).runs,
        await world.store.agent(BATCH.agent),
    )


async def test_what_a_run_needs_is_kept_as_long_as_somebody_looks_at_it(world: World) -> None:
    await world.store.put_agent(BATCH.agent, AGENT)
    await submitted(world.store, *(a_row(f"row-{number}") for number in range(3)))
    await world.store.cancel(a_row("row-1").run_id)
    for _ in range(4):
        await world.let_pass(6 * DAY_SECONDS)
        await world.store.keep([TAG], [BATCH.agent])
    assert await _known_of_batch(world) == (BATCH, 3, [BATCH], 3, AGENT)


async def test_a_run_that_ends_late_or_goes_on_late_has_what_it_needs(world: World) -> None:
    await world.store.put_agent(BATCH.agent, AGENT)
    driven = await a_queued_run(world.store)
    await world.let_pass(4 * DAY_SECONDS)
    await driven.bring_to(State.FAILED)
    await world.let_pass(6 * DAY_SECONDS)
    assert await world.store.redrive(await driven.now_held(), None, REDRIVEN) is Written.WRITTEN
    await world.let_pass(6 * DAY_SECONDS)
    assert await _known_of_batch(world) == (BATCH, 1, [BATCH], 1, AGENT)


async def test_a_batch_and_an_agent_that_nobody_uses_are_forgotten(world: World) -> None:
    await world.store.put_agent(BATCH.agent, AGENT)
    driven = await a_queued_run(world.store)
    await driven.bring_to(State.SUCCEEDED)
    await world.let_pass(7 * DAY_SECONDS + 1)
    await world.store.keep([TAG], [BATCH.agent])
    assert await _known_of_batch(world) == (None, 0, [], 0, None)


async def test_the_list_of_batches_passes_over_those_that_are_forgotten(world: World) -> None:
    old = replace(BATCH, name=BatchName("old"), opened_ms=1_000)
    for batch in (old, replace(BATCH, name=BatchName("new"), opened_ms=2_000), BATCH):
        await world.store.open_batch(batch)
    await world.let_pass(6 * DAY_SECONDS)
    await world.store.keep([batch_tag(old.name)], [])
    await world.let_pass(DAY_SECONDS + 1)
    assert await world.store.batches(limit=1) == [old]


async def test_a_batch_that_was_forgotten_can_be_opened_anew(world: World) -> None:
    await world.store.open_batch(replace(BATCH, tenant="first", opened_ms=1_000))
    await world.store.open_batch(replace(BATCH, name=BatchName("other"), opened_ms=2_000))
    await world.let_pass(7 * DAY_SECONDS + 1)
    other = await world.store.open_batch(replace(BATCH, name=BatchName("other"), opened_ms=3_000))
    again = await world.store.open_batch(replace(BATCH, tenant="second", opened_ms=4_000))
    assert again.tenant == "second"
    assert await world.store.batches(limit=9) == [again, other]


# Workers -------------------------------------------------------------------------------------------------------------


def a_report(name: str) -> WorkerReport:
    return WorkerReport(
        incarnation=Incarnation(name),
        host="node-7",
        pid=4711,
        started_ms=1_800_000_000_000,
        concurrency=64,
        in_flight=3,
        delivered_ms={"turns": 1_800_000_000_100},
        problems=("the clock is 4 s behind",),
    )


async def test_a_worker_lives_as_long_as_it_beats(world: World) -> None:
    one, two = a_report("worker-1"), a_report("worker-2")
    await world.store.beat(one, alive_seconds=10)
    await world.store.beat(two, alive_seconds=10)
    assert sorted(await world.store.workers(), key=lambda report: report.incarnation) == [one, two]
    await world.let_pass(6)
    newer = replace(two, in_flight=0)
    await world.store.beat(newer, alive_seconds=10)
    await world.let_pass(6)
    assert await world.store.workers() == [newer]
    alive = await world.store.alive_ms([one.incarnation, two.incarnation, Incarnation("nobody")])
    assert list(alive) == [two.incarnation]
    assert 2_000 < alive[two.incarnation] <= 4_000


async def test_a_worker_that_retired_is_gone_at_once(world: World) -> None:
    report = a_report("worker-1")
    await world.store.beat(report, alive_seconds=10)
    await world.store.retire(report.incarnation)
    assert await world.store.workers() == []
    assert await world.store.alive_ms([report.incarnation]) == {}
    assert await world.store.alive_ms([]) == {}


# The model's room ----------------------------------------------------------------------------------------------------


async def test_a_model_without_room_is_held_for_every_run(world: World) -> None:
    assert await world.store.model_hold_seconds("claude-sonnet-5-5") == 0
    await world.store.hold_model("claude-sonnet-5-5", seconds=30)
    assert 20 < await world.store.model_hold_seconds("claude-sonnet-5-5") <= 30
    assert await world.store.model_hold_seconds("claude-opus-5-5") == 0
    await world.let_pass(31)
    assert await world.store.model_hold_seconds("claude-sonnet-5-5") == 0


async def test_a_hold_of_a_model_is_made_longer_by_a_later_one_and_never_shorter(world: World) -> None:
    await world.store.hold_model("claude-sonnet-5-5", seconds=60)
    await world.store.hold_model("claude-sonnet-5-5", seconds=1)
    assert 50 < await world.store.model_hold_seconds("claude-sonnet-5-5") <= 60
    await world.store.hold_model("claude-sonnet-5-5", seconds=90)
    assert 80 < await world.store.model_hold_seconds("claude-sonnet-5-5") <= 90


# Going on after the end ----------------------------------------------------------------------------------------------

REDRIVEN = Redriven(turn=1, at_ms=1_800_000_050_000)
FAILED = ENDS[State.FAILED]


async def test_a_run_that_failed_goes_on_as_if_it_had_not(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.begin()
    await world.store.finish(driven.held, replace(A_WRITE, streaks=Streaks(losses=2)), FAILED)
    ended = await driven.look()
    await world.let_pass(3600)
    remains = await world.store.remains(driven.run_id)
    assert remains == Remains(held=await driven.now_held(), calls=(), blocks={})
    assert await world.store.redrive(remains.held, None, REDRIVEN) is Written.WRITTEN
    record = await world.store.run(driven.run_id)
    assert record == RunRecord(
        run=replace(ended, state=State.TURN_DUE, fence=ended.fence + 1, streaks=Streaks(), sent_ms=0), turns=1
    )
    assert await world.store.due(limit=10) == [driven.run_id]
    assert await world.store.transcript(driven.run_id) == (QUESTION,)
    assert (await world.store.ledger(driven.run_id))[-1] == REDRIVEN
    counts = await world.store.counts(TAG)
    assert (counts.active, counts.reasons, await counted(world)) == (1, {}, {State.TURN_DUE: 1})
    await driven.begin()
    await world.store.finish(driven.held, A_WRITE, ANSWERED)
    assert (await world.store.counts(TAG)).reasons == {"final_answer": 1}


async def test_a_run_goes_on_once_however_often_it_is_wanted_to(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.bring_to(State.STOPPED)
    held = await driven.now_held()
    for other in (replace(held, fence=held.fence - 1), replace(held, turn=2)):
        assert await world.store.redrive(other, None, REDRIVEN) is Written.LOST
    assert await world.store.redrive(held, None, REDRIVEN) is Written.WRITTEN
    assert await world.store.redrive(held, None, REDRIVEN) is Written.LOST
    assert await world.store.remains(driven.run_id) is None


async def test_what_a_failed_run_left_open_is_kept_and_answered_when_it_goes_on(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.in_tools(a_call("c1"), a_call("c2"), a_call("c3", Effect.ONCE))
    await driven.run_call("c2")
    await driven.begin_call("c3")
    calls = await world.store.open_call_states(driven.run_id)
    await world.store.finish(await driven.now_held(), TurnWrite(), FAILED)
    remains = await world.store.remains(driven.run_id)
    assert remains == Remains(held=await driven.now_held(), calls=calls, blocks={CallId("c2"): a_block("c2")})
    assert await world.store.open_call_states(driven.run_id) == ()
    assert await world.store.redrive(remains.held, JOINED, REDRIVEN) is Written.WRITTEN
    run = await driven.look()
    assert (run.state, run.turn) == (State.TURN_DUE, 2)
    assert (await world.store.transcript(driven.run_id))[-1] == JOINED
    await driven.begin()
    await driven.open_calls(a_call("c4"))
    assert [state.call.call_id for state in await world.store.open_call_states(driven.run_id)] == ["c4"]


@pytest.mark.parametrize("state", [state for state in State if state not in (State.FAILED, State.STOPPED)])
async def test_nothing_is_left_behind_by_a_run_that_did_not_fail(world: World, state: State) -> None:
    driven = await a_queued_run(world.store)
    await driven.bring_to(state)
    assert await world.store.remains(driven.run_id) is None
    assert await world.store.remains(NOBODY) is None


async def test_a_run_that_goes_on_is_kept_beyond_its_retention(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.bring_to(State.FAILED)
    await world.store.redrive(await driven.now_held(), None, REDRIVEN)
    await world.let_pass(8 * 86_400)
    assert (await driven.look()).state is State.TURN_DUE
    assert await world.store.transcript(driven.run_id) == (QUESTION,)


async def test_a_cancel_that_came_too_late_does_not_end_a_run_that_goes_on(world: World) -> None:
    driven = await a_queued_run(world.store)
    await driven.begin()
    await world.store.cancel(driven.run_id)
    await world.store.finish(driven.held, TurnWrite(), FAILED)
    await world.store.redrive(await driven.now_held(), None, REDRIVEN)
    await driven.begin()
    assert not (await driven.look()).cancel_requested


async def test_runs_that_failed_are_listed_the_latest_first_until_they_go_on_or_are_forgotten(world: World) -> None:
    driven = [await a_queued_run(world.store, f"row-{row}") for row in range(4)]
    for run, state in zip(driven, [State.FAILED, State.STOPPED, State.FAILED, State.FAILED], strict=True):
        await world.let_pass(1)
        await run.bring_to(state)
    assert await world.store.dead(limit=10) == [driven[3].run_id, driven[2].run_id, driven[0].run_id]
    assert await world.store.dead(limit=1) == [driven[3].run_id]
    await world.store.redrive(await driven[2].now_held(), None, REDRIVEN)
    assert await world.store.dead(limit=10) == [driven[3].run_id, driven[0].run_id]
    await world.let_pass(7 * 86_400)
    assert await world.store.dead(limit=10) == []


# Metrics: test_store_metrics.py has the rest -------------------------------------------------------------------------


async def test_metrics_are_totals_over_every_shard(world: World) -> None:
    for number in range(8):
        driven = await a_queued_run(world.store, f"row-{number}", index=number)
        await driven.begin()
        await world.store.finish(driven.held, A_WRITE, ANSWERED)
    read = await world.store.metrics()
    assert read.counts["agent_runs_total|oncall|final_answer"] == 8
    assert read.counts["agent_run_cost_usd|oncall|sum"] == 8 * SPENT.cost_nanousd
    assert not any(by for name, by in read.counts.items() if name.startswith("agent_active_runs|"))
    assert (list(read.agents), read.dead_letters, read.workers) == (["oncall"], 0, 0)
