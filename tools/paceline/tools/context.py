"""What a tool is told about the call it answers."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from paceline.core.ids import CallId, RunId, idempotency_key

_LOGGER = logging.getLogger("paceline.tool")


class CallLog(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records carry `run_id`, `turn`, `call_id` and `attempt`, beside what `extra` adds."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        # The base class drops a caller's own extra before Python 3.13.
        return msg, {**kwargs, "extra": {**(kwargs.get("extra") or {}), **(self.extra or {})}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """One call, as its tool sees it. A parameter annotated with this class is filled in, and hidden from the model."""

    run_id: RunId
    turn: int
    call_id: CallId
    attempt: int = 1
    """1 for the first try of this call."""
    deadline: float = math.inf
    """Seconds since the epoch: when the call is given up. Never later than the tool's own timeout allows."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """What the model called the tool with, as it came: for a `reconcile`, which has no parameters of the tool's."""

    @property
    def idempotency_key(self) -> str:
        """The same on every try of this call: hand it to whatever must not do the thing twice."""
        return idempotency_key(self.run_id, self.turn, self.call_id)

    @property
    def log(self) -> CallLog:
        """Logs to `paceline.tool`, with the ids of this call on each record."""
        return CallLog(
            _LOGGER,
            {"run_id": self.run_id, "turn": self.turn, "call_id": self.call_id, "attempt": self.attempt},
        )
