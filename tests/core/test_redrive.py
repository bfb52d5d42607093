"""What the model is told of the calls that a run had left open at its end."""

from __future__ import annotations

import json

import pytest

from paceline.core.ids import CallId
from paceline.core.redrive import Left, LeftCall, answers, left_of
from paceline.core.tool_spec import Effect, Placement
from paceline.core.transcript import result_block
from paceline.core.unknown_effect import UNKNOWN_EFFECT


@pytest.mark.parametrize(
    ("effect", "placement", "was_begun", "left"),
    [
        (Effect.READS, Placement.FLEET, False, Left.NOT_BEGUN),
        (Effect.READS, Placement.INLINE, False, Left.BEGUN),
        (Effect.IDEMPOTENT, Placement.FLEET, True, Left.BEGUN),
        (Effect.ONCE, Placement.FLEET, False, Left.NOT_BEGUN),
        (Effect.ONCE, Placement.FLEET, True, Left.IN_DOUBT),
    ],
)
def test_how_far_a_call_had_come_follows_from_its_claim(
    effect: Effect, placement: Placement, was_begun: bool, left: Left
) -> None:
    assert left_of(effect, placement, was_begun=was_begun, is_in_doubt=False, is_denied=False) is left
    assert left_of(effect, placement, was_begun=was_begun, is_in_doubt=True, is_denied=False) is Left.IN_DOUBT
    assert left_of(effect, placement, was_begun=False, is_in_doubt=False, is_denied=True) is Left.DENIED


def test_a_result_that_is_there_is_kept_and_the_others_are_told_truly() -> None:
    kept = result_block(CallId("c1"), "Ada", is_error=False)
    calls = [
        LeftCall(call_id=CallId("c1"), left=Left.BEGUN, block=kept),
        LeftCall(call_id=CallId("c2"), left=Left.IN_DOUBT),
    ]
    first, second = json.loads(answers(calls))["content"]
    assert first == json.loads(kept)
    assert (second["tool_use_id"], second["content"], second["is_error"]) == ("c2", UNKNOWN_EFFECT, True)
