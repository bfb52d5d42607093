"""What crosses from one process to another by name: the tasks, the queues, and a message's own header."""

from __future__ import annotations

from enum import StrEnum

from .lifecycle import State
from .run import Run

TURN_TASK = "paceline.turn"
TOOL_TASK = "paceline.tool"
JOIN_TASK = "paceline.join"

SENT_HEADER = "paceline_sent_ms"
"""When a message was sent, milliseconds since the epoch: a Celery message has no time of its own."""


class Queue(StrEnum):
    """In the order in which a worker serves them: what finishes something begun comes before what begins something."""

    TOOLS = "paceline.tools"
    TURNS = "paceline.turns"
    STARTS = "paceline.starts"


def queue_of_turn(run: Run) -> Queue:
    """Where the message for a run's next turn goes: first turns wait behind everybody else's next one."""
    return Queue.STARTS if run.state is State.QUEUED else Queue.TURNS
