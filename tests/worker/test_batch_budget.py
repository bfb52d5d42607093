"""The budget of a batch is reserved before each call: whatever calls cost and whoever dies, it is never passed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runs import QUESTION
from worker.box.box import AGENT, play_out
from worker.box.crowd import Crowd, CrowdOver, all_out
from worker.box.plan import Plan, Strike
from worker.box.virtual_time import run_in_virtual_time

from paceline.core.agent import Agent, Limits
from paceline.core.answer import Answer
from paceline.core.ids import AgentDigest, RunId
from paceline.core.ledger import Held
from paceline.core.lifecycle import State
from paceline.core.next_call import next_call
from paceline.core.run import Run
from paceline.core.usage import Usage
from paceline.store.port import NewRun, TurnClaim
from paceline.worker.scripted_model import ModelRequest, Reply, asks, says

A_RUN = Run(run_id=RunId("a-1"), row_id="r", agent=AgentDigest("a"), state=State.IN_TURN, turn=1, fence=1)
PLAIN = replace(AGENT, limits=Limits(usd=None, tokens=None))


def first_call(agent: Agent = PLAIN) -> int:
    """The most that the first call of a run can cost, in nano-dollars."""
    nanousd = next_call(agent, A_RUN, [QUESTION]).at_worst.nanousd
    assert nanousd
    return nanousd


def costing(nanousd: int, answer: Answer | None = None) -> Answer:
    """An answer that cost so much."""
    used = Usage(output=PLAIN.max_tokens)
    return replace(answer or says("done"), usage=used, context_tokens=used.total, cost_nanousd=nanousd)


def ends(over: CrowdOver) -> Counter[str]:
    return Counter(record.reason for record in over.records)


def test_of_a_hundred_rows_with_a_budget_for_ten_ten_are_answered_and_no_other_makes_a_call() -> None:
    worst = first_call()
    over = all_out(lambda request, at_s: costing(worst), runs=100, agent=PLAIN, budget=10 * worst + worst // 2)
    assert ends(over) == {"final_answer": 10, "batch_budget": 90}
    assert over.looks[-1].requests == 10
    assert over.budget is not None
    assert (over.budget.spent, over.budget.reserved) == (10 * worst, 0)
    stopped = [record for record in over.records if record.reason == "batch_budget"]
    assert {(record.run.spent.cost_nanousd, record.error_class, record.answer) for record in stopped} == {
        (0, "budget", None)
    }


def test_what_calls_under_way_hold_is_waited_for_and_used_to_the_end() -> None:
    worst, cost = first_call(), first_call() // 10
    over = all_out(lambda request, at_s: costing(cost), runs=120, agent=PLAIN, budget=10 * worst)
    assert ends(over)["final_answer"] == 91, "one more call could have passed the budget"
    assert over.budget is not None
    assert over.budget.spent == 91 * cost <= over.budget.total
    waits = [entry for ledger in over.ledgers for entry in ledger if isinstance(entry, Held)]
    assert waits
    assert all(0 < entry.wait_seconds <= 60 for entry in waits)
    assert over.looks[-1].messages < 15 * 120, "nobody asks all the time"


def test_a_run_without_a_budget_asks_for_none() -> None:
    over = play_out(lambda request, seen: says("done"))
    assert not [step for step in over.steps if "reserve" in step or "release" in step]


def test_answers_of_unknown_price_are_held_at_their_worst_case() -> None:
    worst = first_call()
    unknown = replace(says("done"), model="llama-12", cost_nanousd=None)
    over = all_out(lambda request, at_s: unknown, runs=10, agent=PLAIN, budget=4 * worst)
    assert ends(over) == {"final_answer": 4, "batch_budget": 6}
    assert over.looks[-1].requests == 4


class KnownFromAnEarlierLife(Crowd):
    """Its budget has heard of claims of the first run that its record has lost, as it may in a failover."""

    async def _submit(self, rows: Sequence[NewRun]) -> None:
        await super()._submit(rows)
        await self.store.release(TurnClaim(run_id=rows[0].run_id, turn=1, fence=7), spent=0)


def test_a_run_whose_record_was_lost_and_begun_anew_is_not_stuck_behind_what_its_budget_knows() -> None:
    async def main() -> CrowdOver:
        crowd = KnownFromAnEarlierLife(
            lambda request, at_s: costing(first_call()), PLAIN, Plan(), runs=1, model_seconds=7.0, budget=first_call()
        )
        return await crowd.all_out(workers=2, look_seconds=5.0)

    over = run_in_virtual_time(main())
    assert ends(over) == {"final_answer": 1}
    assert over.records[0].run.lost_attempts == 0
    assert over.looks[-1].at_s <= 10.0, "nobody has waited for a claim to run out"


WORST = first_call()
"""What every call of the next test is billed, answered or not: no less than its first call could cost."""


def two_turns(request: ModelRequest, at_s: float) -> Reply:
    return costing(WORST, asks(("c1", "fetch", {})) if request.turn == 1 else None)


@given(
    strikes=st.dictionaries(st.integers(1, 250), st.sampled_from(Strike), max_size=5),
    affordable=st.integers(0, 14),
)
@settings(max_examples=40)
def test_whoever_dies_no_budget_is_passed_and_nothing_stays_reserved(
    strikes: dict[int, Strike], affordable: int
) -> None:
    budget = affordable * WORST + WORST // 2
    over = all_out(two_turns, runs=5, agent=PLAIN, budget=budget, plan=Plan(strikes=strikes), workers=2)
    billed = over.looks[-1].requests * WORST
    assert over.budget is not None
    assert billed <= min(over.budget.spent, budget)
    assert over.budget.reserved == 0
    assert set(ends(over)) <= {"final_answer", "batch_budget", "cancelled", "poison"}


@pytest.mark.parametrize("strike", [Strike.KILL, Strike.FREEZE, Strike.STOP])
def test_a_worker_that_is_lost_between_two_writes_of_money_leaves_the_budget_right(strike: Strike) -> None:
    quiet = all_out(two_turns, runs=1, agent=PLAIN, budget=20 * WORST, workers=2)
    steps = [step for step, what in enumerate(quiet.steps, 1) if "reserve" in what or "release" in what]
    assert len(steps) >= 8
    for step in steps:
        over = all_out(two_turns, runs=1, agent=PLAIN, budget=20 * WORST, plan=Plan(strikes={step: strike}), workers=2)
        assert ends(over) == {"final_answer": 1}
        assert over.budget is not None
        assert over.budget.reserved == 0, quiet.steps[step - 1]
        assert over.budget.spent == over.records[0].run.spent.nanousd_at_most, quiet.steps[step - 1]
