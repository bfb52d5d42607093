"""Turns of many parallel calls keep to the prompt cache, by the simulator's own accounting."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from paceline.core.agent import Agent
from paceline.core.answer import Answer
from paceline.core.tool_spec import ToolSpec
from paceline.core.transcript import Fragment, result_block, results_message, user_text
from paceline.core.usage import Usage
from paceline.sim import Answer as Says
from paceline.sim import Call, Request, Simulator
from paceline.worker.model import AnthropicModel, ModelClient

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
