"""Any number of strikes and of strayed messages together: what is always true."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from worker.box.box import AGENT, STOPPING, WAITING, Play, play_out
from worker.box.plan import Fate, Plan, Strike
from worker.box.plays import PLAYS
from worker.box.promises import check_promises

from paceline.core.agent import Agent
from paceline.core.endings import StopReason
from paceline.core.step import FailureKind
from paceline.worker.scripted_model import ModelRequest, Reply, fails

REDRIVES = 12
"""More than there are turns to be refused and strikes to fail by."""
LOSSES = frozenset({Strike.KILL, Strike.FREEZE})

plans = st.builds(
    Plan,
    strikes=st.dictionaries(st.integers(1, 150), st.sampled_from(Strike), max_size=5),
    fates=st.lists(st.sampled_from(Fate), max_size=15),
)


@given(play=st.sampled_from(sorted(PLAYS)), plan=plans)
@settings(max_examples=200)
def test_whatever_happens_a_run_ends_once_and_keeps_every_promise(play: str, plan: Plan) -> None:
    over = play_out(PLAYS[play], plan)
    check_promises(over)
    losses = sum(strike in LOSSES for strike in plan.strikes.values())
    allowed = {StopReason.FINAL_ANSWER}
    if Strike.CANCEL in plan.strikes.values():
        allowed |= {StopReason.CANCELLED}
    if losses >= 3:
        allowed |= {StopReason.POISON}
    assert over.record.reason in allowed


def refuses_first(play: Play) -> Play:
    """The play, by an API that refuses each request the first time: the run fails, and somebody lets it go on."""

    def refusing(request: ModelRequest, seen: int) -> Reply:
        return play(request, seen - 1) if seen else fails(FailureKind.REFUSED, "400 for now")

    return refusing


@given(
    play=st.sampled_from(["calls that run once", "all kinds of calls", "inline and parallel calls"]),
    is_refused=st.booleans(),
    agent=st.sampled_from([AGENT, STOPPING, WAITING]),
    plan=plans,
)
@settings(max_examples=100)
def test_a_run_that_somebody_lets_go_on_comes_to_its_answer_whatever_happens(
    play: str, is_refused: bool, agent: Agent, plan: Plan
) -> None:
    asked = refuses_first(PLAYS[play]) if is_refused else PLAYS[play]
    over = play_out(asked, replace(plan, redrives=REDRIVES), agent)
    check_promises(over)
    allowed = {StopReason.FINAL_ANSWER}
    if Strike.CANCEL in plan.strikes.values():
        allowed |= {StopReason.CANCELLED}
    assert over.record.reason in allowed


@given(play=st.sampled_from(sorted(PLAYS)), fates=st.lists(st.sampled_from(Fate), max_size=25))
@settings(max_examples=100)
def test_while_its_worker_lives_no_turn_is_taken_by_another(play: str, fates: list[Fate]) -> None:
    over, quiet = play_out(PLAYS[play], Plan(fates=fates)), play_out(PLAYS[play])
    check_promises(over)
    assert over.transcript == quiet.transcript
    assert len(over.requests) == len(quiet.requests)
