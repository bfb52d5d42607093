"""What a worker remembers of cleared messages is what anybody would make of the record, and is made once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.runs import a_block, asking

from paceline.core.agent import Agent
from paceline.core.compaction import sent_fragments
from paceline.core.ids import AgentDigest, CallId, RunId
from paceline.core.lifecycle import State
from paceline.core.run import Run
from paceline.core.transcript import Fragment, results_message, user_text
from paceline.worker import cleared_views
from paceline.worker.cleared_views import ClearedViews

AGENT = Agent(name="a", model="claude-haiku-4-5")
RUN = Run(run_id=RunId("a-1"), row_id="r", agent=AgentDigest("5f"), state=State.IN_TURN, turn=9, fence=1, cleared=5)


def transcript(turns: int = 5) -> tuple[Fragment, ...]:
    fragments = [user_text("Who?")]
    for call in (CallId(f"c{turn}") for turn in range(turns)):
        fragments += [asking(call), results_message([call], {call: a_block(call, "x" * 1_000)})]
    return tuple(fragments)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How far each view that was made is cleared."""
    made: list[int] = []

    def make(agent: Agent, fragments: Sequence[Fragment], cleared: int) -> Sequence[Fragment]:
        made.append(cleared)
        return sent_fragments(agent, fragments, cleared)

    monkeypatch.setattr(cleared_views, "sent_fragments", make)
    return made


def test_a_view_is_made_once_and_is_what_anybody_would_send(made: list[int]) -> None:
    views = ClearedViews()
    for turns in (5, 6, 7):
        assert views.sent(AGENT, RUN, transcript(turns)) == sent_fragments(AGENT, transcript(turns), 5)
    assert made == [5]
    later = replace(RUN, cleared=9)
    assert views.sent(AGENT, later, transcript()) == sent_fragments(AGENT, transcript(), 9)
    assert made == [5, 9]


def test_a_run_that_was_forgotten_and_submitted_again_has_no_view_of_its_earlier_life(made: list[int]) -> None:
    views, another = ClearedViews(), transcript(6)[2:]
    views.sent(AGENT, RUN, transcript())
    again = replace(RUN, submitted_ms=RUN.submitted_ms + 1)
    assert views.sent(AGENT, again, another) == sent_fragments(AGENT, another, 5)


def test_where_nothing_is_cleared_nothing_is_kept(made: list[int]) -> None:
    stored = transcript()
    assert ClearedViews().sent(AGENT, replace(RUN, cleared=0), stored) is stored
    assert made == []


def test_those_that_were_not_asked_for_of_late_are_forgotten(made: list[int]) -> None:
    stored = transcript()
    size = sum(map(len, sent_fragments(AGENT, stored, 5)[:5]))
    views = ClearedViews(most_bytes=2 * size)
    for name in ("a", "b", "a", "c", "a", "b"):
        assert views.sent(AGENT, replace(RUN, run_id=RunId(name)), stored) == sent_fragments(AGENT, stored, 5)
    assert len(made) == 4, "b was not asked for since c came"
    assert ClearedViews(most_bytes=0).sent(AGENT, RUN, stored) == sent_fragments(AGENT, stored, 5)
