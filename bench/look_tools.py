"""The tool, once for each placement; workers import it by its path."""

from __future__ import annotations

from bench.work import RESULT, TOOL_NAME
from paceline.tools import tool


@tool(effect="reads", placement="inline", name=TOOL_NAME)
async def look_inline(key: str) -> str:
    """Look up a key."""
    return RESULT


@tool(effect="reads", name=TOOL_NAME)
async def look_in_chord(key: str) -> str:
    """Look up a key."""
    return RESULT
