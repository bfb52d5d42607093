"""How a run goes on after its end: its transcript as it is, and every call that it left open answered truly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from .approval import DENIED
from .ids import CallId
from .tool_spec import Effect, Placement
from .transcript import Fragment, result_block, results_message
from .unknown_effect import UNKNOWN_EFFECT


class Left(StrEnum):
    """How far a call without a result had come when its run ended."""

    NOT_BEGUN = "not_begun"
    BEGUN = "begun"
    """It reads, or may be repeated."""
    DENIED = "denied"
    """A person did not want it to run."""
    IN_DOUBT = "in_doubt"
    """It may have taken effect, and must not be repeated unseen."""


_TOLD: Mapping[Left, str] = {
    Left.NOT_BEGUN: "The call was not run: the run ended before it began. Call again if you still need it.",
    Left.BEGUN: "The call was begun and did not come to an end. Call again, with less to do if you can.",
    Left.DENIED: DENIED,
    Left.IN_DOUBT: UNKNOWN_EFFECT,
}


def left_of(effect: Effect, placement: Placement, *, was_begun: bool, is_in_doubt: bool, is_denied: bool) -> Left:
    """How far a call had come. `was_begun`: a worker has its claim."""
    if is_denied:
        return Left.DENIED
    if is_in_doubt or (effect is Effect.ONCE and was_begun):
        return Left.IN_DOUBT
    # A call inside its turn's own task has no claim: it may have begun.
    if was_begun or placement is Placement.INLINE:
        return Left.BEGUN
    return Left.NOT_BEGUN


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftCall:
    """A call of the turn in which a run ended. `block` is its result, if it has one."""

    call_id: CallId
    left: Left
    block: bytes | None = None


def answers(calls: Sequence[LeftCall]) -> Fragment:
    """The message that answers these calls, in their order."""
    blocks = {call.call_id: call.block or result_block(call.call_id, _TOLD[call.left], is_error=True) for call in calls}
    return results_message([call.call_id for call in calls], blocks)
