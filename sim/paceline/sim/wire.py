"""A message as the API writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from paceline.sim.answer import Spoken, make_id
from paceline.sim.context_edits import Edited
from paceline.sim.journal import Usage
from paceline.sim.request import Request
from paceline.sim.server_tools import runs_code

CONTAINER_SECONDS = 300


def message_of(
    spoken: Spoken,
    usage: Usage,
    request: Request,
    *,
    now: float,
    speed: str = "standard",
    service_tier: str = "standard",
    changes: Sequence[Mapping[str, str]] | None = None,
    edited: Edited | None = None,
    iterations: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The answer to a request at `now`, in Unix seconds; equal conversations get equal ids. `changes` are told as
    `input_transformations`, unless None."""
    at_server = [block["name"] for block in spoken.content if block["type"] == "server_tool_use"]
    message: dict[str, Any] = {
        "id": make_id("msg_01", request.conversation),
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": spoken.content,
        "stop_reason": spoken.stop_reason,
        "stop_sequence": None,
        "stop_details": _stop_details(spoken.stop_reason),
        "container": _container(at_server, request, now),
        "usage": {
            "input_tokens": usage.input_tokens,
            "cache_creation_input_tokens": usage.cache_creation_input_tokens,
            "cache_read_input_tokens": usage.cache_read_input_tokens,
            "cache_creation": {
                "ephemeral_5m_input_tokens": usage.cache_creation_5m_tokens,
                "ephemeral_1h_input_tokens": usage.cache_creation_1h_tokens,
            },
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"thinking_tokens": spoken.thinking_tokens},
            "server_tool_use": _server_tool_use(at_server),
            "service_tier": service_tier,
            "inference_geo": "not_available",
            "speed": speed,
        },
    }
    if iterations:
        message["usage"] = {**message["usage"], "iterations": list(iterations)}
    if edited is not None:
        message["context_management"] = {"applied_edits": list(edited.applied)}
    return message if changes is None else {**message, "input_transformations": list(changes)}


def rfc_3339(now: float) -> str:
    """A moment as the API writes it."""
    return datetime.fromtimestamp(now, UTC).isoformat().replace("+00:00", "Z")


def _stop_details(stop_reason: str) -> dict[str, Any] | None:
    if stop_reason != "refusal":
        return None
    return {"type": "refusal", "category": "general_harms", "explanation": "The simulator was told to refuse."}


def _container(at_server: Sequence[str], request: Request, now: float) -> dict[str, Any] | None:
    """The container that code runs in: the one that was asked for, else a new one when there is code."""
    asked = request.fields.get("container")
    named = asked.get("id") if isinstance(asked, dict) else asked
    if not named and not any(runs_code(name) for name in at_server):
        return None
    return {
        "id": named or make_id("container_01", request.conversation),
        "expires_at": rfc_3339(now + CONTAINER_SECONDS),
    }


def _server_tool_use(at_server: Sequence[str]) -> dict[str, int] | None:
    if not at_server:
        return None
    return {
        "web_search_requests": at_server.count("web_search"),
        "web_fetch_requests": at_server.count("web_fetch"),
    }
