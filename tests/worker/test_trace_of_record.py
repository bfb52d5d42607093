"""The trace that is read from the record is the one that the workers tell while the run lasts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from support.told import Told
from worker.box.box import AGENT, WAITING, Over, play_out
from worker.box.plan import Plan, Strike
from worker.box.plays import PLAYS

from paceline.core import trace_names as names
from paceline.core.agent import Agent
from paceline.core.ledger import AttemptLost, Ended, Held, ModelCalled
from paceline.core.trace_record import recorded_spans
from paceline.core.trace_span import Place, Span
from paceline.core.trace_telling import ToldRun

Said = dict[Place, tuple[object, ...]]
ONLY_TOLD = {names.QUEUE, names.QUEUE_WAIT, names.WORKER, names.MAX_TOKENS, names.OUTPUT_TYPE}
"""Attributes that are not, or not always, on record."""


def _recorded(over: Over, agent: Agent) -> list[Span]:
    record = over.record
    told = ToldRun(
        run=record.run, agent_name=agent.name, model=agent.model, reason=record.reason, ended_ms=record.ended_ms
    )
    return recorded_spans(told, over.ledger, now_ms=record.ended_ms)


def _by_place(spans: Sequence[Span]) -> Said:
    """All that is said of each span, but when."""
    return {
        span.place: (
            span.name,
            span.kind,
            span.parent,
            span.error,
            span.links,
            [moment.name for moment in span.moments],
            {name: value for name, value in span.attributes.items() if name not in ONLY_TOLD},
        )
        for span in spans
    }


def _unrecorded(spans: Sequence[Span], over: Over) -> set[Place]:
    """Attempts that left nothing on record."""
    of_attempts = ModelCalled | Held | AttemptLost | Ended
    on_record = {entry.attempt for entry in over.ledger if isinstance(entry, of_attempts)}
    attempts = [span for span in spans if span.name == names.TURN_NAME or span.name.startswith(names.CHAT)]
    return {span.place for span in attempts if span.attributes[names.ATTEMPT] not in on_record}


def _compared(play: str, agent: Agent = AGENT, plan: Plan | None = None) -> tuple[Said, Said, str]:
    """What the record tells, and what was told of that while the run lasted; and what happened."""
    told = Told()
    over = play_out(PLAYS[play], plan, agent=agent, tracer=told)
    unrecorded = _unrecorded(told.spans, over)
    said = {place: what for place, what in _by_place(told.spans).items() if place not in unrecorded}
    strikes = plan.strikes if plan else {}
    when = [f"{strike.name} at step {step}: {over.steps[step - 1]}" for step, strike in strikes.items()]
    return _by_place(_recorded(over, agent)), said, ", ".join(when)


@pytest.mark.parametrize("play", PLAYS)
def test_what_the_record_tells_is_what_was_told(play: str) -> None:
    recorded, said, _ = _compared(play)
    assert recorded == said
    assert recorded


def _struck(play: str, strike: Strike) -> Iterator[Plan]:
    steps = len(play_out(PLAYS[play], agent=WAITING).steps)
    return (Plan(strikes={step: strike}) for step in range(1, steps, 5))


@pytest.mark.parametrize("play", ["inline and parallel calls", "all kinds of calls", "holds", "cut answers"])
def test_of_a_cancelled_run_the_record_tells_what_was_told(play: str) -> None:
    for plan in _struck(play, Strike.CANCEL):
        recorded, said, when = _compared(play, WAITING, plan)
        assert recorded == said, when


@pytest.mark.parametrize("play", ["all kinds of calls", "calls that can tell", "holds"])
@pytest.mark.parametrize("strike", [Strike.KILL, Strike.STOP])
def test_of_a_run_that_lost_a_worker_the_record_tells_what_was_told_and_what_could_not_be(
    play: str, strike: Strike
) -> None:
    for plan in _struck(play, strike):
        recorded, said, when = _compared(play, WAITING, plan)
        assert said.items() <= recorded.items(), when
        assert len(recorded) - len(said) <= 2, "no more than what was written last, and not told yet"
