"""Calls that may have taken effect: whatever happens, each takes effect once, and the run goes on as if nothing had."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worker.box.box import STOPPING, WAITING, Over, play_out
from worker.box.plan import Fate, Plan, Strike
from worker.box.plays import PLAYS
from worker.box.promises import REPAIR_SECONDS, check_promises

from paceline.core.agent import Agent
from paceline.core.ledger import CallRan, EffectInDoubt, EffectRuledOut, Source

ASKS_A_PERSON, ASKS_ITS_TOOL = "calls that run once", "calls that can tell"
every_play = pytest.mark.parametrize("play", [ASKS_A_PERSON, ASKS_ITS_TOOL])


def struck(play: str, strike: Strike, agent: Agent = WAITING) -> Iterator[tuple[str, Over]]:
    """The play with this strike at each step at which a call is under way."""
    steps = play_out(PLAYS[play], agent=agent).steps
    at_calls = [step for step, what in enumerate(steps, start=1) if "call" in what or "tool" in what]
    for step in at_calls:
        yield (
            f"{strike.name} at step {step}, {steps[step - 1]}",
            play_out(PLAYS[play], Plan(strikes={step: strike}), agent=agent),
        )


def who_was_asked(over: Over) -> set[Source]:
    """Who said what became of calls in doubt."""
    return {
        entry.source
        for entry in over.ledger
        if isinstance(entry, EffectRuledOut | CallRan) and entry.source is not Source.TOOL
    }


@every_play
@pytest.mark.parametrize("strike", [Strike.KILL, Strike.FREEZE, Strike.STOP, Strike.OUTAGE])
def test_each_call_takes_effect_once_whatever_becomes_of_its_worker(play: str, strike: Strike) -> None:
    quiet = play_out(PLAYS[play], agent=WAITING)
    doubts = 0
    for when, over in struck(play, strike):
        check_promises(over)
        assert over.transcript == quiet.transcript, when
        assert sorted(over.charges) == sorted(quiet.charges), when
        doubts += any(isinstance(entry, EffectInDoubt) for entry in over.ledger)
    assert doubts or strike is Strike.OUTAGE


@every_play
def test_a_worker_that_stops_before_a_tool_began_leaves_no_doubt(play: str) -> None:
    for when, over in struck(play, Strike.STOP):
        if "store.begin_call" in when:
            assert not any(isinstance(entry, EffectInDoubt) for entry in over.ledger), when


def test_a_tool_that_can_tell_is_asked_and_nobody_else() -> None:
    for when, over in struck(ASKS_ITS_TOOL, Strike.KILL):
        assert who_was_asked(over) <= {Source.RECONCILE}, when
        assert over.seconds <= play_out(PLAYS[ASKS_ITS_TOOL], agent=WAITING).seconds + REPAIR_SECONDS, when


def test_a_person_is_asked_where_the_tool_cannot_tell() -> None:
    asked = [who_was_asked(over) for _, over in struck(ASKS_A_PERSON, Strike.KILL)]
    assert set().union(*asked) == {Source.PERSON}


def test_an_agent_that_does_not_wait_fails_within_a_claim_and_a_sweep() -> None:
    reasons = set()
    for when, over in struck(ASKS_A_PERSON, Strike.KILL, STOPPING):
        check_promises(over)
        has_doubt = any(isinstance(entry, EffectInDoubt) for entry in over.ledger)
        assert over.record.reason == ("unknown_effect" if has_doubt else "final_answer"), when
        assert over.seconds <= play_out(PLAYS[ASKS_A_PERSON], agent=STOPPING).seconds + REPAIR_SECONDS, when
        reasons.add(over.record.reason)
    assert reasons == {"unknown_effect", "final_answer"}


@given(
    play=st.sampled_from([ASKS_A_PERSON, ASKS_ITS_TOOL]),
    strikes=st.dictionaries(
        st.integers(1, 200), st.sampled_from([Strike.KILL, Strike.FREEZE, Strike.STOP, Strike.OUTAGE]), max_size=4
    ),
    fates=st.lists(st.sampled_from(Fate), max_size=15),
)
@settings(max_examples=100)
def test_no_call_takes_effect_twice_and_a_run_that_succeeds_lacks_none(
    play: str, strikes: dict[int, Strike], fates: list[Fate]
) -> None:
    over = play_out(PLAYS[play], Plan(strikes=strikes, fates=fates), agent=WAITING)
    check_promises(over)
    if over.record.reason == "final_answer":
        quiet = play_out(PLAYS[play], agent=WAITING)
        assert sorted(over.charges) == sorted(quiet.charges)
        assert over.transcript == quiet.transcript
