"""No limit is ever passed: each is held against the worst case of the next call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.agent import Agent, Limits
from paceline.core.endings import StopReason
from paceline.core.ids import AgentDigest, RunId
from paceline.core.lifecycle import State
from paceline.core.limits import breach, seconds_left
from paceline.core.prices import ModelPrices, worst_case
from paceline.core.run import Run, Spent
from paceline.core.usage import NANO_USD, Usage, cost_nanousd, worst_case_nanousd

RUN = Run(
    run_id=RunId("a-1"),
    row_id="row-1",
    agent=AgentDigest("5f0c"),
    state=State.IN_TURN,
    turn=1,
    fence=1,
    submitted_ms=1_000_000,
)
NONE = Limits(turns=None, tokens=None, seconds=None, usd=None)


def reason(
    limits: Limits,
    run: Run = RUN,
    *,
    model: str = "claude-opus-5-5",
    input_tokens: int = 1_000,
    max_tokens: int = 500,
    now_ms: int = 1_000_000,
) -> StopReason | None:
    agent = Agent(name="a", model=model, limits=limits)
    outcome = breach(
        agent,
        run,
        call=worst_case(ModelPrices(model=model), input_tokens=input_tokens, output_tokens=max_tokens),
        now_ms=now_ms,
    )
    if outcome:
        assert "limits." in outcome.message
        assert outcome.answer is None
    return outcome.reason if outcome else None


def test_without_limits_nothing_stops_a_run() -> None:
    spent = Spent(usage=Usage(input=10**9), cost_nanousd=10**12, unpriced_calls=3, working_ms=10**9)
    run = replace(RUN, turn=10_000, spent=spent)
    assert reason(NONE, run, model="llama-12", now_ms=10**12) is None


def test_the_last_turn_is_taken_and_the_one_after_is_not() -> None:
    limits = replace(NONE, turns=3)
    assert reason(limits, replace(RUN, turn=3)) is None
    assert reason(limits, replace(RUN, turn=4)) is StopReason.MAX_TURNS


def test_tokens_may_be_reached_and_not_passed() -> None:
    run = replace(RUN, spent=Spent(usage=Usage(input=100, cache_read=200, cache_write=300, output=400)))
    assert reason(replace(NONE, tokens=2_500), run) is None
    assert reason(replace(NONE, tokens=2_499), run) is StopReason.TOKEN_BUDGET


def test_working_time_is_used_up_to_the_end() -> None:
    limits = replace(NONE, seconds=10.0)
    assert reason(limits, replace(RUN, spent=Spent(working_ms=9_999))) is None
    assert reason(limits, replace(RUN, spent=Spent(working_ms=10_000))) is StopReason.TIME_BUDGET
    assert seconds_left(limits, replace(RUN, spent=Spent(working_ms=9_999))) == pytest.approx(0.001)
    assert seconds_left(limits, replace(RUN, spent=Spent(working_ms=11_000))) == 0.0
    assert seconds_left(NONE, RUN) is None


def test_a_deadline_counts_from_submission_by_the_clock() -> None:
    limits = replace(NONE, deadline_seconds=60.0)
    assert reason(limits, now_ms=1_059_999) is None
    assert reason(limits, now_ms=1_060_000) is StopReason.DEADLINE


def test_dollars_may_be_reached_and_not_passed() -> None:
    worst = worst_case_nanousd("claude-opus-5-5", input_tokens=1_000, output_tokens=500)
    assert worst == (1_000 * 5_000 + 500 * 20_000) * 11 // 10
    run = replace(RUN, spent=Spent(cost_nanousd=NANO_USD - worst))
    assert reason(replace(NONE, usd=1.0), run) is None
    run = replace(RUN, spent=Spent(cost_nanousd=NANO_USD - worst + 1))
    assert reason(replace(NONE, usd=1.0), run) is StopReason.COST_BUDGET


def test_what_calls_without_an_answer_may_have_used_counts_until_it_is_known() -> None:
    lost = Spent.possibly(worst_case(ModelPrices(model="claude-opus-5-5"), input_tokens=700, output_tokens=300))
    run = replace(RUN, spent=lost + lost)
    assert reason(replace(NONE, tokens=3_500), run) is None
    assert reason(replace(NONE, tokens=3_499), run) is StopReason.TOKEN_BUDGET
    held = run.spent.possibly_billed_nanousd
    worst = worst_case_nanousd("claude-opus-5-5", input_tokens=1_000, output_tokens=500)
    assert held == 2 * (700 * 5_000 + 300 * 20_000) * 11 // 10
    assert worst is not None
    assert reason(replace(NONE, usd=(held + worst) / NANO_USD), run) is None
    assert reason(replace(NONE, usd=(held + worst - 1) / NANO_USD), run) is StopReason.COST_BUDGET
    assert (run.spent.cost_nanousd, run.spent.usage.total) == (0, 0)


def test_dollars_cannot_be_kept_to_where_the_price_is_unknown() -> None:
    limits = replace(NONE, usd=1.0)
    assert reason(limits, model="llama-12") is StopReason.COST_BUDGET
    assert reason(limits, replace(RUN, spent=Spent(unpriced_calls=1))) is StopReason.COST_BUDGET


def test_a_limit_of_nothing_lets_nothing_through() -> None:
    assert reason(replace(NONE, turns=0)) is StopReason.MAX_TURNS
    assert reason(replace(NONE, tokens=0)) is StopReason.TOKEN_BUDGET
    assert reason(replace(NONE, seconds=0)) is StopReason.TIME_BUDGET
    assert reason(replace(NONE, usd=0)) is StopReason.COST_BUDGET
    assert reason(replace(NONE, deadline_seconds=0)) is StopReason.DEADLINE


# A script of calls: for each how much of its input was cached how, how much of max_tokens it used, and what became of
# it. One that brought no answer was billed all the same: nobody else knows.
ANSWERED, UNANSWERED = "answered", "unanswered"
calls = st.lists(
    st.fixed_dictionaries(
        {
            "input_tokens": st.integers(0, 150_000),
            "read": st.floats(0, 1),
            "written": st.floats(0, 1),
            "output": st.floats(0, 1),
            "took_ms": st.integers(0, 200_000),
            "came": st.sampled_from([ANSWERED, ANSWERED, UNANSWERED]),
        }
    ),
    max_size=30,
)


@given(
    script=calls,
    model=st.sampled_from(["claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5-2"]),
    turns=st.integers(0, 20),
    tokens=st.integers(0, 400_000),
    usd=st.floats(0, 1),
    max_tokens=st.integers(1, 16_000),
)
def test_whatever_calls_use_no_limit_is_passed(
    script: list[dict[str, Any]], model: str, turns: int, tokens: int, usd: float, max_tokens: int
) -> None:
    limits = Limits(turns=turns, tokens=tokens, seconds=None, usd=usd)
    run, billed = RUN, Spent()
    for call in script:
        size = int(call["input_tokens"])
        if reason(limits, run, model=model, input_tokens=size, max_tokens=max_tokens):
            break
        used = _used(call, model, max_tokens)
        billed += used
        if call["came"] == ANSWERED:
            run = replace(run, turn=run.turn + 1, spent=run.spent + used)
        else:
            lost = Spent.possibly(worst_case(ModelPrices(model=model), input_tokens=size, output_tokens=max_tokens))
            run = replace(run, spent=run.spent + lost)
    assert run.turn - 1 <= turns
    assert billed.usage.total <= run.spent.tokens_at_most <= tokens
    assert billed.cost_nanousd <= run.spent.nanousd_at_most <= usd * NANO_USD


def _used(call: dict[str, Any], model: str, max_tokens: int) -> Spent:
    size = int(call["input_tokens"])
    read = int(size * call["read"])
    written = int((size - read) * call["written"])
    usage = Usage(
        input=size - read - written, cache_read=read, cache_write=written, output=int(max_tokens * call["output"])
    )
    cost = cost_nanousd(
        {
            "input_tokens": usage.input,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
            "output_tokens": usage.output,
        },
        model,
    )
    assert cost is not None
    return Spent(usage=usage, cost_nanousd=cost, working_ms=int(call["took_ms"]))
