"""What the sweeper does about a run, decided by values: no store, no clock, no broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.core.agent import Agent, Limits
from paceline.core.endings import StopReason
from paceline.core.ids import AgentDigest, CallId, Incarnation, RunId
from paceline.core.lifecycle import TERMINAL, State
from paceline.core.run import Run, Streaks
from paceline.core.tool_spec import Effect, Placement
from paceline.core.unknown_effect import OnUnknownEffect
from paceline.core.wire import Queue, queue_of_turn
from paceline.store.port import Asked, CallState, Doubt, Examined, OpenCall
from paceline.worker.sweep import (
    EndRun,
    LetGo,
    LookAgain,
    MendCalls,
    RecoverTurn,
    Repair,
    SendJoin,
    SendTurn,
    View,
    repair,
)

NOW_MS = 1_800_000_000_000
AGENT = Agent(name="swept", model="claude-sonnet-5-5")
RUN = Run(
    run_id=RunId("batch-run"),
    row_id="row",
    agent=AgentDigest("a"),
    state=State.TURN_DUE,
    turn=2,
    fence=3,
    sent_ms=NOW_MS - 60_000,
)
QUIET = View(
    now_ms=NOW_MS,
    alive_ms={Incarnation("living"): 20_000},
    delivered_ms={},
    empty=frozenset(Queue),
    claim_seconds=30,
    poison_after=3,
)
"""No message is under way, and one worker lives."""
BACKLOG = replace(QUIET, empty=frozenset())
"""Nothing has been delivered yet of what waits in the queues."""


ASKED_TOOL = Doubt(asked=Asked.TOOL, worker="gone", began_ms=NOW_MS - 90_000)


def held_by(owner: str, *, seconds: float = 100, streaks: Streaks | None = None) -> Run:
    until_ms = NOW_MS + round(seconds * 1000)
    return replace(RUN, state=State.IN_TURN, owner=owner, claim_until_ms=until_ms, streaks=streaks or Streaks())


def a_call(
    call_id: str,
    effect: Effect = Effect.READS,
    *,
    owner: str = "",
    attempt: int = 0,
    done: bool = False,
    placement: Placement = Placement.FLEET,
    seconds: float = 100,
    losses: int = 0,
) -> CallState:
    call = OpenCall(call_id=CallId(call_id), tool="t", raw_input="{}", effect=effect, placement=placement)
    until_ms = NOW_MS + round(seconds * 1000) if owner else 0
    return CallState(call=call, attempt=attempt, owner=owner, claim_until_ms=until_ms, has_result=done, losses=losses)


def mended(run: Run, view: View = QUIET, *calls: CallState) -> Repair:
    return repair(AGENT, Examined(run=run, calls=calls), view)


def mended_calls(*calls: CallState, view: View = QUIET, run: Run = RUN) -> MendCalls:
    remedy = mended(replace(run, state=State.IN_TOOLS), view, *calls)
    assert isinstance(remedy, MendCalls), remedy
    return remedy


def ids(states: tuple[CallState, ...]) -> list[str]:
    return [state.call.call_id for state in states]


# A turn that somebody has


def test_a_living_owner_is_left_alone_as_long_as_it_is_known_to_live() -> None:
    assert mended(held_by("living")) == LookAgain(seconds=20)


def test_a_living_owner_is_looked_at_when_its_claim_ends() -> None:
    assert mended(held_by("living", seconds=5)) == LookAgain(seconds=5)


@pytest.mark.parametrize(("owner", "seconds"), [("gone", 100), ("living", 0)])
def test_a_turn_is_taken_from_an_owner_that_is_gone_or_whose_claim_has_ended(owner: str, seconds: float) -> None:
    remedy = mended(held_by(owner, seconds=seconds, streaks=Streaks(losses=1, throttles=4)))
    assert isinstance(remedy, RecoverTurn)
    assert remedy.run.streaks == Streaks(losses=2, throttles=4)


def test_a_turn_that_took_too_many_workers_down_is_poison() -> None:
    remedy = mended(held_by("gone", streaks=Streaks(losses=2)))
    assert isinstance(remedy, EndRun)
    assert remedy.outcome.reason is StopReason.POISON


# A message that may be lost


@pytest.mark.parametrize("state", [State.QUEUED, State.TURN_DUE])
def test_a_turn_that_nobody_has_begun_is_sent_again(state: State) -> None:
    assert mended(replace(RUN, state=state)) == SendTurn()


def test_a_join_that_nobody_has_made_is_sent_again() -> None:
    assert mended(replace(RUN, state=State.JOINING)) == SendJoin()


@pytest.mark.parametrize("state", [State.QUEUED, State.TURN_DUE, State.JOINING])
def test_nothing_is_sent_again_while_its_message_may_still_wait_in_the_queue(state: State) -> None:
    assert mended(replace(RUN, state=state), BACKLOG) == LookAgain(seconds=60)


@pytest.mark.parametrize("waited_seconds", [1, 30, 200, 5000])
def test_the_longer_a_run_has_waited_the_later_it_is_looked_at_again(waited_seconds: int) -> None:
    waiting = replace(RUN, sent_ms=NOW_MS - waited_seconds * 1000)
    assert mended(waiting, BACKLOG) == LookAgain(seconds=min(max(waited_seconds, 30), 900))


@pytest.mark.parametrize(("ahead_seconds", "remedy"), [(16, SendTurn()), (14, LookAgain(seconds=60))])
def test_a_message_is_lost_when_much_younger_ones_have_come(ahead_seconds: int, remedy: Repair) -> None:
    delivered = replace(BACKLOG, delivered_ms={Queue.TURNS: RUN.sent_ms + ahead_seconds * 1000})
    assert mended(RUN, delivered) == remedy


def test_what_other_queues_deliver_says_nothing_of_first_turns() -> None:
    others = replace(BACKLOG, delivered_ms={Queue.TURNS: NOW_MS, Queue.TOOLS: NOW_MS})
    assert mended(replace(RUN, state=State.QUEUED), others) == LookAgain(seconds=60)


# A hold


def on_hold(*, until_seconds: float, sent_seconds: float) -> Run:
    return replace(
        RUN,
        state=State.ON_HOLD,
        hold_until_ms=NOW_MS + round(until_seconds * 1000),
        sent_ms=NOW_MS + round(sent_seconds * 1000),
    )


def test_a_hold_is_left_alone_until_its_moment() -> None:
    assert mended(on_hold(until_seconds=40, sent_seconds=40)) == LookAgain(seconds=40)


def test_a_hold_that_nobody_timed_is_sent_though_there_is_a_backlog() -> None:
    assert mended(replace(on_hold(until_seconds=-1, sent_seconds=-1), sent_ms=0), BACKLOG) == SendTurn()


def test_a_hold_whose_timer_has_rung_is_not_announced_again_in_a_backlog() -> None:
    rung = on_hold(until_seconds=-30, sent_seconds=-30)
    assert mended(rung, BACKLOG) == LookAgain(seconds=30)
    assert mended(rung) == SendTurn(), "the timer may have gone with its process"


def test_a_hold_that_is_over_is_not_sent_twice_into_a_backlog() -> None:
    assert mended(on_hold(until_seconds=-50, sent_seconds=-49), BACKLOG) == LookAgain(seconds=49)
    assert mended(on_hold(until_seconds=-50, sent_seconds=-49)) == SendTurn()


@pytest.mark.parametrize(
    ("turn", "lost_attempts", "queue"),
    [(1, 0, Queue.STARTS), (1, 1, Queue.TURNS), (2, 0, Queue.TURNS)],
    ids=["a first turn", "a first turn that has lost a worker", "a later turn"],
)
def test_a_first_turn_that_was_held_waits_with_the_first_turns(turn: int, lost_attempts: int, queue: Queue) -> None:
    held = replace(on_hold(until_seconds=-50, sent_seconds=-49), turn=turn, lost_attempts=lost_attempts)
    assert queue_of_turn(held) is queue
    assert mended(held, replace(BACKLOG, empty=frozenset({queue}))) == SendTurn()
    assert mended(held, replace(BACKLOG, empty=frozenset(Queue) - {queue})) == LookAgain(seconds=49)


# Calls


def test_calls_of_living_workers_are_left_alone() -> None:
    remedy = mended_calls(a_call("a", owner="living", attempt=1), a_call("b", Effect.ONCE, owner="living", attempt=1))
    assert (remedy.recover, remedy.in_doubt, remedy.send, remedy.look_seconds) == ((), (), (), 20)


@pytest.mark.parametrize("effect", [Effect.READS, Effect.IDEMPOTENT])
def test_a_call_that_may_run_twice_is_taken_from_a_worker_that_is_gone_and_sent_again(effect: Effect) -> None:
    remedy = mended_calls(a_call("a", effect, owner="gone", attempt=1), a_call("b", done=True))
    assert (ids(remedy.recover), remedy.in_doubt, remedy.send) == (["a"], (), ("a",))


def test_a_call_that_may_run_once_is_in_doubt_and_never_sent_again() -> None:
    remedy = mended_calls(a_call("a", Effect.ONCE, owner="gone", attempt=1))
    assert (remedy.recover, ids(remedy.in_doubt), remedy.send) == ((), ["a"], ())
    assert remedy.look_seconds == 0, "the run may have nothing to do now but await a decision"


def test_a_tool_that_was_being_asked_about_its_call_is_asked_again() -> None:
    asked = replace(a_call("a", Effect.ONCE, owner="gone", attempt=2), doubt=ASKED_TOOL)
    remedy = mended_calls(asked)
    assert (ids(remedy.recover), remedy.in_doubt, remedy.send) == (["a"], (), ("a",))


def test_a_tool_that_takes_workers_down_when_it_is_asked_is_asked_no_more() -> None:
    asked = replace(a_call("a", Effect.ONCE, owner="gone", attempt=4, losses=3), doubt=ASKED_TOOL)
    assert ids(mended_calls(asked).in_doubt) == ["a"]


def test_a_call_that_awaits_a_person_is_not_sent() -> None:
    asked = replace(a_call("a", Effect.ONCE, attempt=1), doubt=replace(ASKED_TOOL, asked=Asked.PERSON))
    assert mended_calls(asked, a_call("b")).send == ("b",)


def awaiting(agent: Agent, run: Run = RUN) -> Repair:
    asked = replace(a_call("a", Effect.ONCE, attempt=1), doubt=replace(ASKED_TOOL, asked=Asked.PERSON))
    return repair(agent, Examined(run=replace(run, state=State.AWAITING_DECISION), calls=(asked,)), QUIET)


def test_a_run_may_await_a_decision_for_ever() -> None:
    assert awaiting(AGENT) == LookAgain(seconds=900)


def test_a_run_awaits_a_decision_no_longer_than_its_deadline() -> None:
    limited = replace(AGENT, limits=Limits(deadline_seconds=100))
    assert awaiting(limited, replace(RUN, submitted_ms=NOW_MS - 90_000)) == LookAgain(seconds=10)
    late = awaiting(limited, replace(RUN, submitted_ms=NOW_MS - 100_000))
    assert isinstance(late, EndRun)
    assert late.outcome.reason is StopReason.DEADLINE


def test_a_run_that_may_not_await_a_decision_stops() -> None:
    remedy = awaiting(replace(AGENT, on_unknown_effect=OnUnknownEffect.STOP))
    assert isinstance(remedy, EndRun)
    assert remedy.outcome.reason is StopReason.UNKNOWN_EFFECT


def test_a_call_in_a_living_worker_is_given_up_when_its_claim_ends() -> None:
    assert ids(mended_calls(a_call("a", owner="living", attempt=1, seconds=0)).recover) == ["a"]


def test_calls_that_nobody_has_claimed_are_sent_again() -> None:
    assert mended_calls(a_call("a"), a_call("b", done=True), a_call("c")).send == ("a", "c")


def test_calls_that_nobody_has_claimed_wait_while_their_message_may_wait_in_the_queue() -> None:
    assert mended_calls(a_call("a"), view=BACKLOG).send == ()


def test_of_calls_that_run_once_only_the_first_is_sent_again() -> None:
    assert mended_calls(a_call("a", Effect.ONCE), a_call("b", Effect.ONCE), a_call("c")).send == ("a", "c")


def test_a_call_that_runs_once_waits_for_the_one_before_it() -> None:
    running = a_call("a", Effect.ONCE, owner="living", attempt=1)
    assert mended_calls(running, a_call("b", Effect.ONCE)).send == ()


def test_inline_calls_are_left_to_the_worker_that_has_the_turn() -> None:
    run = replace(held_by("living"), state=State.IN_TOOLS)
    assert mended_calls(a_call("a", placement=Placement.INLINE), run=run).send == ()


@pytest.mark.parametrize(("owner", "seconds"), [("gone", 100), ("living", 0)])
def test_inline_calls_of_a_worker_that_is_gone_are_sent_to_the_fleet(owner: str, seconds: float) -> None:
    run = replace(held_by(owner, seconds=seconds), state=State.IN_TOOLS)
    assert mended_calls(a_call("a", placement=Placement.INLINE), run=run).send == ("a",)


@pytest.mark.parametrize("effect", [Effect.READS, Effect.IDEMPOTENT])
def test_a_call_that_took_too_many_workers_down_is_poison(effect: Effect) -> None:
    remedy = mended(replace(RUN, state=State.IN_TOOLS), QUIET, a_call("a", effect, owner="gone", attempt=3, losses=2))
    assert isinstance(remedy, EndRun)
    assert remedy.outcome.reason is StopReason.POISON


def test_a_call_that_could_not_be_answered_too_often_is_poison() -> None:
    remedy = mended(replace(RUN, state=State.IN_TOOLS), QUIET, a_call("a", attempt=3, losses=3))
    assert isinstance(remedy, EndRun)
    assert remedy.outcome.reason is StopReason.POISON


def test_a_call_that_was_given_back_often_is_no_poison() -> None:
    given_back = a_call("a", owner="gone", attempt=9, losses=1)
    assert mended_calls(given_back).send == ("a",)
    asked = replace(a_call("b", Effect.ONCE, owner="gone", attempt=9, losses=1), doubt=ASKED_TOOL)
    assert mended_calls(asked).send == ("b",)


# A wish to cancel


CANCELLED = replace(RUN, state=State.IN_TOOLS, cancel_requested=True)


@pytest.mark.parametrize("owner", ["", "gone"])
def test_a_cancelled_run_of_which_nothing_runs_ends(owner: str) -> None:
    remedy = mended(CANCELLED, QUIET, a_call("a", owner=owner, attempt=1), a_call("b"))
    assert isinstance(remedy, EndRun)
    assert remedy.outcome.reason is StopReason.CANCELLED


def test_a_cancelled_run_waits_for_the_calls_that_run() -> None:
    remedy = mended(CANCELLED, QUIET, a_call("a", owner="living", attempt=1))
    assert isinstance(remedy, MendCalls)
    assert remedy.send == ()


def test_a_cancelled_run_waits_for_the_worker_that_runs_its_calls_inline() -> None:
    run = replace(held_by("living"), state=State.IN_TOOLS, cancel_requested=True)
    assert isinstance(mended(run, QUIET, a_call("a", placement=Placement.INLINE)), MendCalls)


def test_a_cancelled_run_ends_when_the_claim_of_its_inline_calls_has_ended() -> None:
    run = replace(held_by("living", seconds=0), state=State.IN_TOOLS, cancel_requested=True)
    assert isinstance(mended(run, QUIET, a_call("a", placement=Placement.INLINE)), EndRun)


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_a_run_that_is_over_is_let_go(state: State) -> None:
    assert isinstance(mended(replace(RUN, state=state)), LetGo)
