"""Limits from observed runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.advice import Advice, FinishedRun, LimitAdvice, advise, percentile
from paceline.core.agent import Agent, Limits
from paceline.core.endings import StopReason
from paceline.core.usage import NANO_USD, worst_case_nanousd

AGENT = Agent(name="oncall", model="claude-sonnet-4-6", max_tokens=1_000)
RUN = FinishedRun(
    reason=StopReason.FINAL_ANSWER,
    turns=5,
    tokens=40_000,
    working_ms=12_300,
    cost_nanousd=100_012_345,
    context_tokens=9_000,
)


def cut(reason: StopReason) -> FinishedRun:
    return replace(RUN, reason=reason, turns=25, tokens=299_000)


def of(advice: Advice, name: str) -> LimitAdvice:
    (found,) = [limit for limit in advice.limits if limit.name == name]
    return found


@pytest.mark.parametrize(
    ("percent", "expected"),
    [(50, 10), (95, 19), (100, 20), (1, 1)],
)
def test_a_percentile_is_one_of_the_values_and_that_part_of_them_does_not_pass_it(percent: int, expected: int) -> None:
    assert percentile(list(range(20, 0, -1)), percent) == expected


def test_of_few_values_the_p95_is_the_largest_and_of_none_there_is_none() -> None:
    assert percentile([3, 9, 4], 95) == 9
    assert percentile([7], 50) == 7
    assert percentile([], 95) is None


@given(values=st.lists(st.integers(0, 10**12), min_size=1), percent=st.integers(1, 100))
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_pass(values: list[int], percent: int) -> None:
    found = percentile(values, percent)
    assert found in values
    assert 100 * sum(value <= found for value in values) >= percent * len(values)
    assert 100 * sum(value < found for value in values) < percent * len(values)


def test_each_limit_is_twice_the_p95_in_its_own_unit() -> None:
    runs = [replace(RUN, turns=turns, tokens=10_000 * turns) for turns in range(1, 21)]
    advice = advise(AGENT, runs)
    assert (advice.finished, advice.succeeded) == (20, 20)
    turns, tokens, seconds, usd = advice.limits
    assert (turns.p50, turns.p95, turns.recommended) == (10, 19, 38)
    assert (tokens.p50, tokens.p95, tokens.recommended) == (100_000, 190_000, 380_000)
    assert (seconds.p95, seconds.recommended) == (12.3, 25)
    assert (usd.p95, usd.recommended) == (0.100012345, 0.2001)


def test_runs_that_did_not_succeed_say_nothing_about_what_runs_need() -> None:
    runs = [RUN, *[cut(StopReason.MAX_TURNS)] * 30]
    assert of(advise(AGENT, runs), "turns").recommended == 10


def test_a_limit_is_told_which_runs_it_cut() -> None:
    runs = [RUN, cut(StopReason.MAX_TURNS), cut(StopReason.MAX_TURNS), cut(StopReason.COST_BUDGET)]
    advice = advise(AGENT, [*runs, cut(StopReason.MODEL_ERROR), cut(StopReason.DEADLINE)])
    assert {limit.name: limit.cut_runs for limit in advice.limits} == {"turns": 2, "tokens": 0, "seconds": 0, "usd": 1}
    assert advice.deadline_cut_runs == 1
    assert (advice.finished, advice.succeeded) == (6, 1)


@pytest.mark.parametrize(("today", "is_idle"), [(50, False), (51, True), (5, False), (None, False)])
def test_a_limit_is_idle_above_ten_times_the_p95(today: int | None, is_idle: bool) -> None:
    agent = replace(AGENT, limits=Limits(turns=today))
    assert of(advise(agent, [RUN]), "turns").is_idle is is_idle


def test_a_limit_can_cut_runs_that_went_astray_and_lie_far_above_what_runs_need() -> None:
    turns = of(advise(replace(AGENT, limits=Limits(turns=60)), [RUN, cut(StopReason.MAX_TURNS)]), "turns")
    assert (turns.cut_runs, turns.is_idle, turns.times_p95) == (1, True, 12)


def test_without_a_success_nothing_is_recommended() -> None:
    advice = advise(AGENT, [cut(StopReason.TOKEN_BUDGET)])
    tokens = of(advice, "tokens")
    assert (tokens.p50, tokens.p95, tokens.recommended, tokens.is_idle, tokens.cut_runs) == (None, None, None, False, 1)
    assert advise(AGENT, []).succeeded == 0


def test_one_run_of_unknown_cost_makes_the_limit_on_dollars_unknown_and_no_other() -> None:
    advice = advise(AGENT, [RUN, replace(RUN, cost_nanousd=None)])
    assert of(advice, "usd").recommended is None
    assert of(advice, "tokens").recommended == 80_000


def test_a_limit_is_never_zero() -> None:
    assert of(advise(AGENT, [replace(RUN, working_ms=0)]), "seconds").recommended == 1


def test_every_run_within_twice_the_p95_is_left_room_for_its_last_call_and_one_beyond_it_is_not() -> None:
    usual, long, astray = (replace(RUN, tokens=tokens, context_tokens=tokens) for tokens in (2_000, 3_000, 4_001))
    tokens = of(advise(AGENT, [*[usual] * 38, long, astray]), "tokens")
    assert (tokens.p95, tokens.recommended) == (2_000, 3_000 + 3_000 + 1_000)


def test_a_short_run_is_left_room_for_the_worst_case_of_the_call_it_ends_with() -> None:
    short = replace(RUN, turns=1, tokens=2_000, cost_nanousd=9_000_000, context_tokens=2_000)
    advice = advise(AGENT, [short])
    assert (of(advice, "tokens").recommended, of(advice, "tokens").is_raised) == (2_000 + 2_000 + 1_000, True)
    worst = worst_case_nanousd(AGENT.model, input_tokens=2_000, output_tokens=1_000)
    assert worst is not None
    assert of(advice, "usd").is_raised
    assert of(advice, "usd").recommended == -(-(9_000_000 + worst) // 100_000) * 100_000 / NANO_USD
    assert not of(advise(AGENT, [RUN]), "tokens").is_raised
