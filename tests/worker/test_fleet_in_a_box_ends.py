"""Runs in the box that do not come to an answer by themselves, and what ends them."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal

import pytest
from worker.box.box import AGENT, Over, play_out
from worker.box.plan import Plan, Strike
from worker.box.promises import check_promises

from paceline.core.agent import Limits
from paceline.core.answer import Billed
from paceline.core.ledger import ModelCalled, PossiblyBilled
from paceline.core.prices import given_prices
from paceline.core.request_fields import RequestFields
from paceline.core.step import FailureKind, ModelCallFailed
from paceline.core.transcript import Fragment
from paceline.core.usage import Usage
from paceline.worker.scripted_model import ModelRequest, Reply, asks, says


def results(over: Over) -> list[str]:
    """The texts of all results, in order."""
    return [block["content"] for message in over.transcript for block in _results_in(message)]


def _results_in(message: Fragment) -> list[dict[str, str]]:
    return [block for block in json.loads(message)["content"] if block["type"] == "tool_result"]


def test_a_run_that_repeats_a_call_is_told_so_and_then_stopped() -> None:
    def again(request: ModelRequest, seen: int) -> Reply:
        return asks((f"c{request.turn}", "charge", {}))

    over = play_out(again)
    check_promises(over)
    assert (over.record.reason, over.record.error_class) == ("repeat_calls", "loop")
    assert len(over.charges) == 2
    assert "3 times in a row" in results(over)[2]
    assert len(results(over)) == 3


def test_a_run_whose_calls_all_fail_is_stopped_before_the_next_call() -> None:
    def misses(request: ModelRequest, seen: int) -> Reply:
        return asks((f"c{request.turn}", f"no_such_tool_{request.turn}", {}))

    over = play_out(misses)
    check_promises(over)
    assert (over.record.reason, over.record.error_class) == ("tool_errors", "tool")
    assert len(over.requests) == 3


HANDING_IN = replace(AGENT, finish={"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]})


def hands_in(request: ModelRequest, seen: int) -> Reply:
    match request.turn:
        case 1:
            return says("It is Ada.")
        case 2:
            return asks(("c1", "charge", {}), ("f1", "finish", {"who": 3}))
        case 3:
            return asks(("c2", "charge", {}))
        case _:
            return asks(("f2", "finish", {"who": "Ada"}), ("c3", "charge", {}))


def test_a_run_ends_with_what_it_hands_in_and_nothing_beside_it_runs() -> None:
    over = play_out(hands_in, agent=HANDING_IN)
    check_promises(over)
    assert (over.record.reason, over.record.answer) == ("finish_tool", '{"who": "Ada"}')
    assert len(over.charges) == 1
    assert len(over.requests) == 4


@pytest.mark.parametrize("strike", [Strike.KILL, Strike.STOP, Strike.OUTAGE])
def test_a_run_hands_in_whatever_happens_on_its_way(strike: Strike) -> None:
    quiet = play_out(hands_in, agent=HANDING_IN)
    written = [step for step, what in enumerate(quiet.steps, 1) if "store.open_calls" in what or "store.finish" in what]
    for step in written:
        over = play_out(hands_in, Plan(strikes={step: strike}), HANDING_IN)
        check_promises(over)
        assert over.record.answer == quiet.record.answer, (strike, step)
        assert len(over.charges) == 1


def test_an_answer_that_hands_in_under_an_id_of_before_is_asked_for_again() -> None:
    def reuses(request: ModelRequest, seen: int) -> Reply:
        if request.turn == 1:
            return asks(("c1", "look", {}))
        return asks(("c1" if not seen else "c2", "finish", {"who": "Ada"}))

    over = play_out(reuses, agent=HANDING_IN)
    check_promises(over)
    assert over.record.reason == "finish_tool"
    assert len(over.requests) == 3


def test_the_next_request_names_the_container_of_the_last_answer_and_the_agents_betas() -> None:
    def codes(request: ModelRequest, seen: int) -> Reply:
        answer = asks((f"c{request.turn}", "fetch", {}))
        return replace(answer, container="container_7") if request.turn == 1 else says("done")

    fields = RequestFields(betas=("task-budgets-2026-03-13",), body={"thinking": {"type": "adaptive"}})
    over = play_out(codes, agent=replace(AGENT, passed_through=fields))
    check_promises(over)
    assert [request.fields.get("container") for request in over.requests] == [None, "container_7"]
    assert all(request.betas == fields.betas for request in over.requests)
    assert all(request.fields["thinking"] == {"type": "adaptive"} for request in over.requests)


def test_attempts_that_may_have_been_billed_stop_a_run_before_its_limit_is_passed() -> None:
    def asks_on(request: ModelRequest, seen: int) -> Reply:
        return asks((f"c{request.turn}", "fetch", {}))

    agent = replace(AGENT, limits=Limits(repeats=None, tokens=2 * AGENT.max_tokens))
    quiet = play_out(asks_on, agent=agent)
    assert len(quiet.requests) > 2
    over = play_out(asks_on, Plan(strikes={quiet.steps.index("after model.call") + 1: Strike.KILL}), agent)
    check_promises(over)
    assert over.record.reason == "token_budget"
    assert over.record.run.spent.possibly_billed_tokens > AGENT.max_tokens
    assert len(over.requests) == 1


def test_a_broken_answer_costs_what_it_says_and_a_call_without_one_what_it_may() -> None:
    billed = Billed(model="claude-sonnet-5-5", usage=Usage(input=7, output=5), cost_nanousd=64_000)
    failed = ModelCallFailed(kind=FailureKind.TRANSIENT, message="cut", chance=0.0)

    def play(request: ModelRequest, seen: int) -> Reply:
        replies = [replace(failed, billed=billed), replace(failed, may_be_billed=True), failed]
        return replies[seen] if seen < len(replies) else says("done")

    over = play_out(play)
    check_promises(over)
    spent, answer = over.record.run.spent, says("done")
    assert spent.usage == billed.usage + answer.usage
    assert spent.cost_nanousd == 64_000 + (answer.cost_nanousd or 0)
    [possibly] = [entry for entry in over.ledger if isinstance(entry, PossiblyBilled)]
    assert (possibly.tokens, possibly.cost_nanousd) == (spent.possibly_billed_tokens, spent.possibly_billed_nanousd)
    assert [entry.stop_reason for entry in over.ledger if isinstance(entry, ModelCalled)] == ["broken", "end_turn"]


def test_a_model_of_unknown_price_is_limited_by_the_prices_that_its_agent_gives() -> None:
    def asks_on(request: ModelRequest, seen: int) -> Reply:
        return replace(asks((f"c{request.turn}", "fetch", {})), model="llama-12", cost_nanousd=None)

    prices = given_prices(Decimal(1), Decimal(10))
    limits = Limits(usd=0.05, repeats=None, turns=None)
    over = play_out(asks_on, agent=replace(AGENT, model="llama-12", limits=limits, prices=prices))
    check_promises(over)
    spent = over.record.run.spent
    assert over.record.reason == "cost_budget"
    assert spent.unpriced_calls == 0
    # 100 tokens in and 10 out each
    assert spent.cost_nanousd == len(over.requests) * (100 * 1_000 + 10 * 10_000) <= 50_000_000
    assert len(over.requests) > 1
