"""What is written of a model call that brought no answer: it may have been billed, and is held against the limits."""

from __future__ import annotations

from paceline.core.ledger import AttemptLost, PossiblyBilled
from paceline.core.run import Run, Spent
from paceline.core.usage import WorstCase
from paceline.store.port import TurnWrite

from .record_clock import now_ms


def lost_attempt(run: Run, worker: str, at_worst: WorstCase | None, *, began_ms: int) -> TurnWrite:
    """An attempt that was lost with this worker. `at_worst` is what its model call may have used; None: it made none,
    or nobody can reckon it any more."""
    at_ms = now_ms()
    lost = AttemptLost(turn=run.turn, attempt=run.attempts, at_ms=at_ms, worker=worker, began_ms=min(began_ms, at_ms))
    if at_worst is None:
        return TurnWrite(streaks=run.streaks, ledger=(lost,))
    return TurnWrite(streaks=run.streaks, spent=Spent.possibly(at_worst), ledger=(lost, possibly_billed(run, at_worst)))


def possibly_billed(run: Run, call: WorstCase) -> PossiblyBilled:
    """The ledger's entry about the call of this attempt, of which no answer came."""
    return PossiblyBilled(
        turn=run.turn, attempt=run.attempts, at_ms=now_ms(), tokens=call.tokens, cost_nanousd=call.nanousd
    )
