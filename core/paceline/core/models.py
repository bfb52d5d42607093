"""What is known of a model beyond its price: its window and the longest answer it gives (Anthropic's models page)."""

from __future__ import annotations

import re

_SMALL = re.compile(r"claude-(opus|sonnet|haiku)-4-5(-|$)")


def context_window_tokens(model: str) -> int:
    """How much the model can see at once: 200,000 tokens for the 4.5 line, a million for what came after."""
    return 200_000 if _SMALL.match(model) else 1_000_000


def max_output_tokens(model: str) -> int:
    """The highest `max_tokens` that the model accepts."""
    return 64_000 if _SMALL.match(model) else 128_000
