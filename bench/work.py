"""The work that every variant does: the same conversation, so that only what carries it differs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

MODEL = "claude-sonnet-5-5"
MAX_TOKENS = 1024
SYSTEM = "You look things up with the tool, and answer when you have looked often enough."
TOOL_NAME = "look"
TOOL_DESCRIPTION = "Look up a key."
TOOL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"key": {"type": "string"}},
    "required": ["key"],
}
RESULT = "The page that was asked for, and what it says. " * 22
"""One kilobyte: what each call brings."""
ANSWER = "Having read what the tools brought, one thing is still to be looked up before I can say. " * 13
"""About 300 tokens together with the calls: what the model says each time."""

_PROMPT = re.compile(rb"turns=(\d+) calls=(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """`runs` conversations of `turns` turns; each but the last asks for `calls` calls at once."""

    runs: int
    turns: int
    calls: int

    @property
    def all_turns(self) -> int:
        return self.runs * self.turns

    @property
    def prompt(self) -> str:
        """The first message: the model reads in it how long the conversation is to be."""
        return f"Look often: turns={self.turns} calls={self.calls}."


def asked_for(request: bytes) -> tuple[int, int]:
    """Turns and calls that the prompt in this request asks for. Raises ValueError where there is none."""
    found = _PROMPT.search(request)
    if found is None:
        raise ValueError("the request has no prompt of the benchmark")
    return int(found[1]), int(found[2])
