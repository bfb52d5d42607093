"""What is done about a call that a person must approve before it runs: decided here, done elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from .endings import Outcome, StopReason

DENIED = "The call was not run: a person denied it."
"""What the model is told of a call that was denied."""


class OnDenied(StrEnum):
    """What an agent's runs do when a person denies a call."""

    TELL = "tell"
    """Tell the model so, as the result of the call."""
    STOP = "stop"
    """Stop, with `denied`, when the other calls of the turn are done."""


class Permission(StrEnum):
    """Whether an open call may run, as far as that is for a person to say."""

    GIVEN = "given"
    """Somebody approved it, or nobody needs to."""
    WANTED = "wanted"
    DENIED = "denied"
    """It never runs, and its run ends for it."""


def denied_text(reason: str) -> str:
    """What the model is told of a call that was denied for this reason; empty: none was given."""
    return f"{DENIED} The reason: {reason}" if reason else DENIED


def end_of_denied(calls: Sequence[str]) -> Outcome | None:
    """The end of a run that may not go on without these calls, which were denied; None if there are none."""
    if not calls:
        return None
    return Outcome(reason=StopReason.DENIED, message=f"a person denied {', '.join(calls)} (on_denied: stop)")
