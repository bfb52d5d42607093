"""Turns of many parallel calls keep to the prompt cache, by the simulator's own accounting."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from support.clock import FakeClock
from support.runs import BATCH, a_row

from paceline.core.agent import Agent, Limits
from paceline.core.answer import Answer
from paceline.core.ids import Incarnation, tag_of
from paceline.core.tool_spec import ToolSpec
from paceline.core.transcript import Fragment, result_block, results_message, user_text
from paceline.core.usage import Usage, usage_nanousd
from paceline.producer.progress import cache_share
from paceline.sim import Answer as Says
from paceline.sim import Call, Request, Simulator
from paceline.sim.journal import Usage as Billed
from paceline.store.memory import MemoryRunStore
from paceline.tools import Registry, tool
from paceline.worker.desk import Desk
from paceline.worker.model import AnthropicModel, ModelClient
from paceline.worker.settings import Settings
from paceline.worker.turn import take_turn

pytestmark = pytest.mark.anyio

TURNS = 20
CALLS = 12
SEARCH = ToolSpec(name="search", path="t:search", description="Search.", input_schema={"type": "object"})
AGENT = Agent(name="a", model="claude-sonnet-5-5", system="You look things up. " * 150, tools=(SEARCH,))
BOUND = "claude-fable-5-2"
"""Its thinking is bound to all that came before it, for every account."""
RESULT = "What there is to know of it. " * 35
"""A kilobyte."""


def twelve_calls(request: Request) -> Says:
    thinking = "Twelve at once." if request.model == BOUND else None
    return Says(
        thinking=thinking, calls=[Call(tool="search", input={"q": f"{request.turn} {place}"}) for place in range(CALLS)]
    )


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    with Simulator(twelve_calls) as running:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", running.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        yield running


@pytest.fixture
async def model(simulator: Simulator) -> AsyncIterator[ModelClient]:
    client = AnthropicModel(longest_seconds=30.0)
    yield client
    await client.aclose()


async def usages(model: ModelClient, agent: Agent) -> Sequence[Usage]:
    """What each turn of a run of so many calls a turn uses."""
    fragments: list[Fragment] = [user_text("Look it up.")]
    used = []
    for _ in range(TURNS):
        answer = await model.call(agent.request(fragments, max_tokens=4096, user_id="run-1"), seconds=30.0)
        assert isinstance(answer, Answer), answer
        assert answer.fragment is not None
        used.append(answer.usage)
        blocks = {call.call_id: result_block(call.call_id, RESULT, is_error=False) for call in answer.calls}
        fragments += [answer.fragment, results_message(list(blocks), blocks)]
    return used


async def test_twelve_parallel_results_a_turn_always_find_the_prefix(model: ModelClient) -> None:
    used = await usages(model, AGENT)
    for before, after in pairwise(used):
        assert after.cache_read == before.cache_read + before.cache_write, "all that was written is read again"
    share = sum(usage.cache_read for usage in used) / sum(usage.all_input for usage in used)
    assert share > 0.8


async def test_without_the_further_breakpoint_they_would_not(
    model: ModelClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.core.agent.with_breakpoint", lambda fragments: fragments)
    used = await usages(model, AGENT)
    share = sum(usage.cache_read for usage in used) / sum(usage.all_input for usage in used)
    assert share < 0.3


async def test_thinking_that_is_bound_to_what_came_before_it_bears_the_breakpoint(model: ModelClient) -> None:
    used = await usages(model, replace(AGENT, model=BOUND))
    for before, after in pairwise(used):
        assert after.cache_read == before.cache_read + before.cache_write


async def test_a_runs_cache_share_and_cost_are_those_of_the_journal(simulator: Simulator, model: ModelClient) -> None:
    turns = 40

    @tool(effect="reads", placement="inline", name="search")
    async def search(q: str) -> str:
        """Search."""
        return RESULT

    agent = replace(
        AGENT,
        tools=(search.spec,),
        limits=Limits(turns=turns, tokens=None, usd=None, error_turns=None),
        compact_at=None,
    )
    store, run_id = MemoryRunStore(FakeClock()), a_row().run_id
    await store.put_agent(agent.digest, agent.freeze())
    await store.submit(await store.open_batch(replace(BATCH, agent=agent.digest)), [a_row()])
    desk = Desk(
        settings=Settings(),
        store=store,
        model=model,
        registry=Registry(),
        built_in={search.spec.path: search},
        incarnation=Incarnation("worker-1"),
        send=lambda messages: None,
    )
    turn = 1
    while await take_turn(desk, run_id, turn):
        turn += 1

    record, counts = await store.run(run_id), await store.counts(tag_of(run_id))
    assert record is not None
    assert (record.reason, turn) == ("max_turns", turns + 1)
    billed = simulator.journal.usage_totals(run_id)
    usage = record.run.spent.usage
    assert (usage.input, usage.cache_read, usage.cache_write, usage.output) == (
        billed.input_tokens,
        billed.cache_read_input_tokens,
        billed.cache_creation_input_tokens,
        billed.output_tokens,
    )
    assert counts.spent.usage == usage
    costs = [usage_nanousd(_usage(entry.usage), agent.model) for entry in simulator.journal]
    assert record.run.spent.cost_nanousd == counts.spent.cost_nanousd == sum(cost or 0 for cost in costs)
    assert (cache_share(usage) or 0) > 0.9


def _usage(billed: Billed) -> Usage:
    return Usage(
        input=billed.input_tokens,
        cache_read=billed.cache_read_input_tokens,
        cache_write=billed.cache_creation_input_tokens,
        output=billed.output_tokens,
    )
