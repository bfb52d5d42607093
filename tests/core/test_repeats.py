"""Calls that come again: found in a row and in turns about, told once, then the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.wire import body, tool_use

from paceline.core.agent import Agent, Limits
from paceline.core.answer import Call, read_answer
from paceline.core.endings import StopReason
from paceline.core.ids import AgentDigest, CallId, RunId
from paceline.core.lifecycle import State
from paceline.core.next_call import next_call
from paceline.core.repeats import MAX_FOLLOWED, History, decode, digest, encode, find_repeats
from paceline.core.run import Run, Streaks
from paceline.core.step import Finish, ModelAnswered, OpenCalls, Step, TurnBegun, next_step
from paceline.core.tool_spec import ToolSpec
from paceline.core.transcript import all_failed, result_block, results_message, user_text

RUN = Run(run_id=RunId("a-1"), row_id="r", agent=AgentDigest("5f0c"), state=State.IN_TURN, turn=2, fence=3)
POLL = ToolSpec(name="poll", path="t:poll", description="Poll.", input_schema={"type": "object"}, repeatable=True)
AGENT = Agent(name="a", model="claude-sonnet-5-5", tools=(POLL,))
CALL = next_call(AGENT, RUN, [user_text("Who is on call?")])


def call(name: str, call_id: str = "c1", tool: str = "search") -> Call:
    return Call(call_id=CallId(call_id), tool=tool, raw_input=json.dumps({"q": name}))


def times(*turns: str) -> list[int]:
    """For each turn, a word of calls, how often the first of them has come in a row."""
    history: History = ()
    counted = []
    for turn in turns:
        calls = [call(name) for name in turn]
        counted.append(find_repeats(calls, history, limit=1, exempt=()).found[0].times)
        history = (*history, frozenset(map(digest, calls)))
    return counted


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ("A A A A", [1, 2, 3, 4]),
        ("A B A B A B A", [1, 1, 2, 2, 3, 3, 4]),
        ("A B A C A D A", [1, 1, 2, 1, 2, 1, 2]),
        ("A A B A A", [1, 2, 1, 2, 2]),
        ("AB AC AD", [1, 2, 3]),
        ("AAA A", [1, 2]),
        ("AB C AD C A", [1, 1, 2, 2, 3]),
    ],
)
def test_a_call_comes_again_in_a_row_or_in_turns_about(turns: str, expected: list[int]) -> None:
    assert times(*turns.split()) == expected


def test_work_that_makes_progress_is_no_repeat() -> None:
    assert max(times("T", "1", "T", "2", "T", "3", "T", "4", "T")) == 2


def test_the_order_of_the_keys_makes_no_other_call_and_the_tool_does() -> None:
    one = Call(call_id=CallId("a"), tool="t", raw_input='{"x": 1, "y": 2}')
    two = Call(call_id=CallId("b"), tool="t", raw_input='{"y":2,"x":1}')
    other = Call(call_id=CallId("b"), tool="u", raw_input='{"y":2,"x":1}')
    assert digest(one) == digest(two) != digest(other)


@given(turns=st.lists(st.lists(st.sampled_from("ABC"), min_size=1, max_size=3), max_size=30), limit=st.integers(2, 4))
def test_what_is_kept_of_the_past_is_enough_and_bounded(turns: Sequence[Sequence[str]], limit: int) -> None:
    kept: History = ()
    everything: History = ()
    for turn in turns:
        calls = [call(name) for name in turn]
        now = find_repeats(calls, kept, limit=limit, exempt=())
        whole = find_repeats(calls, everything, limit=limit, exempt=())
        assert {r.call for r in now.found} == {r.call for r in whole.found}
        assert {r.call for r in now.found if r.times > limit} == {r.call for r in whole.found if r.times > limit}
        kept, everything = decode(encode(now.history)), (*everything, frozenset(map(digest, calls)))
    assert len(kept) <= 2 * limit


def test_of_a_huge_turn_only_so_many_calls_are_followed() -> None:
    history = find_repeats([call(str(n)) for n in range(64)], (), limit=3, exempt=()).history
    assert len(history[0]) == MAX_FOLLOWED


def test_streaks_are_stored_as_before_where_nothing_is_known_of_calls() -> None:
    known = Streaks(pauses=1, error_turns=2, asked=(frozenset({"0a0a0a0a", "1b1b1b1b"}), frozenset({"0a0a0a0a"})))
    assert Streaks.decode(known.encode()) == known
    assert known.encode() == "0,0,1,0,0,0,0,2,0,0a0a0a0a1b1b1b1b/0a0a0a0a"
    assert Streaks.decode("0,0,1,0,0,0,8192") == Streaks(pauses=1, max_tokens=8192)


# The step ------------------------------------------------------------------------------------------------------------


def asked(run: Run, *blocks: dict[str, object], agent: Agent = AGENT, failed: bool | None = None) -> Step:
    answer = read_answer(body(*blocks, stop_reason="tool_use"))
    return next_step(agent, run, ModelAnswered(answer=answer, all_failed=failed))


def opened(step: Step) -> OpenCalls:
    assert isinstance(step, OpenCalls), step
    return step


def test_the_third_call_of_a_kind_is_not_run_but_answered_and_the_fourth_stops_the_run() -> None:
    run = RUN
    for turn in (1, 2):
        step = opened(asked(run, tool_use(f"c{turn}", q="x")))
        assert step.answered == {}
        run = replace(run, streaks=step.streaks)
    third = opened(asked(run, tool_use("c3", q="x"), tool_use("d3", q="y")))
    assert list(third.answered) == ["c3"]
    assert "3 times in a row" in third.answered[CallId("c3")]
    fourth = asked(replace(run, streaks=third.streaks), tool_use("c4", q="x"), tool_use("d4", q="z"))
    assert isinstance(fourth, Finish)
    assert (fourth.outcome.reason, fourth.append) == (StopReason.REPEAT_CALLS, ())
    assert fourth.outcome.message == "search was asked for with the same arguments 4 times in a row (limits.repeats)"


@pytest.mark.parametrize("agent", [AGENT, Agent(name="a", model="claude-sonnet-5-5", limits=Limits(repeats=None))])
def test_a_tool_that_polls_and_an_agent_without_the_limit_may_repeat_themselves(agent: Agent) -> None:
    run = RUN
    for turn in range(9):
        step = opened(asked(run, tool_use(f"c{turn}", "poll"), agent=agent))
        assert step.answered == {}
        run = replace(run, streaks=step.streaks)


def test_turns_in_which_every_call_failed_are_counted_in_a_row() -> None:
    run = replace(RUN, streaks=Streaks(error_turns=1))
    assert opened(asked(run, tool_use("c1"), failed=True)).streaks.error_turns == 2
    assert opened(asked(run, tool_use("c1"), failed=False)).streaks.error_turns == 0
    assert opened(asked(run, tool_use("c1"), failed=None)).streaks.error_turns == 1


def test_the_third_turn_of_errors_in_a_row_ends_the_run_without_a_further_call() -> None:
    run = replace(RUN, streaks=Streaks(error_turns=2))
    step = next_step(AGENT, run, TurnBegun(call=CALL, now_ms=0, all_failed=True))
    assert isinstance(step, Finish)
    assert step.outcome.reason is StopReason.TOOL_ERRORS
    assert step.outcome.message == "every call failed in 3 turns in a row (limits.error_turns)"
    without = Agent(name="a", model="claude-sonnet-5-5", limits=Limits(error_turns=None))
    assert not isinstance(next_step(without, run, TurnBegun(call=CALL, now_ms=0, all_failed=True)), Finish)


def test_a_message_of_results_says_whether_all_failed() -> None:
    ids = [CallId("a"), CallId("b")]
    good, bad = (result_block(ids[0], '"is_error":true', is_error=False), result_block(ids[1], "no", is_error=True))
    worse = result_block(ids[0], "no", is_error=True)
    assert all_failed(results_message(ids, dict(zip(ids, (good, bad), strict=True)))) is False
    assert all_failed(results_message(ids, dict(zip(ids, (worse, bad), strict=True)))) is True
    assert all_failed(results_message(ids[:1], {ids[0]: good})) is False
    assert all_failed(user_text("Who?")) is None
