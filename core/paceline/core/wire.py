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


POOLS = ("threads", "prefork")
"""The Celery pools that workers have."""


def unacked_key(pool: str) -> str:
    """Where a Redis broker keeps what workers of this pool have in hand, under its own prefix."""
    return f"unacked.{pool}"


def queue_of_turn(run: Run) -> Queue:
    """Where the message for a run's next turn goes: first turns wait behind everybody else's next one.

    So do first turns that were put on hold, or a busy model would turn the whole backlog into work that was begun. One
    whose worker was lost does not: it has waited its time.
    """
    is_held_first = run.state is State.ON_HOLD and run.turn == 1 and not run.lost_attempts
    return Queue.STARTS if run.state is State.QUEUED or is_held_first else Queue.TURNS
