"""What is done about a `once` call of which nobody knows whether it took effect: decided here, done elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from .endings import Outcome, StopReason
from .tool_spec import ToolSpec

UNKNOWN_EFFECT = (
    "The worker was lost while this call ran. It may have taken effect or not, and it was not repeated. "
    "Find out what happened before you try again."
)
"""What the model is told of a call of which nobody knows what it did."""


class OnUnknownEffect(StrEnum):
    """What an agent's runs do where neither the record nor the tool can say what a call did."""

    WAIT = "wait"
    """Await the decision of a person."""
    STOP = "stop"
    """Fail, with `unknown_effect`, when the other calls of the turn are done."""
    TELL = "tell"
    """Tell the model so, as the result of the call."""


class Remedy(StrEnum):
    """What comes next for a call in doubt."""

    RECONCILE = "reconcile"
    """The tool is asked."""
    ASK = "ask"
    """A person is asked, or the run stops: the call waits until then."""
    TELL = "tell"


def remedy_of(spec: ToolSpec | None, on_unknown_effect: OnUnknownEffect, *, was_reconciled: bool) -> Remedy:
    """What comes next for a call of this tool whose worker is gone. `was_reconciled`: the tool could not tell."""
    if spec is not None and spec.reconciles and not was_reconciled:
        return Remedy.RECONCILE
    return Remedy.TELL if on_unknown_effect is OnUnknownEffect.TELL else Remedy.ASK


def end_of_wait(on_unknown_effect: OnUnknownEffect, calls: Sequence[str]) -> Outcome | None:
    """The end of a run that may not await a decision about these calls; None if it may."""
    if on_unknown_effect is not OnUnknownEffect.STOP or not calls:
        return None
    message = f"nobody knows whether {', '.join(calls)} took effect (on_unknown_effect: stop)"
    return Outcome(reason=StopReason.UNKNOWN_EFFECT, message=message)
