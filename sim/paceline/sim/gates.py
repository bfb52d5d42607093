"""What a model does not take, though the request is well formed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from paceline.sim.headers import NO_SAMPLING_SINCE
from paceline.sim.models import ADAPTIVE, DISABLED, ENABLED, MODELS, Model, model_of
from paceline.sim.rules import Refusal, Rule, refuse

_SAMPLING = ("temperature", "top_p", "top_k")
_HIGH_EFFORTS = ("xhigh", "max")


def model_refusals(fields: Mapping[str, Any], version: str, now: float) -> Iterator[Refusal]:
    """What the model, once known, does not take at `now`, in Unix seconds."""
    model = model_of(fields["model"])
    if fields["model"] not in MODELS or model.is_retired(now):
        yield refuse(Rule.UNKNOWN_MODEL, model=fields["model"])
    yield from _sampling_refusals(fields, model, version)
    yield from _size_refusals(fields, model)
    yield from _thinking_refusals(fields, model)
    yield from _choice_refusals(fields, model)
    yield from _tool_refusals(fields, model)
    if fields.get("speed") == "fast" and model.fast == "refused":
        yield refuse(Rule.NO_FAST_MODE)


def _sampling_refusals(fields: Mapping[str, Any], model: Model, version: str) -> Iterator[Refusal]:
    for name in _SAMPLING:
        if name in fields and (version >= NO_SAMPLING_SINCE or not model.takes_sampling):
            yield refuse(Rule.SAMPLING_GONE, name)


def _size_refusals(fields: Mapping[str, Any], model: Model) -> Iterator[Refusal]:
    asked = fields.get("max_tokens")
    if asked is not None and asked > model.max_output_tokens:
        yield refuse(Rule.MAX_TOKENS_TOO_LARGE, asked=asked, most=model.max_output_tokens, model=fields["model"])
    if asked == 0:
        for what in _not_for_warming(fields):
            yield refuse(Rule.WARMING_WITH, what=what)


def _not_for_warming(fields: Mapping[str, Any]) -> Iterator[str]:
    if fields.get("stream"):
        yield "stream"
    if _thinking(fields) == ENABLED:
        yield "thinking"
    if (fields.get("output_config") or {}).get("format"):
        yield "output_config.format"
    if (fields.get("tool_choice") or {}).get("type") in ("any", "tool"):
        yield "a forced tool_choice"


def _thinking_refusals(fields: Mapping[str, Any], model: Model) -> Iterator[Refusal]:
    kind = _thinking(fields)
    if kind is None:
        return
    if kind not in model.thinking:
        yield refuse(Rule.NO_ADAPTIVE_THINKING) if kind == ADAPTIVE else refuse(Rule.THINKING_KIND, kind=kind)
    effort = (fields.get("output_config") or {}).get("effort")
    if kind == DISABLED and model.high_effort_needs_thinking and effort in _HIGH_EFFORTS:
        yield refuse(Rule.EFFORT_WITHOUT_THINKING, effort=effort)
    if kind == ENABLED and "max_tokens" in fields and fields["thinking"]["budget_tokens"] >= fields["max_tokens"]:
        yield refuse(Rule.BUDGET_TOO_LARGE)


def _thinking(fields: Mapping[str, Any]) -> str | None:
    kind = (fields.get("thinking") or {}).get("type")
    return kind if isinstance(kind, str) else None


def _choice_refusals(fields: Mapping[str, Any], model: Model) -> Iterator[Refusal]:
    choice = fields.get("tool_choice")
    if choice is None:
        return
    if not fields.get("tools"):
        yield refuse(Rule.CHOICE_WITHOUT_TOOLS)
    if choice.get("type") not in ("any", "tool"):
        return
    if not model.takes_forced_tool:
        yield refuse(Rule.CHOICE_NOT_SUPPORTED)
    if _thinking(fields) == ENABLED:
        yield refuse(Rule.CHOICE_WITH_THINKING)
    names = [tool.get("name") for tool in fields.get("tools") or ()]
    if choice["type"] == "tool" and choice.get("name") not in names:
        yield refuse(Rule.CHOSEN_TOOL_UNKNOWN, tool=choice.get("name"))


def _tool_refusals(fields: Mapping[str, Any], model: Model) -> Iterator[Refusal]:
    if not model.refused_tools:
        return
    refused = [tool["type"] for tool in fields.get("tools") or () if tool.get("type") in model.refused_tools]
    if refused:
        yield refuse(Rule.TOOL_TYPE_NOT_SUPPORTED, model=model.id, types=", ".join(refused))
