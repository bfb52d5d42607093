"""The table of legal moves."""

from __future__ import annotations

import pytest

from paceline.core.endings import ENDINGS, StopReason
from paceline.core.errors import Bug, IllegalTransition
from paceline.core.lifecycle import CAN_GO_ON, MOVES, TERMINAL, TURN_CAN_BEGIN, Event, State, Status, move


def _reachable(start: State) -> set[State]:
    found, edge = {start}, {start}
    while edge:
        edge = {after for (before, _), after in MOVES.items() if before in edge} - found
        found |= edge
    return found


def test_every_state_can_be_reached_from_the_queue() -> None:
    assert _reachable(State.QUEUED) == set(State)


def test_from_every_state_every_ending_but_a_success_can_be_reached_and_it_too() -> None:
    for state in set(State) - TERMINAL:
        assert _reachable(state) >= TERMINAL, state


def test_nothing_leaves_an_ending_unless_somebody_wants_it_to() -> None:
    assert {(before, event) for before, event in MOVES if before in TERMINAL} == {
        (before, Event.REDRIVE) for before in CAN_GO_ON
    }
    assert {State.FAILED, State.STOPPED} == CAN_GO_ON


def test_a_move_that_the_table_does_not_have_is_a_bug_with_both_names() -> None:
    for state in State:
        for event in Event:
            if (state, event) in MOVES:
                assert move(state, event) is MOVES[state, event]
            else:
                with pytest.raises(IllegalTransition, match=rf"{state.value}\b.*\b{event.value}"):
                    move(state, event)
    assert issubclass(IllegalTransition, Bug)


def test_a_turn_begins_where_the_table_lets_it() -> None:
    assert {state for state in State if (state, Event.BEGIN) in MOVES} == TURN_CAN_BEGIN


def test_any_run_that_is_not_over_can_fail_or_be_cancelled() -> None:
    for state in set(State) - TERMINAL:
        assert move(state, Event.FAIL) is State.FAILED
        assert move(state, Event.CANCEL) is State.CANCELLED


def test_users_see_running_for_every_phase() -> None:
    assert State.QUEUED.status is Status.QUEUED
    assert {state.status for state in TERMINAL} == set(Status) - {Status.QUEUED, Status.RUNNING}
    phases = set(State) - TERMINAL - {State.QUEUED}
    assert {state.status for state in phases} == {Status.RUNNING}


def test_every_ending_leads_where_its_status_says() -> None:
    assert set(ENDINGS) == set(StopReason)
    for reason, ending in ENDINGS.items():
        assert move(State.IN_TURN, ending.event).value == ending.status.value, reason
