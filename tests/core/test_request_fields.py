"""What is passed through to the API, and the rules that it is held to before anything is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from support.wire import body, text

from paceline.core.agent import Agent
from paceline.core.answer import read_answer
from paceline.core.request_fields import RequestFields, broken_rules
from paceline.core.transcript import user_text

CLEARING = {"edits": [{"type": "clear_tool_uses_20250919"}]}


def broken(model: str = "claude-sonnet-5-5", betas: tuple[str, ...] = (), **fields: Any) -> list[str]:
    given = RequestFields(body=fields, betas=betas)
    return [f"{'.'.join(map(str, rule.at))}: {rule.rule}" for rule in broken_rules(given, model=model, max_tokens=4096)]


@pytest.mark.parametrize(
    ("model", "takes"),
    [
        ("claude-haiku-4-5", {"enabled", "disabled"}),
        ("claude-opus-4-6", {"enabled", "disabled", "adaptive"}),
        ("claude-opus-4-8", {"disabled", "adaptive"}),
        ("claude-opus-5", {"disabled", "adaptive"}),
        ("claude-opus-5-5", {"adaptive"}),
        ("claude-sonnet-5-5", {"disabled", "adaptive", "between_tools"}),
        ("claude-haiku-5-5", {"disabled", "adaptive"}),
        ("claude-fable-5-2", {"adaptive"}),
        ("a-model-of-ours", {"enabled", "disabled", "adaptive", "between_tools"}),
    ],
)
def test_each_model_has_its_kinds_of_thinking(model: str, takes: set[str]) -> None:
    kinds = {"enabled", "disabled", "adaptive", "between_tools"}
    assert {kind for kind in kinds if not broken(model, thinking={"type": kind, "budget_tokens": 2000})} == takes


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        (
            {"thinking": {"type": "disabled"}, "output_config": {"effort": "max"}, "model": "claude-opus-5"},
            "effort: claude-opus-5 takes no effort 'max' with thinking disabled",
        ),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 4096}, "model": "claude-haiku-4-5"},
            "thinking.budget_tokens: max_tokens (4096) must be greater than thinking.budget_tokens",
        ),
        (
            {"thinking": {"type": "enabled"}, "model": "claude-haiku-4-5"},
            "thinking.budget_tokens: thinking that is enabled needs a budget of at least 1024 tokens",
        ),
        (
            {"thinking": {"type": "adaptive", "block_binding": {}}},
            "thinking.block_binding: this needs thinking-binding-controls-2026-08-01 under `betas`",
        ),
        ({"stop_sequences": ["x", " "]}, "stop_sequences.1: each stop sequence must contain non-whitespace"),
        ({"output_config": {"format": {"type": "json"}}}, "output_config.format: the API takes {type: json_schema"),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": 3}}}},
            "output_config.format.schema: not JSON Schema: at $.type",
        ),
        (
            {"context_management": CLEARING},
            "context_management.edits.0: this needs context-management-2025-06-27 under `betas`",
        ),
        ({"context_management": {}}, "context_management: the API takes {edits: [{type: ...}]}"),
        (
            {"context_management": {"edits": [{"type": "x"}]}},
            "context_management.edits.0: there is no edit of type 'x'",
        ),
        ({"betas": ("x",)}, "betas.0: 'x' is none of the betas that can be passed through"),
        (
            {"output_config": {"task_budget": {"type": "tokens"}}},
            "output_config.task_budget: this needs task-budgets-2026-03-13 under `betas`",
        ),
    ],
)
def test_a_request_that_the_api_would_refuse_is_refused_with_the_rule(fields: dict[str, Any], rule: str) -> None:
    (found,) = broken(**fields)
    assert found.startswith(rule)


def test_a_request_that_keeps_to_the_rules_is_passed() -> None:
    betas = ("context-management-2025-06-27",)
    assert broken(betas=betas, context_management=CLEARING, output_config={"effort": "max"}) == []


@pytest.mark.parametrize(
    ("tool", "rule"),
    [
        ({"type": "code_execution_20260120", "name": "code_execution"}, ""),
        ({"type": "bash_20250124", "name": "bash"}, "'bash_20250124' is no tool that the API runs itself"),
        ({"type": "advisor_20260301", "name": "advisor"}, "this needs advisor-tool-2026-03-01 under `betas`"),
        ({"type": "web_search_20260209"}, "a tool of type web_search_20260209 needs a `name`"),
    ],
)
def test_only_tools_that_the_api_runs_itself_pass(tool: Mapping[str, Any], rule: str) -> None:
    found = list(broken_rules(RequestFields(server_tools=(tool,)), model="claude-opus-5", max_tokens=4096))
    assert [each.rule[: len(rule)] for each in found] == ([rule] if rule else [])


def test_what_is_passed_through_is_frozen_and_sent_as_it_is() -> None:
    search = {"type": "web_search_20260209", "name": "web_search"}
    fields = RequestFields(body={"thinking": {"type": "adaptive"}}, server_tools=(search,), betas=("b",))
    agent = Agent(name="a", model="claude-opus-5", passed_through=fields, finish={"type": "object"})
    assert Agent.thaw(agent.freeze()) == agent
    assert b"passed_through" not in Agent(name="a", model="m").freeze()
    sent = json.loads(agent.request([user_text("Who?")], max_tokens=5, user_id="u", container="c_1"))
    assert (sent["thinking"], sent["container"]) == ({"type": "adaptive"}, "c_1")
    assert [tool["name"] for tool in sent["tools"]] == ["web_search", "finish"]
    assert "container" not in json.loads(agent.request([user_text("Who?")], max_tokens=5, user_id="u"))


def test_the_container_of_an_answer_is_read() -> None:
    assert read_answer(body(text("Ada"), container={"id": "c_1", "expires_at": "2026"})).container == "c_1"
    assert read_answer(body(text("Ada"), container=None)).container == ""
