"""What is known of a model beyond its price: its window and the longest answer it gives (Anthropic's models page)."""

from __future__ import annotations

import re

_SMALL = re.compile(r"claude-(opus|sonnet|haiku)-4-5(-|$)")
_BINDING = re.compile(r"claude-((fable|mythos)-5-[1-9]|(opus|sonnet|haiku)-5-5)(-|$)")
_THINKING = (
    (_SMALL, frozenset({"enabled", "disabled"})),
    (re.compile(r"claude-(opus|sonnet)-4-6(-|$)"), frozenset({"enabled", "disabled", "adaptive"})),
    (re.compile(r"claude-(opus-5-5|fable-|mythos-)"), frozenset({"adaptive"})),
    (re.compile(r"claude-sonnet-5-5"), frozenset({"disabled", "adaptive", "between_tools"})),
    (re.compile(r"claude-(opus|sonnet|haiku)-(4-[78]|5)"), frozenset({"disabled", "adaptive"})),
)
"""The first that matches counts."""


def context_window_tokens(model: str) -> int:
    """How much the model can see at once: 200,000 tokens for the 4.5 line, a million for what came after."""
    return 200_000 if _SMALL.match(model) else 1_000_000


def binds_thinking(model: str) -> bool:
    """Whether the model's signed thinking may be bound to all that stands before it, so that nothing of that may be
    edited in a request (Anthropic's pages on what is new in these models)."""
    return _BINDING.match(model) is not None


def max_output_tokens(model: str) -> int:
    """The highest `max_tokens` that the model accepts."""
    return 64_000 if _SMALL.match(model) else 128_000


def thinking_kinds(model: str) -> frozenset[str] | None:
    """The values of `thinking.type` that the model accepts (Anthropic's errors page); None: it is not known here."""
    return next((kinds for name, kinds in _THINKING if name.match(model)), None)
