"""A compaction, and fate at each step around it: what is sent follows from the record, whoever takes the turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from worker.box.box import AGENT, Over, play_out
from worker.box.plan import Plan, Strike
from worker.box.promises import check_promises
from worker.box.worker import at_its_path
from worker.test_fleet_in_a_box import BACKGROUND

from paceline.core.ledger import Compacted
from paceline.tools import Tool, tool
from paceline.worker.scripted_model import ModelRequest, Reply, asks, says

FULL = 6
"""The turn that does not fit the window."""
NOTE = "was cleared to make room"


def _page_tool() -> Tool:
    @tool(effect="reads")
    async def page(number: int) -> str:
        """A page."""
        return f"{number} " + "x" * 1_000

    return at_its_path(page)


PAGE = _page_tool()
BEARING = replace(AGENT, model="claude-haiku-4-5", tools=(PAGE.spec,))
"""Of a model that bears edits of what was said."""


def turns_pages(request: ModelRequest, seen: int) -> Reply:
    if request.turn == FULL and NOTE not in str(request.messages):
        return says("Half of it", stop_reason="model_context_window_exceeded")
    if request.turn > FULL:
        return says("done")
    return asks((f"c{request.turn}", "page", {"number": request.turn}))


def played(plan: Plan | None = None) -> Over:
    return play_out(turns_pages, plan, BEARING, tools=[PAGE])


def steps_around_it(over: Over) -> Iterator[int]:
    """From the call that finds no room to the end of the turn that has it, but for beats and sweeps."""
    calls = [at for at, what in enumerate(over.steps, start=1) if what == "before model.call"]
    return (at for at in range(calls[FULL - 1], calls[FULL + 1]) if over.steps[at - 1] not in BACKGROUND)


def test_it_is_made_once_and_the_run_goes_on() -> None:
    over = played()
    check_promises(over)
    assert over.record.answer == "done"
    (made,) = [entry for entry in over.ledger if isinstance(entry, Compacted)]
    assert (made.turn, made.results) == (FULL, 2), "of 5 the latest three are kept"
    told = [NOTE in str(request.messages) for request in over.requests]
    assert told == [False] * FULL + [True, True]


@pytest.mark.parametrize("strike", [Strike.KILL, Strike.FREEZE, Strike.STOP])
def test_whatever_happens_around_it_the_run_comes_to_the_same(strike: Strike) -> None:
    quiet = played()
    for step in steps_around_it(quiet):
        over = played(Plan(strikes={step: strike}))
        check_promises(over)
        assert over.transcript == quiet.transcript, f"{strike.name} at step {step}, {quiet.steps[step - 1]}"
        assert len([entry for entry in over.ledger if isinstance(entry, Compacted)]) == 1
