"""An agent is frozen to bytes that say who it is, and its head is rendered the same everywhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.agent import Agent, Limits
from paceline.core.errors import NewerVersion
from paceline.core.request_fields import RequestFields
from paceline.core.tool_spec import Approval, Effect, Placement, ToolSpec
from paceline.core.transcript import user_text
from paceline.core.unknown_effect import OnUnknownEffect

GOLDEN = Path(__file__).parent.parent / "golden"

SEARCH = ToolSpec(
    name="search_wiki",
    path="wiki_tools:search_wiki",
    description="Pages that mention `query` ☃.",
    input_schema={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    effect=Effect.READS,
    placement=Placement.INLINE,
)
PAGE = replace(SEARCH, name="page_owner", path="wiki_tools:page_owner", effect=Effect.ONCE, approval=Approval.ALWAYS)
ONCALL = Agent(
    name="oncall",
    model="claude-sonnet-5-5",
    system="You find out who is on call.",
    tools=(SEARCH, PAGE),
    limits=Limits(turns=20, usd=None, deadline_seconds=3600.0),
)


WHOLE = replace(
    ONCALL,
    limits=Limits(repeats=None, error_turns=5),
    on_unknown_effect=OnUnknownEffect.STOP,
    finish={"type": "object", "properties": {"who": {"type": "string"}}},
    passed_through=RequestFields(
        body={"thinking": {"type": "adaptive"}, "stop_sequences": ["END"]},
        server_tools=({"type": "web_search_20260209", "name": "web_search"},),
        betas=("task-budgets-2026-03-13",),
    ),
)
"""With everything that an agent has only if it is set."""


def test_an_agent_thaws_to_what_was_frozen() -> None:
    assert Agent.thaw(ONCALL.freeze()) == ONCALL
    assert Agent.thaw(ONCALL.freeze()).freeze() == ONCALL.freeze()


@given(
    system=st.text(st.characters(exclude_categories=["Cs"])),
    max_tokens=st.integers(1, 128_000),
    turns=st.none() | st.integers(1, 100),
    usd=st.none() | st.floats(0.01, 100),
    tools=st.lists(st.sampled_from([SEARCH, PAGE]), unique_by=lambda tool: tool.name).map(tuple),
)
def test_any_agent_thaws_to_what_was_frozen(
    system: str, max_tokens: int, turns: int | None, usd: float | None, tools: tuple[ToolSpec, ...]
) -> None:
    limits = Limits(turns=turns, usd=usd)
    agent = Agent(name="a", model="m", system=system, max_tokens=max_tokens, limits=limits, tools=tools)
    thawed = Agent.thaw(agent.freeze())
    assert thawed == agent
    assert (thawed.digest, thawed.head) == (agent.digest, agent.head)


def test_equal_definitions_have_one_digest_and_others_another() -> None:
    assert replace(ONCALL).digest == ONCALL.digest
    others = [
        replace(ONCALL, system="Another."),
        replace(ONCALL, max_tokens=4097),
        replace(ONCALL, tools=(PAGE, SEARCH)),
        replace(ONCALL, limits=Limits()),
    ]
    assert len({ONCALL.digest, *(other.digest for other in others)}) == 5


def test_the_frozen_agent_of_this_version_stays_readable() -> None:
    frozen = (GOLDEN / "agent-1.json").read_bytes().rstrip()
    assert Agent.thaw(frozen) == ONCALL
    assert ONCALL.freeze() == frozen
    assert ONCALL.digest == "20ef7c212d2f84ab2328"
    whole = (GOLDEN / "agent-1-whole.json").read_bytes().rstrip()
    assert Agent.thaw(whole) == WHOLE
    assert WHOLE.freeze() == whole


def test_an_agent_of_another_version_is_refused_with_both_numbers() -> None:
    newer = json.dumps(json.loads(ONCALL.freeze()) | {"version": 9}).encode()
    with pytest.raises(NewerVersion, match=r"version 9 .* reads 1: upgrade it"):
        Agent.thaw(newer)


@pytest.mark.parametrize("name", ["agent-1.json", "agent-1-whole.json"])
def test_an_agent_with_one_field_more_is_read(name: str) -> None:
    stored = (GOLDEN / name).read_bytes()
    more = json.loads(stored) | {"mood": "good"}
    for part in (more["limits"], *more["tools"], more.get("passed_through", {})):
        part["colour"] = "red"
    assert Agent.thaw(json.dumps(more).encode()) == Agent.thaw(stored)


def test_the_head_of_this_agent_is_these_bytes() -> None:
    assert ONCALL.head == (GOLDEN / "agent-1-head.json").read_bytes().rstrip()


def test_the_head_holds_one_breakpoint_of_its_own_on_its_last_block() -> None:
    head = json.loads(ONCALL.head + b"]}")
    assert head["cache_control"] == {"type": "ephemeral"}
    assert head["system"][-1]["cache_control"] == {"type": "ephemeral"}
    assert not any("cache_control" in tool for tool in head["tools"])
    without_system = json.loads(replace(ONCALL, system="").head + b"]}")
    assert "system" not in without_system
    assert ["cache_control" in tool for tool in without_system["tools"]] == [False, True]
    assert json.loads(Agent(name="a", model="m").head + b"]}") == {
        "model": "m",
        "cache_control": {"type": "ephemeral"},
        "messages": [],
    }


def test_what_the_model_sees_of_a_tool_is_its_definition_alone() -> None:
    tools = json.loads(ONCALL.head + b"]}")["tools"]
    assert [set(tool) for tool in tools] == [{"name", "description", "input_schema"}] * 2
    assert ONCALL.tools_by_name["page_owner"] is PAGE


def test_each_request_begins_with_the_bytes_of_the_one_before() -> None:
    fragments: list[bytes] = [user_text("Who is on call?"), user_text("Quickly.")]
    first = ONCALL.request(fragments[:1], max_tokens=4096, user_id="u1")
    second = ONCALL.request(fragments, max_tokens=8192, user_id="u1")
    assert second.startswith(ONCALL.head + fragments[0])
    assert first.startswith(ONCALL.head + fragments[0])
    body = json.loads(second)
    assert (body["max_tokens"], body["metadata"]) == (8192, {"user_id": "u1"})
    assert body["messages"] == [json.loads(fragment) for fragment in fragments]
