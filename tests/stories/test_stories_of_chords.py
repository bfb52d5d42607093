"""Chords that came twice or never, and rights that were never given back, elsewhere. See docs/failure-stories.md."""

from __future__ import annotations

from collections import Counter

from worker.box.box import Over, play_out
from worker.box.crowd import all_out
from worker.box.plan import Fate, Plan, Strike
from worker.box.promises import REPAIR_SECONDS, check_promises

from paceline.core.ledger import CallRan
from paceline.core.step import FailureKind
from paceline.worker.scripted_model import ModelRequest, Reply, asks, fails, says

CALLS = 8


def eight_calls(request: ModelRequest, seen: int) -> Reply:
    if request.turn > 1:
        return says("done")
    return asks(*((f"c{CALLS - place}", "fetch", {"place": place}) for place in range(CALLS)))


def check_one_next_turn(over: Over) -> None:
    """The next turn began once, with all results in the order of the calls."""
    check_promises(over)
    assert over.transcript == play_out(eight_calls).transcript
    assert len(over.requests) == 2
    assert Counter(entry.call for entry in over.ledger if isinstance(entry, CallRan)).total() == CALLS


def test_a_call_that_is_delivered_twice_completes_nothing_early_and_nothing_twice() -> None:
    for place in range(1, CALLS + 1):  # the messages of the calls follow that of the first turn
        check_one_next_turn(play_out(eight_calls, Plan(fates=[Fate.ARRIVES] * place + [Fate.TWICE])))


def test_a_record_that_goes_away_as_the_last_result_is_written_delays_the_next_turn_and_no_more() -> None:
    steps = play_out(eight_calls).steps
    for when in ("before store.finish_call", "after store.finish_call"):
        last = max(step for step, what in enumerate(steps, start=1) if what == when)
        check_one_next_turn(play_out(eight_calls, Plan(strikes={last: Strike.OUTAGE})))


def test_a_join_that_is_lost_or_doubled_is_made_once() -> None:
    for fate in (Fate.LOST, Fate.TWICE, Fate.LATE):
        check_one_next_turn(play_out(eight_calls, Plan(fates=[Fate.ARRIVES] * (1 + CALLS) + [fate])))


def test_a_thousand_turns_that_are_held_are_a_thousand_executions() -> None:
    def holds(request: ModelRequest, asked_at: float) -> Reply:
        return fails(FailureKind.THROTTLED, "429", retry_after_seconds=1800) if asked_at < 60 else says("done")

    over = all_out(holds, runs=1000, look_seconds=60)
    assert Counter(record.reason for record in over.records) == {"final_answer": 1000}
    assert (over.looks[-1].requests, over.looks[-1].messages) == (2000, 2000), "a refusal and an answer for each"


def test_the_one_right_to_sweep_comes_back_from_a_worker_that_is_killed_with_it() -> None:
    quiet = play_out(eight_calls)
    taken = quiet.steps.index("after store.may_sweep") + 1
    no_start = [Fate.LOST]
    over = play_out(eight_calls, Plan(strikes={taken: Strike.KILL}, fates=no_start))
    check_one_next_turn(over)
    assert over.seconds <= quiet.seconds + REPAIR_SECONDS, "the run whose message was lost was found by another sweep"


def test_the_one_place_that_effects_have_in_a_turn_comes_back_from_a_worker_that_is_killed_in_it() -> None:
    def charges_twice(request: ModelRequest, seen: int) -> Reply:
        return says("done") if request.turn > 1 else asks(("c1", "bill", {}), ("c2", "bill", {}))

    steps = play_out(charges_twice).steps
    in_the_first = steps.index("after a tool") + 1
    over = play_out(charges_twice, Plan(strikes={in_the_first: Strike.KILL}))
    check_promises(over)
    assert over.record.reason == "final_answer"
    assert len(over.charges) == len(set(over.charges)) == 2
