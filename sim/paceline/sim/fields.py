"""The top-level fields of a request: which there are, and what each may hold. Messages and tools have modules
of their own."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from paceline.sim.grammar import format_refusals
from paceline.sim.models import THINKING_KINDS
from paceline.sim.rules import Refusal, Rule, refuse
from paceline.sim.schema import BLOCKS, Fields, block_refusals, marker_refusals, wrong_type

_E_MAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_COUNTED = (
    "model:string messages:list system?:content tools?:list tool_choice?:object thinking?:object"
    " output_config?:object cache_control?:object speed?:string"
)
_COUNT = Fields(_COUNTED)
_CREATE = Fields(
    f"{_COUNTED} max_tokens:integer container?:any diagnostics?:object inference_geo?:string metadata?:object"
    " service_tier?:string stop_sequences?:list stream?:boolean temperature?:number top_p?:number top_k?:integer"
)
_METADATA = Fields("user_id?:string")
_THINKING: Mapping[str, Fields] = MappingProxyType(
    {
        "adaptive": Fields("type:string display?:string block_binding?:object"),
        "between_tools": Fields("type:string"),
        "disabled": Fields("type:string"),
        "enabled": Fields("type:string budget_tokens:integer display?:string block_binding?:object"),
    }
)
_DISPLAYS = ("omitted", "summarized", "updates")
_BINDING = Fields("prefix_mismatch_behavior?:string")
_BINDINGS = ("drop_block", "error")
BINDING_BETA = "thinking-binding-controls-"
_LEAST_BUDGET = 1024
_OUTPUT = Fields("effort?:string format?:object task_budget?:object")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_CHOICE = Fields("type:string name?:string disable_parallel_tool_use?:boolean")
_CHOICES = ("auto", "any", "tool", "none")
_SPEEDS = ("standard", "fast")
# A field that is known only with its beta: `name: (type, prefix of the beta's name, or of those that will do)`.
_BETA_FIELDS: Mapping[str, tuple[str, str | tuple[str, ...]]] = MappingProxyType(
    {
        "mcp_servers": ("list", "mcp-client-"),
        "context_management": ("object", ("context-management-", "compact-2026-01")),
        "compaction": ("object", "compact-2026-09"),
        "fallbacks": ("any", "server-side-fallback-"),
        "fallback_credit_token": ("string", "fallback-credit-"),
        "thread": ("object", "message-threads-"),
    }
)


def field_refusals(fields: Mapping[str, Any], betas: Collection[str], *, counting: bool) -> Iterator[Refusal]:
    """What the top-level fields break, messages and tools apart; `counting` for the token counter's request."""
    plain = {name: value for name, value in fields.items() if not _is_open(name, betas)} if betas else fields
    for refusal in (_COUNT if counting else _CREATE).refusals(plain, ""):
        yield refuse(refusal.rule, refusal.at.lstrip("."), **refusal.values)
    yield from _metadata_refusals(fields)
    yield from _stop_refusals(fields)
    yield from _thinking_refusals(fields.get("thinking"), betas)
    yield from _output_refusals(fields.get("output_config"))
    if fields.get("tool_choice") is not None:
        yield from _CHOICE.refusals(fields["tool_choice"], "tool_choice")
        yield from _one_of(fields["tool_choice"]["type"], _CHOICES, "tool_choice.type")
    yield from _one_of(fields.get("speed") or "standard", _SPEEDS, "speed")
    for refusal in marker_refusals(fields, ""):
        yield refuse(refusal.rule, refusal.at.lstrip("."), **refusal.values)


def system_refusals(system: object) -> Iterator[Refusal]:
    """What the system prompt breaks."""
    for index, block in enumerate(system if isinstance(system, list) else ()):
        yield from block_refusals(block, {"text": BLOCKS["text"]}, f"system.{index}")


def _is_open(name: str, betas: Collection[str]) -> bool:
    beta = _BETA_FIELDS.get(name)
    return beta is not None and any(asked.startswith(beta[1]) for asked in betas)


def _metadata_refusals(fields: Mapping[str, Any]) -> Iterator[Refusal]:
    metadata = fields.get("metadata") or {}
    yield from _METADATA.refusals(metadata, "metadata")
    user_id = metadata.get("user_id") or ""
    if len(user_id) > 256:
        yield refuse(Rule.USER_ID_LENGTH)
    if _E_MAIL.search(user_id):
        yield refuse(Rule.USER_ID_PERSONAL)


def _stop_refusals(fields: Mapping[str, Any]) -> Iterator[Refusal]:
    for index, sequence in enumerate(fields.get("stop_sequences") or ()):
        yield from wrong_type(sequence, "string", f"stop_sequences.{index}")
        if not sequence.strip():
            yield refuse(Rule.BLANK_STOP_SEQUENCE)


def _thinking_refusals(thinking: Mapping[str, Any] | None, betas: Collection[str]) -> Iterator[Refusal]:
    if thinking is None:
        return
    kind = thinking.get("type")
    fields = _THINKING.get(kind) if isinstance(kind, str) else None
    if fields is None:
        expected = ", ".join(f"'{each}'" for each in THINKING_KINDS)
        yield refuse(Rule.UNKNOWN_TAG, "thinking", tag=kind, expected=expected)
        return
    yield from fields.refusals(thinking, f"thinking.{kind}")
    yield from _one_of(thinking.get("display") or "omitted", _DISPLAYS, f"thinking.{kind}.display")
    if kind == "enabled" and thinking["budget_tokens"] < _LEAST_BUDGET:
        yield refuse(Rule.BUDGET_TOO_SMALL)
    if thinking.get("block_binding") is not None:
        yield from _binding_refusals(thinking["block_binding"], betas, f"thinking.{kind}.block_binding")


def _binding_refusals(binding: Mapping[str, Any], betas: Collection[str], at: str) -> Iterator[Refusal]:
    if not any(beta.startswith(BINDING_BETA) for beta in betas):
        yield refuse(Rule.EXTRA_FIELD, at)
    yield from _BINDING.refusals(binding, at)
    behavior = binding.get("prefix_mismatch_behavior") or "error"
    yield from _one_of(behavior, _BINDINGS, f"{at}.prefix_mismatch_behavior")


def _output_refusals(output: Mapping[str, Any] | None) -> Iterator[Refusal]:
    if output is None:
        return
    yield from _OUTPUT.refusals(output, "output_config")
    yield from _one_of(output.get("effort") or "high", _EFFORTS, "output_config.effort")
    if output.get("format") is not None:
        yield from format_refusals(output["format"], "output_config.format")


def _one_of(value: object, allowed: Collection[str], at: str) -> Iterator[Refusal]:
    if value not in allowed:
        *others, last = (f"'{each}'" for each in allowed)
        yield refuse(Rule.WRONG_TYPE, at, expected=f"{', '.join(others)} or {last}")
