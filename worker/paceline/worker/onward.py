"""What a run needs to go on, wherever it stands: for a worker that no longer knows how far it came."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.ids import RunId
from paceline.core.lifecycle import State
from paceline.core.run import Run
from paceline.core.tool_spec import Effect
from paceline.core.wire import queue_of_turn
from paceline.store.port import Examined, OpenCall, RunStore

from .messages import ChordMessage, JoinMessage, Message, TurnMessage


async def due_messages(store: RunStore, run_id: RunId) -> Sequence[Message]:
    """The messages for what is due of this run. Each may have been sent before: that does no harm."""
    found = (await store.examine([run_id]))[0]
    return _due(found) if found else ()


def chord_of(run: Run, calls: Sequence[OpenCall]) -> ChordMessage:
    """The calls that may start now: all that may run side by side, and the first of those that must not."""
    once = next((call for call in calls if call.effect is Effect.ONCE), None)
    start = [call.call_id for call in calls if call.effect is not Effect.ONCE or call is once]
    return ChordMessage(run_id=run.run_id, turn=run.turn, calls=tuple(start))


def _due(found: Examined) -> Sequence[Message]:
    run = found.run
    match run.state:
        case State.QUEUED | State.TURN_DUE:
            return (TurnMessage(run_id=run.run_id, turn=run.turn, queue=queue_of_turn(run)),)
        case State.IN_TOOLS:
            idle = [
                state.call
                for state in found.calls
                if not state.owner and not state.has_result and not state.awaits_person
            ]
            return (chord_of(run, idle),) if idle else ()
        case State.JOINING:
            return (JoinMessage(run_id=run.run_id, turn=run.turn),)
        case _:
            return ()
