"""Every stop reason is one that some run ends by, with the status, error class and exception that it promises."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from worker.box.box import AGENT, STOPPING, Over, Play, play_out
from worker.box.plan import Plan, Strike
from worker.box.plays import PLAYS
from worker.box.promises import check_promises

from paceline.core.agent import Agent, Limits
from paceline.core.approval import OnDenied
from paceline.core.endings import ENDINGS, StopReason
from paceline.core.models import max_output_tokens
from paceline.core.step import FailureKind
from paceline.producer.result import result_of
from paceline.worker.scripted_model import ModelRequest, Reply, asks, fails, says

HANDING_IN = replace(AGENT, finish={"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]})


def always(reply: Reply) -> Play:
    return lambda request, seen: reply


def asks_on(request: ModelRequest, seen: int) -> Reply:
    return asks((f"c{request.turn}", "fetch", {}))


def asks_on_slowly(request: ModelRequest, seen: int) -> Reply:
    time.sleep(0.002)  # what a worker works is told by its own clock, which goes on in a box too
    return asks_on(request, seen)


def misses(request: ModelRequest, seen: int) -> Reply:
    return asks((f"c{request.turn}", f"no_such_tool_{request.turn}", {}))


def repeats(request: ModelRequest, seen: int) -> Reply:
    return asks((f"c{request.turn}", "look", {}))


def breaks(request: ModelRequest, seen: int) -> Reply:
    raise RuntimeError("no client may raise this")


def limited(limits: Limits) -> Agent:
    return replace(AGENT, limits=replace(limits, repeats=None))


def struck(play: Play, strike: Strike, at: str, *, times: int = 1, agent: Agent = AGENT) -> Over:
    """The play with so many strikes, each the next time that this step is taken."""
    strikes: dict[int, Strike] = {}
    for _ in range(times):
        steps, last = play_out(play, Plan(strikes=strikes), agent).steps, max(strikes, default=0)
        strikes[steps.index(at, last) + 1] = strike
    return play_out(play, Plan(strikes=strikes), agent)


SCENARIOS: Mapping[StopReason, Callable[[], Over]] = {
    StopReason.FINAL_ANSWER: lambda: play_out(always(says("done"))),
    StopReason.FINISH_TOOL: lambda: play_out(always(asks(("f1", "finish", {"who": "Ada"}))), agent=HANDING_IN),
    StopReason.MAX_TURNS: lambda: play_out(asks_on, agent=limited(Limits(turns=2))),
    StopReason.TOKEN_BUDGET: lambda: play_out(asks_on, agent=limited(Limits(tokens=5_000))),
    StopReason.TIME_BUDGET: lambda: play_out(asks_on_slowly, agent=limited(Limits(seconds=0.001))),
    StopReason.DEADLINE: lambda: play_out(asks_on, agent=limited(Limits(deadline_seconds=10))),
    StopReason.COST_BUDGET: lambda: play_out(asks_on, agent=limited(Limits(usd=0.05))),
    StopReason.BATCH_BUDGET: lambda: play_out(asks_on, agent=limited(Limits()), budget=50_000_000),
    StopReason.REPEAT_CALLS: lambda: play_out(repeats),
    StopReason.TOOL_ERRORS: lambda: play_out(misses),
    StopReason.OUTPUT_TRUNCATED: lambda: play_out(
        always(asks(("c1", "fetch", {}), stop_reason="max_tokens")),
        agent=replace(AGENT, max_tokens=max_output_tokens(AGENT.model), limits=Limits(usd=None)),
    ),
    StopReason.INVALID_OUTPUT: lambda: play_out(always(says("It is Ada.")), agent=HANDING_IN),
    StopReason.CONTEXT_WINDOW: lambda: play_out(always(says("So", stop_reason="model_context_window_exceeded"))),
    StopReason.REFUSAL: lambda: play_out(always(says("I would", stop_reason="refusal"))),
    StopReason.MODEL_ERROR: lambda: play_out(always(fails(FailureKind.REFUSED, "401 authentication_error"))),
    StopReason.UNKNOWN_EFFECT: lambda: struck(
        PLAYS["calls that run once"], Strike.KILL, "before a tool", agent=STOPPING
    ),
    StopReason.DENIED: lambda: play_out(
        PLAYS["calls to approve"], Plan(denials=[True]), agent=replace(AGENT, on_denied=OnDenied.STOP)
    ),
    StopReason.POISON: lambda: struck(always(says("done")), Strike.KILL, "before model.call", times=3),
    StopReason.INTERNAL_ERROR: lambda: play_out(breaks),
    StopReason.CANCELLED: lambda: struck(asks_on, Strike.CANCEL, "after store.open_calls"),
}


@pytest.mark.parametrize("reason", StopReason)
def test_a_run_can_end_by_every_stop_reason_and_its_result_says_so(reason: StopReason) -> None:
    over = SCENARIOS[reason]()
    check_promises(over)
    result, ending = result_of(over.record), ENDINGS[reason]
    assert (result.stop_reason, result.status) == (reason, ending.status)
    if ending.exception is None:
        assert result.answer == over.record.answer
        assert result.error is None
        return
    assert result.error is not None
    assert result.error.error_class == ending.error_class
    assert result.answer_or_none is None
    with pytest.raises(ending.exception, match=over.record.run.run_id):
        assert result.answer
