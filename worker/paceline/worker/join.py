"""The chord's callback: append every result of a turn, in id order, as one message; a second one does nothing."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from paceline.core.endings import Outcome, StopReason
from paceline.core.errors import InvalidTranscript
from paceline.core.ids import RunId
from paceline.core.transcript import Fragment, check_next, results_message
from paceline.store.port import TurnResults, TurnWrite, Written

from .desk import Desk
from .messages import Message, TurnMessage
from .run_log import log_end, of_turn

log = logging.getLogger("paceline.join")


async def join_turn(desk: Desk, run_id: RunId, turn: int) -> Sequence[Message]:
    """Join the results of this turn, if they are all there and nobody has joined them."""
    results = await desk.store.results(run_id, turn)
    if results is None:
        return ()
    try:
        message = _message(results)
    except InvalidTranscript as error:
        log.exception("run %s turn %d: its results do not fit its calls", run_id, turn, extra=of_turn(run_id, turn))
        outcome = Outcome(reason=StopReason.INTERNAL_ERROR, message=f"results do not fit the calls: {error}")
        if await desk.store.finish(results.held, TurnWrite(), outcome) is Written.WRITTEN:
            log_end(run_id, turn, outcome)
        return ()
    written = await desk.store.join(results.held, message)
    return (TurnMessage(run_id=run_id, turn=turn + 1),) if written is Written.WRITTEN else ()


def _message(results: TurnResults) -> Fragment:
    message = results_message(results.calls, results.blocks)
    check_next(results.asked, message)
    return message
