"""The queues, in the order in which a worker serves them, and which message goes where."""

from __future__ import annotations

from enum import StrEnum

from paceline.core.lifecycle import State
from paceline.core.run import Run


class Queue(StrEnum):
    """Work that finishes what was begun comes before work that begins something new."""

    TOOLS = "paceline.tools"
    TURNS = "paceline.turns"
    STARTS = "paceline.starts"


def queue_of_turn(run: Run) -> Queue:
    """Where the message for a run's next turn goes: first turns wait behind everybody else's next one."""
    return Queue.STARTS if run.state is State.QUEUED else Queue.TURNS
