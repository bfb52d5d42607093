"""Tools that leave a trace in a file: what was really done to the world, whatever the record says.

The file is named by PACELINE_TEST_EFFECTS. A tool takes `seconds`, half before it takes effect and half after, so that
a worker can be killed on either side.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from paceline.tools import ToolContext, tool

EFFECTS_VARIABLE = "PACELINE_TEST_EFFECTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Something that a tool did. `key` is the call's idempotency key."""

    tool: str
    key: str
    run: str
    turn: int
    call: str
    attempt: int
    at: float
    """Unix seconds."""


def read_effects(path: Path) -> Sequence[Effect]:
    """What was done, in order."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [Effect(**json.loads(line)) for line in lines]


@tool(effect="reads")
def fetch(what: str, ctx: ToolContext, seconds: float = 0.0) -> str:
    """Fetch something."""
    return _do("fetch", what, seconds, ctx)


@tool(effect="reads", placement="inline")
def look(what: str, ctx: ToolContext) -> str:
    """Look at something near at hand."""
    return _do("look", what, 0.0, ctx)


@tool(effect="idempotent")
def put(what: str, ctx: ToolContext, seconds: float = 0.0) -> str:
    """Put something in its place; again changes nothing."""
    return _do("put", what, seconds, ctx)


@tool(effect="once")
def pay(what: str, ctx: ToolContext, seconds: float = 0.0) -> str:
    """Pay for something; again pays twice."""
    return _do("pay", what, seconds, ctx)


def _do(name: str, what: str, seconds: float, ctx: ToolContext) -> str:
    time.sleep(seconds / 2)
    effect = Effect(
        tool=name,
        key=ctx.idempotency_key,
        run=ctx.run_id,
        turn=ctx.turn,
        call=ctx.call_id,
        attempt=ctx.attempt,
        at=time.time(),
    )
    append_line(Path(os.environ[EFFECTS_VARIABLE]), json.dumps(asdict(effect)))
    time.sleep(seconds / 2)
    return f"{name} {what}"


def append_line(path: Path, line: str) -> None:
    """Lines of several processes do not mix, and a kill leaves no half of one."""
    # One write to a file opened for appending.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode() + b"\n")
    finally:
        os.close(file)
