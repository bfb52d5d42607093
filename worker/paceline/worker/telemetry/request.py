"""What a chat says of its request beside what is on record: where it went, and what was asked of the model."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from paceline.core import trace_names as names
from paceline.core.agent import Agent
from paceline.core.run import Run
from paceline.core.trace_span import Value

_API = "https://api.anthropic.com"
_PORTS = {"http": 80, "https": 443}


def server_of(environment: Mapping[str, str]) -> Mapping[str, Value]:
    """Where the model is called, as far as these variables say; nothing where that is no address."""
    try:
        url = urlsplit(environment.get("ANTHROPIC_BASE_URL") or _API)
        port = url.port or _PORTS.get(url.scheme)
    except ValueError:
        return {}
    return {names.SERVER: url.hostname, names.SERVER_PORT: port} if url.hostname and port else {}


def asked(agent: Agent, run: Run) -> Mapping[str, Value]:
    """What the call of an attempt asks for that began with the run as it is here."""
    output = agent.passed_through.body.get("output_config", {})
    effort = output.get("effort")
    return {
        names.MAX_TOKENS: run.streaks.max_tokens or agent.max_tokens,
        names.OUTPUT_TYPE: "json" if output.get("format") else "text",
        **({names.REASONING: effort} if effort else {}),
    }
