"""Whole runs, whatever the API, the tools, the broker and the workers do: judged by the simulator's rules and bills."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sim_wire import NOW
from worker.box.box import AGENT, Box, Over
from worker.box.plan import Fate, Plan, Strike
from worker.box.promises import check_promises
from worker.box.simulated import Billed, Line, SimulatedModel
from worker.box.virtual_time import run_in_virtual_time
from worker.box.worker import TOOLS, at_its_path

from paceline.core.agent import Agent, Limits
from paceline.core.endings import StopReason
from paceline.core.ledger import ModelCalled, PossiblyBilled
from paceline.core.usage import NANO_USD, Usage, usage_nanousd
from paceline.sim import Answer as Says
from paceline.sim import Call
from paceline.sim.faults import FAULTS, ON_PLAIN
from paceline.tools import ToolError, tool
from paceline.worker.scripted_model import ModelRequest, Reply

HOW = ("works", "fails", "breaks", "hangs", "says much", "says nothing")


async def _do(how: str) -> str:
    match how:
        case "fails":
            raise ToolError("it cannot", hint="try something else")
        case "breaks":
            raise KeyError("nothing there")
        case "hangs":
            await asyncio.sleep(1000)
        case "says much":
            return "much " * 6_000
    return "" if how == "says nothing" else "done"


async def see(how: str) -> str:
    """See."""
    return await _do(how)


async def glance(how: str) -> str:
    """See, at once."""
    return await _do(how)


async def act(how: str) -> str:
    """Act."""
    return await _do(how)


TRIED = (
    at_its_path(tool(effect="reads", timeout_s=5)(see)),
    at_its_path(tool(effect="reads", placement="inline", timeout_s=5)(glance)),
    at_its_path(tool(effect="once", timeout_s=5)(act)),
    *TOOLS,
)

_BEYOND_ALL_REASON = {"huge_answer", "huge_input", "input_huge_string"}
"""Hundreds of kilobytes, more than the tokens that they say they are: no API writes beyond `max_tokens`."""
_BILLED_BEYOND_WHAT_IS_ASKED = {"other_model", "compaction_iteration", "pause_turn", "mixed_server_call"}
"""What the API adds within a call (its own tools, a summary, another model), nobody can hold against a limit before."""
_REFUSED_BY_THE_SIMULATOR_ALONE = {"unknown_block"}
"""It takes back no block that it does not know, which the API does with its own."""
_LEFT_OUT = _BEYOND_ALL_REASON | _BILLED_BEYOND_WHAT_IS_ASKED | _REFUSED_BY_THE_SIMULATOR_ALONE
faults = st.sampled_from(sorted(name for name, stage in FAULTS.items() if stage in ON_PLAIN and name not in _LEFT_OUT))
calls = st.lists(
    st.builds(
        lambda name, how: Call(tool=name, input={"how": how}),
        st.sampled_from(["see", "glance", "act"]),
        st.sampled_from(HOW),
    )
    | st.builds(Call, tool=st.sampled_from([made.spec.name for made in TOOLS] + ["no_such_tool"])),
    min_size=1,
    max_size=3,
)
lines = st.builds(
    Line,
    says=st.builds(Says, calls=calls) | st.builds(Says, calls=calls) | st.builds(Says, text=st.just("All done.")),
    fault=st.none() | st.none() | faults,
)
limits = st.builds(
    Limits,
    turns=st.none() | st.integers(1, 8),
    tokens=st.none() | st.integers(1_000, 60_000),
    seconds=st.none() | st.floats(1, 60),
    deadline_seconds=st.none() | st.floats(5, 300),
    usd=st.none() | st.floats(0.001, 0.2),
    repeats=st.none() | st.just(3),
    error_turns=st.none() | st.integers(1, 3),
)
plans = st.builds(
    Plan,
    strikes=st.dictionaries(st.integers(1, 120), st.sampled_from(Strike), max_size=3),
    fates=st.lists(st.sampled_from(Fate), max_size=15),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """How a run ended, and what the simulator says of it."""

    over: Over
    billed: Sequence[Billed]
    refused: Sequence[str]
    seconds: Sequence[float]


@pytest.fixture(scope="module")
def api() -> Iterator[SimulatedModel]:
    model = SimulatedModel()
    yield model
    asyncio.run(model.aclose())


def played(model: SimulatedModel, agent: Agent, said: Sequence[Line], plan: Plan) -> Judged:
    """A run of these answers, to its end."""

    async def main() -> Judged:
        model.begin(iter(said), lambda: NOW + asyncio.get_running_loop().time())
        over = replace(await Box(_never_asked, plan, agent, TRIED, model=model).play_out(), failed_calls=model.failed)
        return Judged(over=over, billed=model.billed, refused=model.refused, seconds=model.seconds)

    return run_in_virtual_time(main())


def _never_asked(request: ModelRequest, seen: int) -> Reply:
    raise AssertionError("the box has another model")


@given(
    limits=limits,
    max_tokens=st.integers(64, 2048),
    model=st.sampled_from(["claude-sonnet-5-5", "claude-haiku-5-5", "claude-opus-5"]),
    said=st.lists(lines, max_size=12),
    plan=plans,
)
@settings(max_examples=100, deadline=None)
def test_every_request_is_accepted_every_run_ends_once_its_cost_is_the_journals_and_no_limit_is_passed(
    api: SimulatedModel, limits: Limits, max_tokens: int, model: str, said: Sequence[Line], plan: Plan
) -> None:
    agent = replace(AGENT, model=model, max_tokens=max_tokens, limits=limits, tools=tuple(made.spec for made in TRIED))
    judged = played(api, agent, said, plan)
    over, record = judged.over, judged.over.record
    check_promises(over)
    assert judged.refused == []
    assert record.reason in set(StopReason)
    _costs_are_the_journals(judged, model)
    _no_limit_is_passed(limits, judged)


def _costs_are_the_journals(judged: Judged, model: str) -> None:
    known = [entry for entry in judged.over.ledger if isinstance(entry, ModelCalled)]
    unanswered = [entry for entry in judged.over.ledger if isinstance(entry, PossiblyBilled)]
    # What is refused before anything is said costs nothing.
    on_record = Counter(entry.usage for entry in known if entry.usage != Usage())
    billed = Counter(each.usage for each in judged.billed)
    assert not on_record - billed, "a cost on record that nobody billed"
    assert (billed - on_record).total() <= len(unanswered), "something was billed and is nowhere held"
    assert all(entry.cost_nanousd == usage_nanousd(entry.usage, model) for entry in known)
    if not unanswered:
        assert judged.over.record.run.spent.usage == sum(billed.elements(), Usage())


def _no_limit_is_passed(limits: Limits, judged: Judged) -> None:
    run = judged.over.record.run
    assert limits.turns is None or run.turn <= limits.turns + 1
    assert limits.tokens is None or sum(each.usage.total for each in judged.billed) <= limits.tokens
    usd = sum(usage_nanousd(each.usage, each.model) or 0 for each in judged.billed) / NANO_USD
    assert limits.usd is None or usd <= limits.usd
    assert limits.seconds is None or all(0 < seconds <= limits.seconds for seconds in judged.seconds)
