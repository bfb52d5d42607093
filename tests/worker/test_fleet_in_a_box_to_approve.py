"""Calls that a person must approve: whatever happens, none begins before that; a denial is told, or stops the run."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from worker.box.box import WAITING, Over, play_out
from worker.box.plan import Fate, Plan, Strike
from worker.box.plays import PLAYS
from worker.box.promises import check_promises

from paceline.core.agent import Agent, Limits
from paceline.core.approval import OnDenied
from paceline.core.ids import CallId, idempotency_key
from paceline.core.ledger import ApprovalDecided

PLAY = PLAYS["calls to approve"]
STOPS = replace(WAITING, on_denied=OnDenied.STOP)
FIRST, LATER = CallId("t1_9"), CallId("t1_7")
"""The calls of `pay`, in id order."""


def said(over: Over, *, approved: bool) -> set[str]:
    """The calls of which a person said so."""
    entries = [entry for entry in over.ledger if isinstance(entry, ApprovalDecided)]
    return {entry.call for entry in entries if entry.approved is approved}


def paid(over: Over) -> set[str]:
    """The calls of `pay` that took effect."""
    run_id = over.record.run.run_id
    return {call for call in (FIRST, LATER) if idempotency_key(run_id, 1, call) in over.charges}


def first_result(over: Over) -> dict[str, object]:
    block: dict[str, object] = json.loads(over.transcript[2])["content"][0]
    return block


def test_a_call_runs_when_it_is_approved_and_what_comes_of_it_is_the_models() -> None:
    over = play_out(PLAY)
    check_promises(over)
    assert over.record.reason == "final_answer"
    assert said(over, approved=True) == paid(over) == {FIRST, LATER}
    assert first_result(over)["content"] == f"done {FIRST}"


def test_a_denial_is_told_with_its_reason_and_the_run_goes_on() -> None:
    over = play_out(PLAY, Plan(denials=[True]))
    check_promises(over)
    assert over.record.reason == "final_answer"
    assert (said(over, approved=False), paid(over)) == ({FIRST}, {LATER})
    assert first_result(over)["is_error"]
    assert first_result(over)["content"] == "The call was not run: a person denied it. The reason: too much"


def test_a_run_that_stopped_for_a_denial_can_go_on_and_tells_the_model_then() -> None:
    over = play_out(PLAY, Plan(denials=[True, True], redrives=1), agent=STOPS)
    check_promises(over)
    assert over.record.reason == "final_answer"
    assert paid(over) == set()
    assert first_result(over)["content"] == "The call was not run: a person denied it."


def test_a_deadline_ends_the_wait_for_an_approval_which_is_no_working_time() -> None:
    over = play_out(PLAY, Plan(decides=False), agent=replace(WAITING, limits=Limits(deadline_seconds=60)))
    check_promises(over)
    assert over.record.reason == "deadline"
    assert paid(over) == set()
    assert over.record.run.spent.working_ms < 30_000


@given(
    agent=st.sampled_from([WAITING, STOPS]),
    denials=st.lists(st.booleans(), max_size=2),
    strikes=st.dictionaries(st.integers(1, 80), st.sampled_from(Strike), max_size=3),
    fates=st.lists(st.sampled_from(Fate), max_size=10),
    redrives=st.integers(0, 1),
)
@settings(max_examples=80)
def test_no_call_takes_effect_that_nobody_approved(
    agent: Agent, denials: list[bool], strikes: dict[int, Strike], fates: list[Fate], redrives: int
) -> None:
    plan = Plan(strikes=strikes, fates=fates, denials=denials, redrives=redrives)
    over = play_out(PLAY, plan, agent=agent)
    check_promises(over)
    assert paid(over) <= said(over, approved=True)
    if over.record.reason == "final_answer" and not redrives:
        assert paid(over) == said(over, approved=True) == {FIRST, LATER} - said(over, approved=False)
