"""Money that was lost elsewhere: loops, storms of 429, cancels that stopped nothing. See docs/failure-stories.md."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from worker.box.box import AGENT, EPOCH_MS, MODEL_SECONDS, play_out
from worker.box.crowd import all_out
from worker.box.plan import Plan, Strike
from worker.box.promises import check_promises
from worker.box.worker import at_its_path

from paceline.core.agent import Agent, Limits
from paceline.core.ledger import Held
from paceline.core.lifecycle import State
from paceline.core.step import FailureKind
from paceline.tools import Tool, tool
from paceline.worker.scripted_model import ModelRequest, Reply, asks, fails, says

RUNS = 500
STORM_SECONDS = 600.0
FAN_OUT = 8


def asking_agent(*tools: Tool, limits: Limits | None = None) -> Agent:
    return replace(AGENT, tools=tuple(each.spec for each in tools), limits=limits or AGENT.limits)


@dataclass(slots=True)
class Other:
    """Another agent that only asks back: whatever it is asked, it wants something to be clarified."""

    asked: int = 0

    def as_tool(self) -> Tool:
        @tool(effect="once", name="ask")
        async def ask(question: str) -> str:
            """Ask the other agent."""
            self.asked += 1
            return f"Before I answer: what do you mean by {question!r}?"

        return at_its_path(ask)


def test_two_agents_that_ask_each_other_the_same_two_things_are_stopped_within_a_few_rounds() -> None:
    def clarifies(request: ModelRequest, seen: int) -> Reply:
        return asks((f"c{request.turn}", "ask", {"question": ("who?", "what?")[request.turn % 2]}))

    other = Other()
    ask = other.as_tool()
    over = play_out(clarifies, agent=asking_agent(ask, limits=Limits(turns=None, usd=None)), tools=[ask])
    check_promises(over)
    assert (over.record.reason, over.record.error_class) == ("repeat_calls", "loop")
    assert len(over.requests) <= 7
    assert other.asked == 4, "the third time each question is answered by a nudge"


def test_two_agents_that_find_ever_new_words_are_stopped_by_what_they_may_spend() -> None:
    def clarifies(request: ModelRequest, seen: int) -> Reply:
        return asks((f"c{request.turn}", "ask", {"question": f"what, the {request.turn}th time?"}))

    ask = Other().as_tool()
    limits = Limits(turns=None, tokens=None, seconds=None, usd=0.10)
    over = play_out(clarifies, agent=asking_agent(ask, limits=limits), tools=[ask])
    check_promises(over)
    assert over.record.reason == "cost_budget"
    assert 0 < over.record.run.spent.cost_nanousd <= 100_000_000


def test_a_storm_of_429_burns_no_run_of_a_batch() -> None:
    def storms(request: ModelRequest, asked_at: float) -> Reply:
        if asked_at < STORM_SECONDS:
            return fails(FailureKind.THROTTLED, "429 rate_limit_error", retry_after_seconds=STORM_SECONDS)
        return says("done")

    over = all_out(storms, runs=RUNS)
    assert Counter(record.reason for record in over.records) == {"final_answer": RUNS}
    in_storm = [look for look in over.looks if 2 * MODEL_SECONDS < look.at_s < STORM_SECONDS]
    assert in_storm
    assert all(look.counts.states[State.ON_HOLD] == RUNS for look in in_storm)
    assert {(look.requests, look.messages) for look in in_storm} == {(RUNS, RUNS)}, "a hold costs nothing"
    for record, ledger in zip(over.records, over.ledgers, strict=True):
        assert [entry.reason for entry in ledger if isinstance(entry, Held)] == ["429 rate_limit_error"]
        assert record.run.lost_attempts == 0
    assert over.looks[-1].requests == 2 * RUNS, "no run asked more often than it was told to"


def test_runs_that_were_told_to_wait_do_not_come_back_all_at_once() -> None:
    came: list[float] = []

    def storms(request: ModelRequest, asked_at: float) -> Reply:
        if asked_at < STORM_SECONDS:
            return fails(FailureKind.THROTTLED, "429 rate_limit_error", retry_after_seconds=STORM_SECONDS)
        came.append(asked_at)
        return says("done")

    all_out(storms, runs=100)
    assert min(came) >= STORM_SECONDS
    assert max(Counter(int(moment) for moment in came).values()) < 10


def test_retries_that_a_storm_did_not_consume_are_there_when_they_are_needed() -> None:
    def storms_and_falters(request: ModelRequest, seen: int) -> Reply:
        if seen < 20:
            return fails(FailureKind.THROTTLED, "429 rate_limit_error", retry_after_seconds=30)
        return fails(FailureKind.TRANSIENT, "a reset") if seen < 20 + AGENT.model_attempts - 1 else says("done")

    over = play_out(storms_and_falters)
    check_promises(over)
    assert over.record.reason == "final_answer"


@dataclass(slots=True)
class Slow:
    """A tool that takes its time, and notes when each of its calls began and ended."""

    seconds: float
    began: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)

    def as_tool(self) -> Tool:
        @tool(effect="reads", name="slow")
        async def slow() -> str:
            """Take a while."""
            self.began.append(asyncio.get_running_loop().time())
            await asyncio.sleep(self.seconds)
            self.ended.append(asyncio.get_running_loop().time())
            return "done"

        return at_its_path(slow)


def fans_out(request: ModelRequest, seen: int) -> Reply:
    if request.turn > 1:
        return says("done")
    return asks(*((f"c{place}", "slow", {}) for place in range(FAN_OUT)))


@pytest.mark.parametrize("begun", [1, 3, FAN_OUT])
def test_a_run_cancelled_in_a_fan_out_starts_no_further_call_and_is_cancelled_when_they_have_stopped(
    begun: int,
) -> None:
    slow = Slow(seconds=20.0)
    agent = asking_agent(slow.as_tool())
    steps = play_out(fans_out, agent=agent, tools=[slow.as_tool()]).steps
    claimed = [step for step, what in enumerate(steps, start=1) if what == "after store.begin_call"]

    slow = Slow(seconds=20.0)
    plan = Plan(strikes={claimed[begun - 1]: Strike.CANCEL})
    over = play_out(fans_out, plan, agent, tools=[slow.as_tool()])
    check_promises(over)
    assert over.record.reason == "cancelled"
    assert len(over.requests) == 1
    assert len(slow.began) == len(slow.ended) == begun
    assert over.record.ended_ms >= EPOCH_MS + 1000 * max(slow.ended)
