"""Any number of strikes and of strayed messages together: what is always true."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from worker.box.box import play_out
from worker.box.plan import Fate, Plan, Strike
from worker.box.plays import PLAYS
from worker.box.promises import check_promises

from paceline.core.endings import StopReason

LOSSES = frozenset({Strike.KILL, Strike.FREEZE})

plans = st.builds(
    Plan,
    strikes=st.dictionaries(st.integers(1, 150), st.sampled_from(Strike), max_size=5),
    fates=st.lists(st.sampled_from(Fate), max_size=15),
)


@given(play=st.sampled_from(sorted(PLAYS)), plan=plans)
@settings(max_examples=200, deadline=None)
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


@given(play=st.sampled_from(sorted(PLAYS)), fates=st.lists(st.sampled_from(Fate), max_size=25))
@settings(max_examples=100, deadline=None)
def test_while_its_worker_lives_no_turn_is_taken_by_another(play: str, fates: list[Fate]) -> None:
    over, quiet = play_out(PLAYS[play], Plan(fates=fates)), play_out(PLAYS[play])
    check_promises(over)
    assert over.transcript == quiet.transcript
    assert len(over.requests) == len(quiet.requests)
