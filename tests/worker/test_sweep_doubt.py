"""What the sweeper does about calls in doubt and calls to approve, by values."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.runs import a_call

from paceline.core.agent import Agent, Limits
from paceline.core.approval import Permission
from paceline.core.endings import StopReason
from paceline.core.ids import AgentDigest, Incarnation, RunId
from paceline.core.lifecycle import State
from paceline.core.run import Run
from paceline.core.tool_spec import Effect
from paceline.core.unknown_effect import OnUnknownEffect
from paceline.core.wire import Queue
from paceline.store.port import Asked, CallState, Doubt, Examined
from paceline.worker.sweep import EndRun, LookAgain, MendCalls, Repair, View, repair

AGENT = Agent(name="a", model="claude-sonnet-5-5")
RUN = Run(
    run_id=RunId("aaaaaaaa-1"),
    row_id="r",
    agent=AgentDigest("d"),
    state=State.IN_TOOLS,
    turn=3,
    fence=4,
    submitted_ms=1_000_000,
    sent_ms=1_010_000,
)
VIEW = View(
    now_ms=1_060_000,
    alive_ms={Incarnation("alive"): 20_000},
    delivered_ms={},
    empty=frozenset(Queue),
    claim_seconds=30.0,
    poison_after=3,
)
ONCE = CallState(
    call=a_call("c1", Effect.ONCE),
    attempt=1,
    owner="dead",
    claim_until_ms=9_000_000,
    has_result=False,
    began_ms=1_020_000,
)
TO_TOOL = Doubt(asked=Asked.TOOL, worker="dead", began_ms=1_020_000)
TO_PERSON = replace(TO_TOOL, asked=Asked.PERSON)
ASKED_PERSON = replace(ONCE, owner="", claim_until_ms=0, doubt=TO_PERSON)


def mended(*calls: CallState, run: Run = RUN) -> MendCalls:
    repaired = repair(AGENT, Examined(run=run, calls=calls), VIEW)
    assert isinstance(repaired, MendCalls)
    return repaired


def test_a_once_call_whose_worker_is_gone_is_put_in_doubt_and_not_sent_again() -> None:
    assert mended(ONCE) == MendCalls(recover=(), in_doubt=(ONCE,), send=(), look_seconds=0.0)


def test_a_once_call_whose_worker_lives_is_left_alone() -> None:
    assert mended(replace(ONCE, owner="alive")).in_doubt == ()


def test_a_call_whose_tool_is_to_be_asked_is_sent() -> None:
    asked = replace(ONCE, owner="", claim_until_ms=0, doubt=TO_TOOL)
    assert mended(asked).send == ("c1",)


def test_a_question_whose_worker_is_gone_is_asked_again_until_it_has_taken_enough_workers() -> None:
    asked = replace(ONCE, attempt=3, losses=2, doubt=TO_TOOL)
    assert mended(asked) == MendCalls(recover=(asked,), in_doubt=(), send=(asked.call.call_id,), look_seconds=30.0)
    deadly = replace(asked, attempt=4, losses=3)
    assert mended(deadly) == MendCalls(recover=(), in_doubt=(deadly,), send=(), look_seconds=0.0)


def test_while_a_person_is_asked_other_calls_go_on_and_later_once_calls_wait() -> None:
    other = replace(ONCE, call=a_call("p"), owner="", claim_until_ms=0, attempt=0)
    later = replace(other, call=a_call("c2", Effect.ONCE))
    assert mended(ASKED_PERSON, other, later).send == ("p",)


def test_what_a_decision_made_due_is_sent_at_once() -> None:
    decided = replace(ONCE, owner="", claim_until_ms=0)
    assert mended(decided, run=replace(RUN, sent_ms=0)).send == ("c1",)


def awaiting(agent: Agent, now_ms: int = VIEW.now_ms) -> EndRun | LookAgain:
    run = replace(RUN, state=State.AWAITING_DECISION)
    repaired = repair(agent, Examined(run=run, calls=(ASKED_PERSON,)), replace(VIEW, now_ms=now_ms))
    assert isinstance(repaired, EndRun | LookAgain)
    return repaired


def test_a_run_awaits_a_decision_for_as_long_as_it_takes() -> None:
    assert awaiting(AGENT) == LookAgain(seconds=900.0)
    assert awaiting(AGENT, now_ms=10**12) == LookAgain(seconds=900.0)


def test_a_run_that_may_not_wait_fails() -> None:
    ended = awaiting(replace(AGENT, on_unknown_effect=OnUnknownEffect.STOP))
    assert isinstance(ended, EndRun)
    assert ended.outcome.reason is StopReason.UNKNOWN_EFFECT
    assert "search (c1)" in ended.outcome.message


@pytest.mark.parametrize(
    ("now_ms", "left_seconds"), [(1_060_000, 40.0), (1_099_000, 1.0), (1_099_999, 0.001), (1_100_000, None)]
)
def test_a_run_awaits_no_decision_beyond_its_deadline(now_ms: int, left_seconds: float | None) -> None:
    repaired = awaiting(replace(AGENT, limits=Limits(deadline_seconds=100)), now_ms)
    if left_seconds is None:
        assert isinstance(repaired, EndRun)
        assert repaired.outcome.reason is StopReason.DEADLINE
    else:
        assert repaired == LookAgain(seconds=left_seconds)


TO_APPROVE = replace(ONCE, owner="", claim_until_ms=0, attempt=0, permission=Permission.WANTED)


def test_a_call_that_nobody_has_approved_is_not_sent_and_later_once_calls_wait() -> None:
    other = replace(TO_APPROVE, call=a_call("p"), permission=Permission.GIVEN)
    later = replace(other, call=a_call("c2", Effect.ONCE))
    assert mended(TO_APPROVE, other, later).send == ("p",)
    assert mended(replace(TO_APPROVE, permission=Permission.DENIED), later).send == ()
    assert mended(replace(TO_APPROVE, permission=Permission.GIVEN), later).send == ("c1",)


def test_a_run_awaits_an_approval_until_it_is_denied_or_its_deadline_has_passed() -> None:
    def awaiting(limits: Limits, *calls: CallState) -> Repair:
        run = replace(RUN, state=State.AWAITING_APPROVAL)
        return repair(replace(AGENT, limits=limits), Examined(run=run, calls=calls), VIEW)

    assert awaiting(Limits(), TO_APPROVE) == LookAgain(seconds=900.0)
    late = awaiting(Limits(deadline_seconds=50), TO_APPROVE)
    denied = awaiting(Limits(), TO_APPROVE, replace(TO_APPROVE, permission=Permission.DENIED))
    assert isinstance(late, EndRun)
    assert isinstance(denied, EndRun)
    assert (late.outcome.reason, denied.outcome.reason) == (StopReason.DEADLINE, StopReason.DENIED)
    assert "search (c1)" in denied.outcome.message
