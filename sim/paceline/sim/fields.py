"""The top-level fields of a request: which there are, and what each may hold. Messages and tools have modules
of their own."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from paceline.sim.headers import NO_SAMPLING_SINCE
from paceline.sim.models import MODELS, Model
from paceline.sim.rules import Refusal, Rule, refuse
from paceline.sim.schema import BLOCKS, Fields, block_refusals, marker_refusals, wrong_type

_SAMPLING = ("temperature", "top_p", "top_k")
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
# A field that is known only with its beta: `name: (type, prefix of the beta's name)`.
_BETA_FIELDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "mcp_servers": ("list", "mcp-client-"),
        "context_management": ("object", "context-management-"),
        "compaction": ("object", "compact-2026-09"),
        "fallbacks": ("any", "server-side-fallback-"),
        "fallback_credit_token": ("string", "fallback-credit-"),
        "thread": ("object", "message-threads-"),
    }
)


def field_refusals(fields: Mapping[str, Any], betas: Collection[str], *, counting: bool) -> Iterator[Refusal]:
    """What the top-level fields break, messages and tools apart; `counting` for the token counter's request."""
    plain = {name: value for name, value in fields.items() if not _is_open(name, betas)}
    for refusal in (_COUNT if counting else _CREATE).refusals(plain, ""):
        yield refuse(refusal.rule, refusal.at.lstrip("."), **refusal.values)
    yield from _metadata_refusals(fields)
    yield from _stop_refusals(fields)
    for refusal in marker_refusals(fields, ""):
        yield refuse(refusal.rule, refusal.at.lstrip("."), **refusal.values)


def model_refusals(fields: Mapping[str, Any], version: str) -> Iterator[Refusal]:
    """What the model, once known, does not take."""
    model = MODELS.get(fields["model"])
    if model is None:
        yield refuse(Rule.UNKNOWN_MODEL, model=fields["model"])
        return
    yield from _sampling_refusals(fields, model, version)
    asked = fields.get("max_tokens", 0)
    if asked > model.max_output_tokens:
        yield refuse(Rule.MAX_TOKENS_TOO_LARGE, asked=asked, most=model.max_output_tokens, model=fields["model"])
    yield from _choice_refusals(fields, model)


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


def _sampling_refusals(fields: Mapping[str, Any], model: Model, version: str) -> Iterator[Refusal]:
    for name in _SAMPLING:
        if name in fields and (version >= NO_SAMPLING_SINCE or not model.takes_sampling):
            yield refuse(Rule.SAMPLING_GONE, name)


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
    if (fields.get("thinking") or {}).get("type") == "enabled":
        yield refuse(Rule.CHOICE_WITH_THINKING)
    names = [tool.get("name") for tool in fields.get("tools") or ()]
    if choice["type"] == "tool" and choice.get("name") not in names:
        yield refuse(Rule.CHOSEN_TOOL_UNKNOWN, tool=choice.get("name"))
