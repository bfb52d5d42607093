"""What a run does next: every stop reason, every failure, every loss."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from support.wire import body, text, thinking, tool_use

from paceline.core.agent import Agent, Limits
from paceline.core.answer import read_answer
from paceline.core.endings import ErrorClass, StopReason
from paceline.core.ids import AgentDigest, RunId
from paceline.core.lifecycle import State
from paceline.core.models import max_output_tokens
from paceline.core.next_call import next_call
from paceline.core.run import Run, Spent, Streaks
from paceline.core.step import (
    CallModel,
    FailureKind,
    Finish,
    GoOn,
    Hold,
    ModelAnswered,
    ModelCallFailed,
    OpenCalls,
    Step,
    TurnBegun,
    WorkerLost,
    next_step,
    said_so_far,
)
from paceline.core.transcript import GO_ON_AFTER_CUT, GO_ON_AFTER_NOTHING, Fragment, assistant_content, user_text

AGENT = Agent(name="oncall", model="claude-sonnet-5-5", max_tokens=4096)
RUN = Run(
    run_id=RunId("a-1"),
    row_id="row-1",
    agent=AgentDigest("5f0c"),
    state=State.IN_TURN,
    turn=2,
    fence=3,
    attempts=1,
    submitted_ms=1_000_000,
)
MOST = max_output_tokens(AGENT.model)


def after(answer: bytes, *, streaks: Streaks | None = None, so_far: str = "") -> Step:
    run = replace(RUN, streaks=streaks or Streaks())
    return next_step(AGENT, run, ModelAnswered(answer=read_answer(answer), so_far=so_far))


CALL = next_call(AGENT, RUN, [user_text("Who is on call?")])


def fragment(*blocks: dict[str, Any]) -> Fragment:
    return assistant_content(json.dumps(list(blocks)).encode())


def finished(step: Step) -> Finish:
    assert isinstance(step, Finish), step
    return step


def held(step: Step) -> Hold:
    assert isinstance(step, Hold), step
    return step


# Before the call -----------------------------------------------------------------------------------------------------


def test_a_turn_begins_with_a_call() -> None:
    run = replace(RUN, spent=Spent(working_ms=150_000))
    step = next_step(AGENT, run, TurnBegun(call=CALL, now_ms=2_000_000))
    assert step == CallModel(max_tokens=4096, seconds_left=450.0)
    without = replace(AGENT, limits=Limits(seconds=None))
    assert next_step(without, run, TurnBegun(call=CALL, now_ms=1)) == CallModel(max_tokens=4096, seconds_left=None)


def test_a_raised_max_tokens_is_used() -> None:
    run = replace(RUN, streaks=Streaks(max_tokens=16_384))
    step = next_step(AGENT, run, TurnBegun(call=next_call(AGENT, run, []), now_ms=0))
    assert isinstance(step, CallModel)
    assert step.max_tokens == 16_384


def test_a_cancelled_run_makes_no_call() -> None:
    step = next_step(AGENT, replace(RUN, cancel_requested=True), TurnBegun(call=CALL, now_ms=0))
    assert finished(step).outcome.reason is StopReason.CANCELLED


def test_a_run_over_a_limit_makes_no_call() -> None:
    step = next_step(AGENT, replace(RUN, turn=26), TurnBegun(call=CALL, now_ms=0))
    assert finished(step).outcome.reason is StopReason.MAX_TURNS


# After an answer -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_reason", ["end_turn", "stop_sequence"])
def test_an_answer_that_ends_is_the_final_answer(stop_reason: str) -> None:
    step = finished(after(body(thinking(), text("Ada "), text("Lovelace"), stop_reason=stop_reason)))
    assert (step.outcome.reason, step.outcome.answer) == (StopReason.FINAL_ANSWER, "Ada Lovelace")
    assert step.append == (fragment(thinking(), text("Ada "), text("Lovelace")),)


def test_an_answer_in_pieces_is_given_whole() -> None:
    step = finished(after(body(text("lace.")), so_far="Ada Love"))
    assert step.outcome.answer == "Ada Lovelace."


def test_an_empty_answer_is_asked_to_go_on_a_few_times_and_then_fails() -> None:
    for empties in (0, 1):
        step = after(body(), streaks=Streaks(empties=empties, failures=1))
        again = Streaks(empties=empties + 1)
        assert step == GoOn(append=(user_text(GO_ON_AFTER_NOTHING),), advance=True, streaks=again)
    outcome = finished(after(body(text("  ")), streaks=Streaks(empties=2))).outcome
    assert (outcome.reason, outcome.message) == (
        StopReason.MODEL_ERROR,
        "the model's answer was empty 3 times in a row",
    )


def test_calls_are_opened_in_the_order_of_the_message() -> None:
    step = after(body(text("I look."), tool_use("z"), tool_use("a"), stop_reason="tool_use"), streaks=Streaks(losses=1))
    assert isinstance(step, OpenCalls)
    assert [call.call_id for call in step.calls] == ["z", "a"]
    assert step.append == fragment(text("I look."), tool_use("z"), tool_use("a"))
    assert step.streaks == Streaks(asked=step.streaks.asked)


@pytest.mark.parametrize(
    "answer",
    [
        body(text("I look."), stop_reason="tool_use"),
        body(stop_reason="tool_use"),
        body(text("Ada."), tool_use("c1"), stop_reason="end_turn"),
        body(stop_reason="pause_turn"),
        body(tool_use("c1"), stop_reason="pause_turn"),
        body(text("One moment."), stop_reason="pause_turn"),
        body(tool_use("c1"), stop_reason=None),
        body(text("Ada."), stop_reason=None),
        body(tool_use("c1"), stop_reason="brand_new_reason"),
    ],
    ids=[
        "no call",
        "nothing",
        "ends with a call",
        "empty pause",
        "pause with a call",
        "pause of words",
        "null",
        "null text",
        "unknown",
    ],
)
def test_an_answer_at_odds_with_its_stop_reason_is_tried_again_and_no_tool_of_it_runs(answer: bytes) -> None:
    step = held(after(answer, streaks=Streaks(failures=1, losses=1)))
    assert step.streaks == Streaks(failures=2, losses=1)
    assert not step.holds_model
    last = finished(after(answer, streaks=Streaks(failures=4)))
    assert last.outcome.reason is StopReason.MODEL_ERROR
    assert last.append == ()


def test_no_tool_of_a_cut_answer_runs_and_the_turn_is_taken_again_with_more_room() -> None:
    cut = body(text("I look."), tool_use("c1"), stop_reason="max_tokens")
    assert after(cut) == GoOn(append=(), advance=False, streaks=Streaks(max_tokens=8192))
    assert after(cut, streaks=Streaks(max_tokens=8192)) == GoOn(
        append=(), advance=False, streaks=Streaks(max_tokens=16_384)
    )
    near = after(cut, streaks=Streaks(max_tokens=MOST - 1))
    assert near == GoOn(append=(), advance=False, streaks=Streaks(max_tokens=MOST))


@pytest.mark.parametrize(
    "cut", [body(tool_use("c1"), stop_reason="max_tokens"), body(stop_reason="max_tokens")], ids=["a call", "nothing"]
)
def test_an_answer_cut_twice_at_the_models_maximum_stops_the_run(cut: bytes) -> None:
    first = after(cut, streaks=Streaks(max_tokens=MOST))
    assert first == GoOn(append=(), advance=False, streaks=Streaks(max_tokens=MOST, cuts=1))
    second = finished(after(cut, streaks=Streaks(max_tokens=MOST, cuts=1)))
    assert second.outcome.reason is StopReason.OUTPUT_TRUNCATED
    assert (second.outcome.answer, second.append) == (None, ())


def test_text_that_was_cut_is_kept_and_continued() -> None:
    step = after(body(text("Ada Love"), stop_reason="max_tokens"), streaks=Streaks(failures=2))
    expected = (fragment(text("Ada Love")), user_text(GO_ON_AFTER_CUT))
    assert step == GoOn(append=expected, advance=True, streaks=Streaks())


def test_a_pause_is_sent_back_unchanged_a_few_times_in_a_row() -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    paused = body(text("Searching."), search, stop_reason="pause_turn")
    step = after(paused, streaks=Streaks(pauses=9))
    assert step == GoOn(append=(fragment(text("Searching."), search),), advance=True, streaks=Streaks(pauses=10))
    outcome = finished(after(paused, streaks=Streaks(pauses=10))).outcome
    assert (outcome.reason, outcome.message) == (StopReason.MODEL_ERROR, "the model paused 11 times in a row")


def test_a_refusal_fails_the_run_and_discards_what_was_said() -> None:
    refused = body(text("I"), tool_use("c1"), stop_reason="refusal", stop_details={"category": "cyber"})
    step = finished(after(refused))
    assert (step.outcome.reason, step.outcome.message) == (StopReason.REFUSAL, "the model refused: cyber")
    assert (step.outcome.answer, step.append) == (None, ())


def test_a_full_window_stops_the_run() -> None:
    step = finished(after(body(text("Ada"), stop_reason="model_context_window_exceeded")))
    assert (step.outcome.reason, step.outcome.answer) == (StopReason.CONTEXT_WINDOW, None)


@pytest.mark.parametrize("stop_reason", ["end_turn", "tool_use", "max_tokens"])
def test_a_run_cancelled_during_its_call_ends_whatever_the_answer(stop_reason: str) -> None:
    answered = ModelAnswered(answer=read_answer(body(tool_use("c1"), stop_reason=stop_reason)))
    step = next_step(AGENT, replace(RUN, cancel_requested=True), answered)
    assert finished(step).outcome.reason is StopReason.CANCELLED


# After a failure -----------------------------------------------------------------------------------------------------


def failure(kind: FailureKind, *, chance: float = 0.0, retry_after_seconds: float | None = None) -> ModelCallFailed:
    return ModelCallFailed(kind=kind, message="529 Overloaded", chance=chance, retry_after_seconds=retry_after_seconds)


def test_a_failure_that_passes_is_tried_again_after_a_growing_wait() -> None:
    waits = []
    for failures in range(4):
        step = held(next_step(AGENT, replace(RUN, streaks=Streaks(failures=failures)), failure(FailureKind.TRANSIENT)))
        assert (step.reason, step.holds_model) == ("529 Overloaded", False)
        assert step.streaks == Streaks(failures=failures + 1)
        waits.append(step.seconds)
    assert waits == [0.5, 1.0, 2.0, 4.0]


def test_a_call_that_failed_too_often_fails_the_run_with_the_last_reason() -> None:
    step = finished(next_step(AGENT, replace(RUN, streaks=Streaks(failures=4)), failure(FailureKind.TRANSIENT)))
    assert step.outcome.reason is StopReason.MODEL_ERROR
    assert step.outcome.message == "5 tries of one call failed; the last: 529 Overloaded"


def test_a_wait_is_shortened_by_chance_by_a_quarter_at_most() -> None:
    streaks = Streaks(failures=3)
    step = held(next_step(AGENT, replace(RUN, streaks=streaks), failure(FailureKind.TRANSIENT, chance=0.5)))
    assert step.seconds == 4.0 * (1 - 0.125)


@pytest.mark.parametrize("kind", [FailureKind.TRANSIENT, FailureKind.THROTTLED])
@pytest.mark.parametrize("seconds", [0.0, 1.5, 3600.0])
def test_the_servers_own_wait_is_kept_to(kind: FailureKind, seconds: float) -> None:
    step = held(next_step(AGENT, RUN, failure(kind, chance=0.9, retry_after_seconds=seconds)))
    assert step.seconds == seconds


def test_an_api_without_room_holds_the_model_and_costs_no_try() -> None:
    streaks = Streaks(failures=4, throttles=7)
    step = held(next_step(AGENT, replace(RUN, streaks=streaks), failure(FailureKind.THROTTLED)))
    assert step.holds_model
    assert step.streaks == Streaks(failures=4, throttles=8)
    assert step.seconds == 60.0


def test_a_storm_of_days_is_waited_out_minute_by_minute() -> None:
    streaks = Streaks(throttles=5_000)
    step = held(next_step(AGENT, replace(RUN, streaks=streaks), failure(FailureKind.THROTTLED)))
    assert step.seconds == 60.0


def test_a_worker_that_cannot_call_holds_the_run_alone_and_costs_no_try() -> None:
    streaks = Streaks(failures=4, throttles=7)
    step = held(next_step(AGENT, replace(RUN, streaks=streaks), failure(FailureKind.UNREADY)))
    assert (step.holds_model, step.streaks) == (False, streaks)


def test_a_refused_request_fails_the_run_with_the_apis_own_words() -> None:
    refused = ModelCallFailed(
        kind=FailureKind.REFUSED, message="temperature is deprecated", chance=0.0, blames=ErrorClass.INPUT
    )
    outcome = finished(next_step(AGENT, RUN, refused)).outcome
    assert (outcome.reason, outcome.message) == (StopReason.MODEL_ERROR, "temperature is deprecated")
    assert outcome.blames is ErrorClass.INPUT


# After a loss --------------------------------------------------------------------------------------------------------


def test_a_turn_whose_worker_was_lost_is_taken_again_and_the_loss_counted() -> None:
    run = replace(RUN, streaks=Streaks(failures=2, losses=1))
    step = next_step(AGENT, run, WorkerLost(poison_after=3))
    assert step == GoOn(append=(), advance=False, streaks=Streaks(failures=2, losses=2))


def test_a_turn_that_took_too_many_workers_with_it_is_poison() -> None:
    run = replace(RUN, streaks=Streaks(losses=2))
    outcome = finished(next_step(AGENT, run, WorkerLost(poison_after=3))).outcome
    assert outcome.reason is StopReason.POISON
    assert "3 workers" in outcome.message


# What was said so far ------------------------------------------------------------------------------------------------


def test_what_was_said_so_far_is_every_piece_of_a_cut_answer() -> None:
    question, cut, empty = user_text("Who?"), user_text(GO_ON_AFTER_CUT), user_text(GO_ON_AFTER_NOTHING)
    one, two = fragment(text("Ada ")), fragment(text("Love"))
    assert said_so_far([question]) == ""
    assert said_so_far([question, one]) == ""
    assert said_so_far([question, one, cut]) == "Ada "
    assert said_so_far([question, one, cut, two, cut]) == "Ada Love"
    assert said_so_far([question, one, cut, empty]) == "Ada "
    assert said_so_far([question, one, cut, empty, two, cut, empty, empty]) == "Ada Love"
    assert said_so_far([question, empty]) == ""
    assert said_so_far([question, one, cut, fragment(tool_use("c1")), user_text("results")]) == ""
    assert said_so_far([cut]) == ""
