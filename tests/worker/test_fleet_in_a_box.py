"""Every step of a run's life, and what happens when fate strikes there. See box/box.py."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from worker.box.box import MODEL_SECONDS, OUTAGE_SECONDS, Over, play_out
from worker.box.plan import Fate, Plan, Strike
from worker.box.plays import PLAYS
from worker.box.promises import REPAIR_SECONDS, check_promises

from paceline.core.ledger import AttemptLost, ModelCalled
from paceline.core.unknown_effect import UNKNOWN_EFFECT

BACKGROUND = {
    f"{side} store.{verb}"
    for side in ("before", "after")
    for verb in ("beat", "cancel_requested", "may_sweep", "due", "now_ms", "workers", "alive_ms", "examine")
}
"""Steps that come again every few seconds: one of each is struck."""
AT_THE_BROKER = {f"{side} {what}" for side in ("before", "after") for what in ("a send", "an acknowledgement")}
NOT_OF_WORKERS = {Strike.OUTAGE, Strike.CANCEL}
"""Strikes that do not ask what a worker does at the broker just then."""

STEPS_OF_AN_END = 10
"""More than a worker takes to give back what it has and retire, while the others work."""

every_play = pytest.mark.parametrize("play", PLAYS)


@cache
def quiet(play: str) -> Over:
    """The play when nothing goes wrong."""
    return play_out(PLAYS[play])


def struck(play: str, strike: Strike) -> Iterator[tuple[str, Over]]:
    """The play with this strike at each of its steps in turn, and a name for each."""
    seen: set[str] = set()
    for step, what in enumerate(quiet(play).steps, start=1):
        if (what in BACKGROUND and what in seen) or (what in AT_THE_BROKER and strike in NOT_OF_WORKERS):
            continue
        seen.add(what)
        yield f"{strike.name} at step {step}, {what}", play_out(PLAYS[play], Plan(strikes={step: strike}))


def met(play: str, fate: Fate) -> Iterator[tuple[str, Over]]:
    """The play with this fate for each of its messages in turn."""
    for place in range(quiet(play).messages):
        fates = [Fate.ARRIVES] * place + [fate]
        yield f"message {place + 1} {fate.name}", play_out(PLAYS[play], Plan(fates=fates))


def same_end(play: str, over: Over) -> bool:
    """Whether the run came to what it comes to in quiet, apart from calls whose effect is not known."""
    if UNKNOWN_EFFECT.encode() in b"".join(over.transcript):
        return over.record.answer == quiet(play).record.answer
    return over.transcript == quiet(play).transcript


def lost_attempts(over: Over) -> int:
    return sum(isinstance(entry, AttemptLost) for entry in over.ledger)


@every_play
def test_a_quiet_run_calls_the_model_once_a_turn(play: str) -> None:
    over = quiet(play)
    check_promises(over)
    assert over.record.reason == "final_answer"
    assert lost_attempts(over) == 0
    answered = sum(isinstance(entry, ModelCalled) for entry in over.ledger)
    assert len(over.requests) == answered + over.failed_calls


@every_play
def test_a_worker_may_be_killed_at_any_step(play: str) -> None:
    for when, over in struck(play, Strike.KILL):
        check_promises(over)
        assert same_end(play, over), when
        assert lost_attempts(over) <= 1, when
        assert over.seconds <= quiet(play).seconds + REPAIR_SECONDS, when


@every_play
def test_a_worker_that_was_given_up_and_wakes_again_changes_nothing(play: str) -> None:
    for when, over in struck(play, Strike.FREEZE):
        check_promises(over)
        assert same_end(play, over), when
        assert over.seconds <= quiet(play).seconds + REPAIR_SECONDS + MODEL_SECONDS, when


# What a person has made due the sweeper sends: stopped in the midst of that, it is sent at the next look.
@pytest.mark.parametrize("play", [play for play in PLAYS if play != "calls to approve"])
def test_a_stopping_worker_leaves_nothing_that_waits_for_a_timeout(play: str) -> None:
    for when, over in struck(play, Strike.STOP):
        check_promises(over)
        assert same_end(play, over), when
        assert over.seconds <= quiet(play).seconds + 10, when


@pytest.mark.parametrize("play", ["all kinds of calls"])
def test_a_stopping_worker_may_be_killed_at_any_step(play: str) -> None:
    seen: set[str] = set(BACKGROUND)
    for step, what in enumerate(quiet(play).steps, start=1):
        if what in seen:
            continue
        seen.add(what)
        for killed_at in range(step + 1, step + STEPS_OF_AN_END):
            over = play_out(PLAYS[play], Plan(strikes={step: Strike.STOP, killed_at: Strike.KILL}))
            check_promises(over)
            when = f"told to stop at {what}, killed at step {killed_at}"
            assert same_end(play, over), when
            assert over.seconds <= quiet(play).seconds + REPAIR_SECONDS + 10, when


def test_every_effect_of_a_worker_is_a_step() -> None:
    effects = ("store.begin", "model.call", "store.open_calls", "a send", "a tool", "store.finish_call", "store.join")
    steps = set(quiet("all kinds of calls").steps)
    assert {f"{side} {effect}" for side in ("before", "after") for effect in (*effects, "an acknowledgement")} <= steps


@every_play
def test_the_record_may_be_away_from_any_step_on(play: str) -> None:
    for when, over in struck(play, Strike.OUTAGE):
        check_promises(over)
        assert same_end(play, over), when
        assert lost_attempts(over) == 0, f"{when}: a worker that lives was given up"
        assert over.seconds <= quiet(play).seconds + OUTAGE_SECONDS + REPAIR_SECONDS, when


@every_play
def test_a_run_may_be_cancelled_at_any_step(play: str) -> None:
    for when, over in struck(play, Strike.CANCEL):
        check_promises(over)
        assert over.record.reason == "cancelled" or same_end(play, over), when
        assert over.calls_after_cancel <= 1, when
        assert over.seconds <= quiet(play).seconds, when


@every_play
def test_any_message_may_be_lost(play: str) -> None:
    for which, over in met(play, Fate.LOST):
        check_promises(over)
        assert over.transcript == quiet(play).transcript, which
        assert lost_attempts(over) == 0, which
        assert over.seconds <= quiet(play).seconds + REPAIR_SECONDS, which


@every_play
@pytest.mark.parametrize("fate", [Fate.TWICE, Fate.LATE])
def test_any_message_may_come_twice_or_late(play: str, fate: Fate) -> None:
    for which, over in met(play, fate):
        check_promises(over)
        assert over.transcript == quiet(play).transcript, which
        assert len(over.requests) == len(quiet(play).requests), which
