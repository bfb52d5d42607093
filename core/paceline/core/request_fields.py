"""What an agent passes through to the API as it is, and the rules that the API holds it to.

A request that breaks one of these is refused with 400, run by run; here it is refused once, before anything is
submitted, with the rule's name. Models that are not known here are not judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from .models import binds_thinking, thinking_kinds

BETAS = frozenset(
    {
        "advisor-tool-2026-03-01",
        "cache-diagnosis-2026-04-07",
        "compact-2026-01-12",
        "context-management-2025-06-27",
        "fast-mode-2026-02-01",
        "inline-tools-2026-09-15",
        "mid-conversation-output-config-2026-07-01",
        "mid-conversation-tool-changes-2026-07-01",
        "output-300k-2026-03-24",
        "task-budgets-2026-03-13",
        "thinking-binding-controls-2026-08-01",
        "thinking-display-updates-2026-08-18",
    }
)
"""Values of the `anthropic-beta` header that change nothing in how the loop must work."""

SERVER_TOOLS = re.compile(
    r"(web_search|web_fetch|code_execution|tool_search_tool_regex|tool_search_tool_bm25|advisor)_\d{8}"
)
"""Tools that the API runs itself, by their type."""

CLEAR_TOOL_USES = "clear_tool_uses_20250919"
_EDITS = {
    CLEAR_TOOL_USES: "context-management-2025-06-27",
    "clear_thinking_20251015": "context-management-2025-06-27",
    "compact_20260112": "compact-2026-01-12",
}
"""Edits of the context, each with the beta that it needs."""
_LEAST_THINKING_BUDGET = 1024
_HIGH_EFFORTS = ("xhigh", "max")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFields:
    """Members of the request's body beside those that are paceline's own, and the betas of its header."""

    body: Mapping[str, Any] = field(default_factory=dict)
    """`thinking`, `output_config`, `service_tier`, `stop_sequences`, `context_management`: each as the API has it."""
    server_tools: tuple[Mapping[str, Any], ...] = ()
    """Entries of `tools` that the API runs itself."""
    betas: tuple[str, ...] = ()

    def bears_edits(self, model: str) -> bool:
        """Whether earlier messages may be edited in what is sent: the API does not edit them itself, and no thinking is
        bound to them, or what is bound may be dropped."""
        if "context_management" in self.body:
            return False
        thinking = self.body.get("thinking", {})
        is_dropped = thinking.get("block_binding", {}).get("prefix_mismatch_behavior") == "drop_block"
        return is_dropped or thinking.get("type") == "disabled" or not binds_thinking(model)

    def with_edit(self, edit: Mapping[str, Any]) -> RequestFields:
        """These, with one edit that the API makes of the context, and the beta that it needs."""
        body = {**self.body, "context_management": {"edits": [dict(edit)]}}
        betas = dict.fromkeys((*self.betas, _EDITS[edit["type"]]))
        return replace(self, body=body, betas=tuple(betas))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data; `from_json` reads it back."""
        return {"body": dict(self.body), "server_tools": list(self.server_tools), "betas": list(self.betas)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RequestFields:
        """What `to_json` wrote."""
        return cls(body=data["body"], server_tools=tuple(data["server_tools"]), betas=tuple(data["betas"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A rule of the API's that a request would break, and the field that breaks it."""

    at: tuple[str | int, ...]
    rule: str


def broken_rules(fields: RequestFields, *, model: str, max_tokens: int) -> Iterator[Broken]:
    """Every rule that requests with these fields would break."""
    body = fields.body
    yield from _thinking(body.get("thinking"), body.get("output_config", {}), model, max_tokens)
    yield from _format(body.get("output_config", {}).get("format"))
    yield from _stop_sequences(body.get("stop_sequences", ()))
    yield from _context_management(body.get("context_management"))
    yield from _betas(fields)
    yield from _server_tools(fields.server_tools)


def _thinking(
    thinking: Mapping[str, Any] | None, output_config: Mapping[str, Any], model: str, max_tokens: int
) -> Iterator[Broken]:
    if thinking is None:
        return
    kind, taken = thinking.get("type"), thinking_kinds(model)
    if taken is not None and kind not in taken:
        rule = f"{model} takes no thinking of type {kind!r}, but {', '.join(sorted(taken))}"
        yield Broken(at=("thinking", "type"), rule=rule)
    if kind == "enabled":
        yield from _budget(thinking.get("budget_tokens"), max_tokens)
    effort = output_config.get("effort")
    if kind == "disabled" and effort in _HIGH_EFFORTS and model.startswith("claude-opus-5"):
        yield Broken(at=("effort",), rule=f"{model} takes no effort {effort!r} with thinking disabled")


def _budget(budget_tokens: object, max_tokens: int) -> Iterator[Broken]:
    at = ("thinking", "budget_tokens")
    if not isinstance(budget_tokens, int) or budget_tokens < _LEAST_THINKING_BUDGET:
        yield Broken(at=at, rule=f"thinking that is enabled needs a budget of at least {_LEAST_THINKING_BUDGET} tokens")
    elif budget_tokens >= max_tokens:
        yield Broken(at=at, rule=f"max_tokens ({max_tokens}) must be greater than thinking.budget_tokens")


def _format(given: Mapping[str, Any] | None) -> Iterator[Broken]:
    at = ("output_config", "format")
    if given is None:
        return
    if given.get("type") != "json_schema" or not isinstance(given.get("schema"), dict):
        yield Broken(at=at, rule="the API takes {type: json_schema, schema: {...}}")
        return
    try:
        Draft202012Validator.check_schema(given["schema"])
    except SchemaError as error:
        yield Broken(at=(*at, "schema"), rule=f"not JSON Schema: at {error.json_path}: {error.message}")


def _stop_sequences(sequences: Sequence[str]) -> Iterator[Broken]:
    for index, sequence in enumerate(sequences):
        if not sequence.strip():
            yield Broken(at=("stop_sequences", index), rule="each stop sequence must contain non-whitespace")


def _context_management(given: Mapping[str, Any] | None) -> Iterator[Broken]:
    if given is None:
        return
    edits = given.get("edits")
    if not isinstance(edits, list) or not all(isinstance(edit, dict) for edit in edits):
        yield Broken(at=("context_management",), rule="the API takes {edits: [{type: ...}]}")
        return
    for index, edit in enumerate(edits):
        if edit.get("type") not in _EDITS:
            rule = f"there is no edit of type {edit.get('type')!r}, but {', '.join(_EDITS)}"
            yield Broken(at=("context_management", "edits", index), rule=rule)


def _betas(fields: RequestFields) -> Iterator[Broken]:
    for index, beta in enumerate(fields.betas):
        if beta not in BETAS:
            rule = f"{beta!r} is none of the betas that can be passed through: {', '.join(sorted(BETAS))}"
            yield Broken(at=("betas", index), rule=rule)
    for at, beta in (*_needed_betas(fields.body), *_needed_by_tools(fields.server_tools)):
        if beta not in fields.betas:
            yield Broken(at=at, rule=f"this needs {beta} under `betas`")


def _needed_betas(body: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    edits = (body.get("context_management") or {}).get("edits")
    for index, edit in enumerate(edits if isinstance(edits, list) else ()):
        if isinstance(edit, dict) and edit.get("type") in _EDITS:
            yield ("context_management", "edits", index), _EDITS[edit["type"]]
    if "block_binding" in body.get("thinking", {}):
        yield ("thinking", "block_binding"), "thinking-binding-controls-2026-08-01"
    if "task_budget" in body.get("output_config", {}):
        yield ("output_config", "task_budget"), "task-budgets-2026-03-13"


def _needed_by_tools(tools: Sequence[Mapping[str, Any]]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for index, tool in enumerate(tools):
        if str(tool.get("type")).startswith("advisor_"):
            yield ("server_tools", index), "advisor-tool-2026-03-01"


def _server_tools(tools: Sequence[Mapping[str, Any]]) -> Iterator[Broken]:
    for index, tool in enumerate(tools):
        if not SERVER_TOOLS.fullmatch(str(tool.get("type"))):
            rule = (
                f"{tool.get('type')!r} is no tool that the API runs itself (web_search_…, web_fetch_…, "
                "code_execution_…, tool_search_tool_…, advisor_…): name a function of your own, `module:function`"
            )
            yield Broken(at=("server_tools", index), rule=rule)
        elif not isinstance(tool.get("name"), str):
            yield Broken(at=("server_tools", index), rule=f"a tool of type {tool['type']} needs a `name`")
