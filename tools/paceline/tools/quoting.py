"""How a value is quoted in a message to the model: its JSON type and as much of it as helps."""

from __future__ import annotations

import json

_SHOWN_CHARS = 80


def quoted(value: object) -> str:
    """`string "abc"`, `null`, `object {"a": 1}`: the JSON type, then the value, shortened."""
    match value:
        case None:
            return "null"
        case bool():
            return f"boolean {_shown(value)}"
        case int() | float():
            return f"number {_shown(value)}"
        case str():
            return f"string {_shown(value[: 2 * _SHOWN_CHARS])}"
        case list() | tuple():
            return f"array {_shown(value)}"
        case dict():
            return f"object {_shown(value)}"
        case _:
            return type(value).__name__


def _shown(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=lambda other: type(other).__name__)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
