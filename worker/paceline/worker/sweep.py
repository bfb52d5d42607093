"""What the sweeper does about a run that is due to be looked at: decided by values, carried out elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from paceline.core.agent import Agent
from paceline.core.endings import Outcome, StopReason
from paceline.core.ids import CallId, Incarnation
from paceline.core.lifecycle import State
from paceline.core.run import Run
from paceline.core.step import Finish, WorkerLost, next_step
from paceline.core.tool_spec import Effect, Placement
from paceline.store.port import CallState, Examined

from .queues import Queue, queue_of_turn

_LONGEST_LOOK_SECONDS = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the sweeper knows of the world besides the run."""

    now_ms: int
    alive_ms: Mapping[Incarnation, int]
    """Owners that live, and for how much longer that is known."""
    delivered_ms: Mapping[Queue, int]
    """For each queue, when the newest message that has arrived was sent: older ones have arrived too, or are lost."""
    empty: frozenset[Queue]
    """Queues that hold no message."""
    claim_seconds: float
    poison_after: int

    def lives(self, owner: str) -> bool:
        return Incarnation(owner) in self.alive_ms

    def has_passed(self, queue: Queue, sent_ms: int) -> bool:
        """Whether a message sent then must have arrived by now, or is lost. The brake: no backlog is sent twice."""
        return queue in self.empty or sent_ms < self.delivered_ms.get(queue, 0) - self.claim_seconds * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain:
    """Nothing to do now."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTurn:
    """The message for the turn is lost, or its hold is over: send one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendJoin:
    """The callback is lost: send one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverTurn:
    """The worker that held the turn is gone."""

    run: Run
    """As it is to be recorded: its streaks count the loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MendCalls:
    """Of the open calls: take these claims back, answer these as unknown, and send these again."""

    recover: tuple[CallState, ...]
    unknown: tuple[CallState, ...]
    send: tuple[CallId, ...]
    look_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRun:
    """The run is over."""

    outcome: Outcome


Repair = LookAgain | SendTurn | SendJoin | RecoverTurn | MendCalls | EndRun


def repair(agent: Agent, examined: Examined, view: View) -> Repair:
    """What this run needs."""
    run = examined.run
    match run.state:
        case State.IN_TURN:
            return _in_turn(agent, run, view)
        case State.QUEUED | State.TURN_DUE:
            return _unless_braked(run, queue_of_turn(run), view, SendTurn())
        case State.ON_HOLD:
            return (
                SendTurn() if run.hold_until_ms <= view.now_ms else LookAgain(seconds=_until(run.hold_until_ms, view))
            )
        case State.JOINING:
            return _unless_braked(run, Queue.TURNS, view, SendJoin())
        case State.IN_TOOLS:
            return _in_tools(run, examined.calls, view)
        case State.SUCCEEDED | State.STOPPED | State.FAILED | State.CANCELLED:
            return LookAgain(seconds=_LONGEST_LOOK_SECONDS)
        case _:
            assert_never(run.state)


def _in_turn(agent: Agent, run: Run, view: View) -> Repair:
    if view.lives(run.owner) and run.claim_until_ms > view.now_ms:
        return LookAgain(seconds=_known_alive_seconds(run.owner, run.claim_until_ms, view))
    step = next_step(agent, run, WorkerLost(poison_after=view.poison_after))
    if isinstance(step, Finish):
        return EndRun(outcome=step.outcome)
    return RecoverTurn(run=replace(run, streaks=replace(run.streaks, losses=run.streaks.losses + 1)))


def _unless_braked(run: Run, queue: Queue, view: View, remedy: SendTurn | SendJoin) -> Repair:
    return remedy if view.has_passed(queue, run.sent_ms) else _later(run, view)


def _later(run: Run, view: View) -> LookAgain:
    waited = (view.now_ms - run.sent_ms) / 1000
    return LookAgain(seconds=min(max(waited, view.claim_seconds), _LONGEST_LOOK_SECONDS))


def _in_tools(run: Run, calls: tuple[CallState, ...], view: View) -> Repair:
    open_calls = [state for state in calls if not state.has_result]
    dead = [state for state in open_calls if state.owner and not _is_held(state, view)]
    if run.cancel_requested and not _runs_here(run, view) and not any(_is_held(state, view) for state in open_calls):
        return EndRun(outcome=Outcome(reason=StopReason.CANCELLED, message="cancelled"))
    if any(state.attempt >= view.poison_after for state in dead if state.call.effect is not Effect.ONCE):
        message = f"{view.poison_after} workers in a row were lost while they ran one tool call"
        return EndRun(outcome=Outcome(reason=StopReason.POISON, message=message))
    recover = tuple(state for state in dead if state.call.effect is not Effect.ONCE)
    unknown = tuple(state for state in dead if state.call.effect is Effect.ONCE)
    send = tuple(state.call.call_id for state in _sendable(run, open_calls, recover, view))
    return MendCalls(recover=recover, unknown=unknown, send=send, look_seconds=_look_seconds(run, open_calls, view))


def _runs_here(run: Run, view: View) -> bool:
    """Whether a living worker holds the turn's own claim: it runs the inline calls."""
    return view.lives(run.owner) and run.claim_until_ms > view.now_ms


def _is_held(state: CallState, view: View) -> bool:
    return bool(state.owner) and view.lives(state.owner) and state.claim_until_ms > view.now_ms


def _sendable(run: Run, open_calls: list[CallState], recovered: tuple[CallState, ...], view: View) -> list[CallState]:
    """Recovered calls, and calls that nobody has claimed although their message must have arrived."""
    once = next((state for state in open_calls if state.call.effect is Effect.ONCE), None)
    unclaimed = [
        state
        for state in open_calls
        if not state.owner and (state.call.effect is not Effect.ONCE or state is once) and _is_overdue(run, state, view)
    ]
    return [*recovered, *unclaimed]


def _is_overdue(run: Run, state: CallState, view: View) -> bool:
    if state.call.placement is Placement.INLINE:
        return not _runs_here(run, view)
    return view.has_passed(Queue.TOOLS, run.sent_ms)


def _look_seconds(run: Run, open_calls: list[CallState], view: View) -> float:
    held = [
        _known_alive_seconds(state.owner, state.claim_until_ms, view) for state in open_calls if _is_held(state, view)
    ]
    return min([*held, view.claim_seconds])


def _known_alive_seconds(owner: str, until_ms: int, view: View) -> float:
    """Until the owner's sign of life runs out, or the claim does: what is due then is found then."""
    return min(view.alive_ms[Incarnation(owner)] / 1000, _until(until_ms, view))


def _until(moment_ms: int, view: View) -> float:
    return max(0.0, (moment_ms - view.now_ms) / 1000)
