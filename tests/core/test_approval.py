"""What is done about calls that a person must approve."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from paceline.core.agent import Agent
from paceline.core.approval import OnDenied, denied_text, end_of_denied
from paceline.core.endings import StopReason
from paceline.core.ledger import ApprovalDecided, decode, encode

AGENT = Agent(name="payer", model="claude-sonnet-5-5")


def test_the_model_is_told_that_a_call_was_denied_and_why_if_somebody_said_so() -> None:
    assert denied_text("") == "The call was not run: a person denied it."
    assert denied_text("too much") == "The call was not run: a person denied it. The reason: too much"


def test_a_run_stops_for_calls_that_were_denied_and_for_nothing_else() -> None:
    outcome = end_of_denied(["pay (c1)", "mail (c2)"])
    assert outcome is not None
    assert (outcome.reason, outcome.message) == (
        StopReason.DENIED,
        "a person denied pay (c1), mail (c2) (on_denied: stop)",
    )
    assert end_of_denied([]) is None


@pytest.mark.parametrize("policy", list(OnDenied))
def test_an_agent_is_thawed_as_it_was_frozen(policy: OnDenied) -> None:
    agent = replace(AGENT, on_denied=policy)
    assert Agent.thaw(agent.freeze()) == agent


def test_an_agent_that_does_not_use_it_has_the_digest_it_had_before() -> None:
    assert "on_denied" not in json.loads(AGENT.freeze())


def test_the_ledger_keeps_what_a_person_said() -> None:
    entry = ApprovalDecided(turn=2, call="c1", tool="pay", at_ms=5, approved=False, reason="too much")
    assert decode(encode(entry)) == entry
    assert json.loads(encode(entry)) == {
        "kind": "approval",
        "version": 1,
        "turn": 2,
        "call": "c1",
        "tool": "pay",
        "at_ms": 5,
        "approved": False,
        "reason": "too much",
    }
