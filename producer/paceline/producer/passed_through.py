"""The keys of an agent file that are passed through to the API, and what the API would refuse of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from paceline.core.agent import Agent
from paceline.core.request_fields import Broken, RequestFields, broken_rules

from .yaml_lines import KeyPath

NOT_TAKEN: Mapping[str, str] = {
    **dict.fromkeys(("temperature", "top_p", "top_k"), "the API refuses it since version 2026-10-21: take it out"),
    "tool_choice": "the loop lets the model choose, and today's models take nothing else: take it out",
}
"""Keys of a request that cannot be passed through, and why."""
_Effort = Literal["low", "medium", "high", "xhigh", "max"]
_AS_THEY_ARE = ("thinking", "service_tier", "stop_sequences", "context_management")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong, and where."""

    at: KeyPath
    message: str


class Section(BaseModel):
    """A part of the file that has these keys and no others."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class OutputConfigSection(Section):
    """`output_config`; its `effort` may stand at the top of the file too."""

    effort: _Effort | None = None
    format: dict[str, Any] | None = None
    task_budget: dict[str, Any] | None = None


class PassedThroughSection(Section):
    """The keys of a file that are passed through."""

    thinking: dict[str, Any] | None = None
    effort: _Effort | None = None
    output_config: OutputConfigSection | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    stop_sequences: list[str] | None = None
    context_management: dict[str, Any] | None = None
    betas: list[str] = Field(default_factory=list)


def is_server_tool(entry: object) -> bool:
    """Whether an entry of `tools` names a tool that the API runs itself."""
    return isinstance(entry, dict) and "type" in entry


def passed_through(section: PassedThroughSection, server_tools: Sequence[Mapping[str, Any]]) -> RequestFields:
    """What these keys come to in a request."""
    body = {name: getattr(section, name) for name in _AS_THEY_ARE if getattr(section, name) is not None}
    given = section.output_config.model_dump(exclude_unset=True) if section.output_config else {}
    output_config = given | ({"effort": section.effort} if section.effort else {})
    if output_config:
        body["output_config"] = output_config
    return RequestFields(body=body, server_tools=tuple(server_tools), betas=tuple(section.betas))


def request_problems(agent: Agent, places: Sequence[int]) -> Iterator[Problem]:
    """What the API would refuse. `places` says where among the tools of the file the server's own stand."""
    for broken in broken_rules(agent.passed_through, model=agent.model, max_tokens=agent.max_tokens):
        yield Problem(at=_place(broken, places), message=broken.rule)
    names = [str(tool.get("name")) for tool in agent.passed_through.server_tools]
    for place, name in zip(places, names, strict=True):
        if list(agent.tool_names).count(name) > 1:
            yield Problem(at=("tools", place), message=f"two tools are called {name!r}: give each a name of its own")


def _place(broken: Broken, places: Sequence[int]) -> KeyPath:
    match broken.at:
        case ("server_tools", int() as index):
            return ("tools", places[index])
        case at:
            return at
