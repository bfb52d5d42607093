"""What is done about calls of which nobody knows what they did."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from paceline.core.agent import Agent
from paceline.core.endings import StopReason
from paceline.core.tool_spec import ToolSpec
from paceline.core.unknown_effect import OnUnknownEffect, Remedy, end_of_wait, remedy_of

PAY = ToolSpec(name="pay", path="bank:pay", description="Pay.", input_schema={"type": "object"})
ASKABLE = replace(PAY, reconciles=True)
AGENT = Agent(name="a", model="claude-sonnet-5-5", tools=(PAY, ASKABLE))


@pytest.mark.parametrize("policy", list(OnUnknownEffect))
def test_a_tool_that_can_be_asked_is_asked_first_and_once(policy: OnUnknownEffect) -> None:
    assert remedy_of(ASKABLE, policy, was_reconciled=False) is Remedy.RECONCILE
    assert remedy_of(ASKABLE, policy, was_reconciled=True) is not Remedy.RECONCILE


@pytest.mark.parametrize(
    ("policy", "remedy"),
    [
        (OnUnknownEffect.WAIT, Remedy.ASK),
        (OnUnknownEffect.STOP, Remedy.ASK),
        (OnUnknownEffect.TELL, Remedy.TELL),
    ],
)
@pytest.mark.parametrize("spec", [PAY, None])
def test_else_it_is_as_the_agent_wants_it(spec: ToolSpec | None, policy: OnUnknownEffect, remedy: Remedy) -> None:
    assert remedy_of(spec, policy, was_reconciled=False) is remedy
    assert remedy_of(ASKABLE, policy, was_reconciled=True) is remedy


def test_only_an_agent_that_stops_ends_its_wait_by_itself() -> None:
    outcome = end_of_wait(OnUnknownEffect.STOP, ["pay (c1)", "mail (c2)"])
    assert outcome is not None
    assert (outcome.reason, outcome.message) == (
        StopReason.UNKNOWN_EFFECT,
        "nobody knows whether pay (c1), mail (c2) took effect (on_unknown_effect: stop)",
    )
    assert end_of_wait(OnUnknownEffect.WAIT, ["pay (c1)"]) is None


@pytest.mark.parametrize("policy", list(OnUnknownEffect))
def test_an_agent_is_thawed_as_it_was_frozen(policy: OnUnknownEffect) -> None:
    agent = replace(AGENT, on_unknown_effect=policy)
    assert Agent.thaw(agent.freeze()) == agent


def test_an_agent_that_does_not_use_it_has_the_digest_it_had_before() -> None:
    frozen = json.loads(AGENT.freeze())
    assert "on_unknown_effect" not in frozen
    assert ["reconciles" in tool for tool in frozen["tools"]] == [False, True]
