"""What is to be sent to the fleet, as values. A coroutine answers with messages; whoever called it sends them."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core.ids import CallId, RunId
from paceline.core.wire import Queue


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnMessage:
    """Take this turn."""

    run_id: RunId
    turn: int
    queue: Queue = Queue.TURNS


@dataclass(frozen=True, slots=True, kw_only=True)
class ChordMessage:
    """Run these calls, and join when the record says that the last result is in."""

    run_id: RunId
    turn: int
    calls: tuple[CallId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinMessage:
    """Join this turn's results."""

    run_id: RunId
    turn: int


Message = TurnMessage | ChordMessage | JoinMessage
