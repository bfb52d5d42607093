"""Tools of the stories: one that sends Celery tasks of its own, one that dies, and some that are never in one order."""

# mypy: allow-untyped-calls
# Celery ships no type information.

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

from celery import current_app, group
from integration.effect_tools import EFFECTS_VARIABLE

from paceline.core.wire import Queue
from paceline.tools import Tool, ToolContext, tool


@tool(effect="once")
def fan(what: str) -> str:
    """Hand three tasks to the fleet's own Celery, as a group."""
    tasks = [current_app.signature("stories.note", args=[f"{what}-{part}"], queue=Queue.TOOLS) for part in range(3)]
    group(tasks, app=current_app).apply_async()
    return "handed over"


@tool(effect="reads")
def die_once(what: str, ctx: ToolContext) -> str:
    """Kill the process that runs it, the first time."""
    died = Path(os.environ[EFFECTS_VARIABLE]).with_name(f"died-{ctx.run_id}-{ctx.call_id}")
    if not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


SHUFFLED = tuple(f"shuffled_{number}" for number in range(6))
"""Tools that each worker process comes to know in an order of its own."""


def _make(name: str) -> Tool:
    @tool(effect="reads", placement="inline", name=name)
    def shuffled(what: str) -> str:
        """Look something up."""
        return f"{name} {what} " + "and so on " * 20

    return shuffled


for _name in random.sample(SHUFFLED, len(SHUFFLED)):
    globals()[_name] = _make(_name)
