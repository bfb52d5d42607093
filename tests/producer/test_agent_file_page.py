"""docs/agent-file.md against the code: every key, its default, and what a tool is declared with."""

import inspect
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from paceline.core.agent import Agent, Limits
from paceline.producer import agent_file
from paceline.producer.passed_through import NOT_TAKEN, OutputConfigSection
from paceline.tools import ToolContext, tool

PAGE = (Path(__file__).parents[2] / "docs" / "agent-file.md").read_text()
ROWS = dict(re.findall(r"^\| `(\w+)` \| ?([^|]*?) ?\|", PAGE, re.MULTILINE))
"""The first two cells of each line of its tables."""


def sections(model: type[BaseModel]) -> set[str]:
    return set(model.model_fields)


@pytest.mark.parametrize("section", [agent_file._FileSection, agent_file._LimitsSection])
def test_every_key_of_the_file_has_its_line(section: type[BaseModel]) -> None:
    assert sections(section) - set(ROWS) == set()


@pytest.mark.parametrize("name", sorted({*sections(OutputConfigSection), *NOT_TAKEN}))
def test_what_is_passed_through_or_refused_is_named(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize(
    "name", ["max_tokens", "model_attempts", "empty_retries", "pauses", "on_unknown_effect", "on_denied", "compact_at"]
)
def test_the_defaults_of_the_file_are_the_agents(name: str) -> None:
    assert ROWS[name].strip("`") == str(getattr(Agent(name="a", model="m"), name))


def test_the_defaults_of_the_limits_are_the_agents() -> None:
    defaults = Limits().to_json() | {"repeats": Limits().repeats, "error_turns": Limits().error_turns}
    for name in sections(agent_file._LimitsSection):
        default = defaults["deadline_seconds" if name == "deadline" else name]
        assert ROWS[name] == "none" if default is None else float(ROWS[name]) == default, name


def test_every_argument_of_a_tool_has_its_line_with_its_default() -> None:
    for name, parameter in inspect.signature(tool).parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.default is not None:
            written = ROWS[name].strip("`").strip('"')
            assert (
                written == f"{parameter.default:g}" if isinstance(parameter.default, float) else str(parameter.default)
            ), name
    assert {"name", "reconcile"} <= set(ROWS)


def test_every_member_of_the_context_is_named() -> None:
    members = [name for name in dir(ToolContext) if not name.startswith("_")]
    assert [name for name in members if f"`{name}`" not in PAGE] == []
