"""Oddities of how an answer is written: its usage, its model, its fields, its headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from paceline.sim.faults import Fault
from paceline.sim.journal import Usage
from paceline.sim.models import MODELS

_RATE_LIMITS = "anthropic-ratelimit-"
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_CACHE_FIELDS = ("cache_creation", "cache_creation_input_tokens", "cache_read_input_tokens")
COMPACTED_TOKENS = 150_000


def misbilled(usage: Usage, fault: Fault | None) -> Usage:
    """What the prompt costs under a fault: a hit that is none is written anew."""
    if fault is None or fault.name != "cache_miss":
        return usage
    written = usage.cache_creation_5m_tokens + usage.cache_read_input_tokens
    return replace(usage, cache_creation_5m_tokens=written, cache_read_input_tokens=0)


def miswritten(message: dict[str, Any], fault: Fault | None) -> dict[str, Any]:
    """The message as a fault of stage WRITTEN leaves it."""
    match fault.name if fault else None:
        case "unknown_usage":
            strange = {"tokens_of_tomorrow": 17, "carbon": {"grams": 0.2}}
            return {**message, "usage": {**message["usage"], **strange}}
        case "unknown_fields":
            return {**message, "mood": "cheerful", "weather": {"sky": "clear"}}
        case "null_cache_fields":
            return {**message, "usage": {**message["usage"], **dict.fromkeys(_CACHE_FIELDS)}}
        case "other_model":
            return _from_another_model(message)
        case "compaction_iteration":
            return {**message, "usage": _with_compaction(message["usage"])}
        case _:
            return message


def misheaded(headers: Mapping[str, str], fault: Fault | None) -> Mapping[str, str]:
    """The rate limit headers as a fault of stage HEADERS leaves them."""
    match fault:
        case Fault(name="no_limit_headers"):
            return {name: value for name, value in headers.items() if not name.startswith(_RATE_LIMITS)}
        case Fault(name="skewed_clock", seconds=seconds):
            return {
                name: _moved(value, seconds) if name.endswith("-reset") else value for name, value in headers.items()
            }
        case _:
            return headers


def _moved(time: str, seconds: float) -> str:
    moment = datetime.strptime(time, _TIME).replace(tzinfo=UTC)
    return (moment + timedelta(seconds=seconds)).strftime(_TIME)


def _from_another_model(message: dict[str, Any]) -> dict[str, Any]:
    """As after a fallback: another model has answered, and its iteration says so."""
    other = next(name for name in MODELS if name != message["model"])
    iteration = {"type": "fallback_message", "model": other, **_counted(message["usage"])}
    return {**message, "model": other, "usage": {**message["usage"], "iterations": [iteration]}}


def _with_compaction(usage: dict[str, Any]) -> dict[str, Any]:
    compaction = {
        **_counted(usage),
        "type": "compaction",
        "input_tokens": COMPACTED_TOKENS,
        "output_tokens": 900,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
    return {**usage, "iterations": [compaction, {**_counted(usage), "type": "message"}]}


def _counted(usage: Mapping[str, Any]) -> dict[str, Any]:
    return {name: usage[name] for name in (*_CACHE_FIELDS, "input_tokens", "output_tokens")}
