"""What a run needs to go on, wherever it stands: for a worker that no longer knows how far it came."""

from __future__ import annotations

from collections.abc import Sequence, Set

from paceline.core.ids import CallId, RunId
from paceline.core.lifecycle import State
from paceline.core.run import Run
from paceline.core.tool_spec import Effect
from paceline.core.wire import queue_of_turn
from paceline.store.port import Examined, OpenCall, RunStore, Written

from .desk import Desk
from .messages import ChordMessage, JoinMessage, Message, TurnMessage


async def due_messages(store: RunStore, run_id: RunId) -> Sequence[Message]:
    """The messages for what is due of this run. Each may have been sent before: that does no harm."""
    found = (await store.examine([run_id]))[0]
    return _due(found) if found else ()


async def what_is_due(desk: Desk, run_id: RunId) -> Sequence[Message]:
    """The same, once the record can be reached: for whoever holds something, and does not know how far it came."""
    return await desk.until_written(lambda: due_messages(desk.store, run_id))


async def next_turn(desk: Desk, run: Run, written: Written, turn: int) -> Sequence[Message]:
    """What is to be sent after a write of this run that makes a turn due."""
    if written is Written.WRITTEN:
        return (TurnMessage(run_id=run.run_id, turn=turn),)
    # A write that is LOST may be our own, made by a try whose reply never came: nobody has sent what follows.
    return await what_is_due(desk, run.run_id)


def chord_of(run: Run, calls: Sequence[OpenCall], *, barred: Set[CallId]) -> Sequence[ChordMessage]:
    """For the calls that may start now: all that may run side by side, and the first of those that must not.

    Those that are barred wait for a person, and keep their place.
    """
    once = next((call for call in calls if call.effect is Effect.ONCE), None)
    first = [call.call_id for call in calls if call.effect is not Effect.ONCE or call is once]
    start = tuple(call_id for call_id in first if call_id not in barred)
    return (ChordMessage(run_id=run.run_id, turn=run.turn, calls=start),) if start else ()


def _due(found: Examined) -> Sequence[Message]:
    run = found.run
    match run.state:
        case State.QUEUED | State.TURN_DUE:
            return (TurnMessage(run_id=run.run_id, turn=run.turn, queue=queue_of_turn(run)),)
        case State.IN_TOOLS:
            idle = [state for state in found.calls if not state.owner and not state.has_result]
            barred = {state.call.call_id for state in idle if state.may_not_begin}
            return chord_of(run, [state.call for state in idle], barred=barred)
        case State.JOINING:
            return (JoinMessage(run_id=run.run_id, turn=run.turn),)
        case _:
            return ()
