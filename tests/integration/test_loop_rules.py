"""The loop's own rules on a real fleet: what is handed in, what comes again, and what keeps failing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from integration.fleet import FleetPlan, RealFleet

from paceline.core.agent import Limits
from paceline.core.endings import CallsRepeated, ToolsFailed
from paceline.sim import Answer, Call
from paceline.sim.request import Request

SCHEMA = {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}


def three_ends(request: Request) -> Answer:
    """Run 0 hands in, at the second try; run 1 pays again and again; run 2 never gets a call right."""
    match request.first_user_text[-1]:
        case "0":
            return Answer(calls=[Call(tool="finish", input={"who": 3 if request.turn == 1 else "Ada"})])
        case "1":
            return Answer(calls=[Call(tool="pay", input={"what": "rent"}), Call(tool="look", input={"what": "in"})])
        case _:
            return Answer(calls=[Call(tool="fetch", input={"whom": request.turn})])


def test_runs_hand_in_are_told_of_repeats_and_stopped_for_good_reason(tmp_path: Path) -> None:
    with RealFleet(tmp_path, three_ends, FleetPlan(workers=2)) as real:
        agent = replace(real.agent(limits=Limits(usd=None)), finish=SCHEMA)
        batch = real.submit(3, agent=agent)
        reasons = real.wait_ended(batch).counts.reasons
        assert reasons == {"finish_tool": 1, "repeat_calls": 1, "tool_errors": 1}
        handed_in, repeated, failed = batch.results()
        assert handed_in.output == {"who": "Ada"}
        with pytest.raises(CallsRepeated, match="4 times in a row"):
            _ = repeated.answer
        with pytest.raises(ToolsFailed, match="every call failed in 3 turns in a row"):
            _ = failed.answer
        assert [effect.tool for effect in real.effects() if effect.tool == "pay"] == ["pay", "pay"]
        assert (handed_in.turns, repeated.turns, failed.turns) == (2, 4, 3)
