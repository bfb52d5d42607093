"""What an attempt leaves of its batch's budget to others."""

from __future__ import annotations

from paceline.core.run import Run
from paceline.store.port import TurnClaim, TurnWrite

from .desk import Desk


async def release_budget(desk: Desk, run: Run, write: TurnWrite) -> None:
    """Give back what was reserved for the call of an attempt, but for what that came to. To be done before `write` is.

    Whatever dies after it, the budget is right by then; and whatever dies before it, the sweeper finds an attempt that
    is lost, and asks for the same. A run without a budget has nothing to give back.
    """
    if run.has_budget:
        spent = (run.spent + write.spent).nanousd_at_most
        await desk.until_written(lambda: desk.store.release(TurnClaim.of(run), spent=spent))
