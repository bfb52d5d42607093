"""A run goes on hold: its turn is due again at a moment, and until then it occupies no worker."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace

from paceline.core.ledger import Entry, Held
from paceline.core.lifecycle import State
from paceline.core.metrics import HoldReason
from paceline.core.run import Run, Streaks
from paceline.core.trace_telling import trouble
from paceline.core.wire import queue_of_turn
from paceline.store.port import TurnClaim, TurnWrite, Written

from .budget import release_budget
from .desk import Desk
from .messages import Message, TurnMessage
from .record_clock import now_ms
from .run_log import log_attempt

_LONGEST_TIMER_SECONDS = 900.0
"""A hold longer than this is left to the sweeper alone."""
_TIMER_SLACK_SECONDS = 0.02
"""So that a timer does not ring before its moment by the record's clock."""
_SPREAD = 0.2


async def wait(desk: Desk, run: Run, *, seconds: float, reason: str, counted_as: HoldReason) -> Sequence[Message]:
    """Go on hold before a call was made: nothing is spent and nothing counts."""
    write = TurnWrite(streaks=run.streaks, ledger=hold_entry(run, seconds, reason, run.streaks))
    return await hold(desk, run, write, seconds, reason, counted_as)


async def hold(
    desk: Desk, run: Run, write: TurnWrite, seconds: float, reason: str, counted_as: HoldReason
) -> Sequence[Message]:
    """Go on hold with this write at the end of an attempt. Nothing is to be sent: a timer will, or a sweeper."""
    timed = seconds <= _LONGEST_TIMER_SECONDS
    await release_budget(desk, run, write)
    written = await desk.until_written(
        lambda: desk.store.hold(
            TurnClaim.of(run), write, seconds=seconds, reason=reason, counted_as=counted_as, timed=timed
        )
    )
    if written is Written.WRITTEN and write.ledger:
        log_attempt(run, write, f"on_hold:{counted_as}")
    if written is Written.WRITTEN and timed:
        queue = queue_of_turn(replace(run, state=State.ON_HOLD))
        message = TurnMessage(run_id=run.run_id, turn=run.turn, queue=queue)
        desk.send_later(message, seconds=seconds + _TIMER_SLACK_SECONDS)
    return ()


def hold_entry(run: Run, seconds: float, reason: str, after: Streaks, *, failed_ms: int = 0) -> tuple[Entry, ...]:
    """The ledger's entry about a hold; none where the run waits again for what it has waited for."""
    # A turn that is held again and again for one reason says so once: the ledger must not grow while it waits.
    if reason == run.hold_reason:
        return ()
    entry = Held(
        turn=run.turn,
        attempt=run.attempts,
        at_ms=now_ms(),
        wait_seconds=seconds,
        reason=reason,
        took_ms=failed_ms,
        trouble=trouble(run.streaks, after),
    )
    return (entry,)


def spread(run: Run, seconds: float) -> float:
    """Something longer, for each run another time: those that wait for one model must not come back at once."""
    return seconds * (1 + _SPREAD * zlib.crc32(run.run_id.encode()) / 2**32)
