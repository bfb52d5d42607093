"""Effects that came twice elsewhere: long tools, retries, replays. See docs/failure-stories.md."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from worker.box.box import AGENT, WAITING, Over, play_out
from worker.box.plan import Plan, Strike
from worker.box.promises import check_promises
from worker.box.worker import SETTINGS, at_its_path

from paceline.core.ledger import AttemptLost, CallRan, EffectInDoubt
from paceline.core.step import FailureKind
from paceline.tools import Tool, ToolContext, tool
from paceline.worker.scripted_model import ModelRequest, Reply, asks, fails, says

LONG_SECONDS = 200.0


@dataclass(slots=True)
class Bank:
    """The other side: what it was asked to charge, by idempotency key, and when that took effect."""

    seconds: float
    """How long a charge takes there; whoever asked may have given up by then."""
    asked: list[str] = field(default_factory=list)
    charged: list[str] = field(default_factory=list)
    under_way: set[asyncio.Future[None]] = field(default_factory=set)

    def as_tool(self, timeout_s: float) -> Tool:
        @tool(effect="once", name="pay", timeout_s=timeout_s)
        async def pay(ctx: ToolContext) -> str:
            """Pay."""
            self.asked.append(ctx.idempotency_key)
            charging = asyncio.ensure_future(self._charge(ctx.idempotency_key))
            self.under_way.add(charging)
            await asyncio.shield(charging)
            return "paid"

        return at_its_path(pay)

    async def _charge(self, key: str) -> None:
        await asyncio.sleep(self.seconds)
        self.charged.append(key)


def pays_once(request: ModelRequest, seen: int) -> Reply:
    return asks(("c1", "pay", {})) if request.turn == 1 else says("done")


def test_a_tool_that_takes_longer_than_every_claim_and_sweep_runs_once() -> None:
    assert 6 * SETTINGS.claim_seconds < LONG_SECONDS
    bank = Bank(seconds=LONG_SECONDS)
    pay = bank.as_tool(timeout_s=2 * LONG_SECONDS)
    over = play_out(pays_once, agent=replace(AGENT, tools=(pay.spec,)), tools=[pay])
    check_promises(over)
    assert over.record.reason == "final_answer"
    assert len(bank.asked) == len(bank.charged) == 1
    assert [entry.attempt for entry in over.ledger if isinstance(entry, CallRan)] == [1]


def test_a_worker_that_is_killed_after_it_paid_and_before_that_is_on_record_does_not_pay_again() -> None:
    quiet, over = play_out(charges, agent=WAITING), killed_before_the_result_is_stored()
    check_promises(over)
    assert over.transcript == quiet.transcript
    assert len(over.charges) == len(set(over.charges)) == 1
    assert [entry.why for entry in over.ledger if isinstance(entry, EffectInDoubt)] == ["its worker was lost"]


def charges(request: ModelRequest, seen: int) -> Reply:
    return asks(("c1", "charge", {})) if request.turn == 1 else says("done")


def killed_before_the_result_is_stored() -> Over:
    steps = play_out(charges, agent=WAITING).steps
    return play_out(charges, Plan(strikes={steps.index("before store.finish_call") + 1: Strike.KILL}), WAITING)


def test_a_payment_that_takes_effect_after_its_tool_was_given_up_is_not_made_again_by_paceline() -> None:
    bank = Bank(seconds=32.0)
    pay = bank.as_tool(timeout_s=30.0)
    over = play_out(pays_once, agent=replace(AGENT, tools=(pay.spec,)), tools=[pay])
    check_promises(over)
    assert len(bank.asked) == len(bank.charged) == 1


@pytest.mark.parametrize("tool_name", ["charge", "fetch"])
def test_a_turn_that_the_api_refuses_replays_none_before_it(tool_name: str) -> None:
    def refused(request: ModelRequest, seen: int) -> Reply:
        if request.turn < 3:
            return asks((f"c{request.turn}", tool_name, {"turn": request.turn}))
        return fails(FailureKind.REFUSED, "400 invalid_request_error: messages.4: no")

    over = play_out(refused)
    check_promises(over)
    assert (over.record.reason, over.record.message) == ("model_error", "400 invalid_request_error: messages.4: no")
    assert [request.turn for request in over.requests] == [1, 2, 3]
    ran = Counter(entry.call for entry in over.ledger if isinstance(entry, CallRan))
    assert ran == {"c1": 1, "c2": 1}


def test_a_turn_that_fails_for_a_while_is_taken_again_alone() -> None:
    def falters(request: ModelRequest, seen: int) -> Reply:
        if request.turn < 3:
            return asks((f"c{request.turn}", "charge", {}))
        return fails(FailureKind.TRANSIENT, "500 api_error") if seen < 3 else says("done")

    over = play_out(falters)
    check_promises(over)
    assert over.record.reason == "final_answer"
    assert [request.turn for request in over.requests] == [1, 2, 3, 3, 3, 3]
    assert len(over.charges) == 2
    assert not any(isinstance(entry, AttemptLost) for entry in over.ledger)
