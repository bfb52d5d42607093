"""A message as the API writes it."""

from __future__ import annotations

from typing import Any

from paceline.sim.answer import Spoken, make_id
from paceline.sim.journal import Usage
from paceline.sim.request import Request


def message_of(spoken: Spoken, usage: Usage, request: Request) -> dict[str, Any]:
    """The answer to a request; equal conversations get equal ids."""
    return {
        "id": make_id("msg_01", request.conversation),
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": spoken.content,
        "stop_reason": spoken.stop_reason,
        "stop_sequence": None,
        "stop_details": _stop_details(spoken.stop_reason),
        "container": None,
        "usage": _usage_of(usage, str(request.fields.get("speed") or "standard")),
    }


def _stop_details(stop_reason: str) -> dict[str, Any] | None:
    if stop_reason != "refusal":
        return None
    return {"type": "refusal", "category": "general_harms", "explanation": "The simulator was told to refuse."}


def _usage_of(usage: Usage, speed: str) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_creation_5m_tokens,
            "ephemeral_1h_input_tokens": usage.cache_creation_1h_tokens,
        },
        "output_tokens": usage.output_tokens,
        "server_tool_use": None,
        "service_tier": "standard",
        "inference_geo": "not_available",
        "speed": speed,
    }
