"""A tool, and what it is told, as one try of a call has them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import Any

from paceline.core.ids import RunId
from paceline.core.tool_spec import ToolSpec
from paceline.store.port import OpenCall
from paceline.tools import Tool, ToolContext

from .desk import Desk

KILL_MARGIN_SECONDS = 5.0
"""Beyond a tool's own timeout: a process in which it is not heard of by then hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Ready to run. `arguments` are as the model gave them."""

    tool: Tool
    arguments: Any
    context: ToolContext


def prepare(desk: Desk, spec: ToolSpec, run_id: RunId, turn: int, call: OpenCall, *, attempt: int) -> Prepared:
    """The tool under the run's own limits, not those of the code on this worker. Raises ToolLoadError."""
    arguments = json.loads(call.raw_input)
    context = ToolContext(
        run_id=run_id,
        turn=turn,
        call_id=call.call_id,
        attempt=attempt,
        deadline=time.time() + spec.timeout_s,
        arguments=arguments if isinstance(arguments, dict) else {},
    )
    return Prepared(tool=replace(desk.tool(spec.path), spec=spec), arguments=arguments, context=context)
