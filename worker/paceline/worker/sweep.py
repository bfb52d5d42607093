"""What the sweeper does about a run that is due to be looked at: decided by values, carried out elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from paceline.core.agent import Agent
from paceline.core.approval import Permission, end_of_denied
from paceline.core.endings import Outcome, StopReason
from paceline.core.ids import CallId, Incarnation
from paceline.core.lifecycle import State
from paceline.core.limits import deadline_ms, past_deadline
from paceline.core.run import Run
from paceline.core.step import Finish, WorkerLost, next_step
from paceline.core.tool_spec import Effect, Placement
from paceline.core.unknown_effect import end_of_wait
from paceline.core.wire import Queue, queue_of_turn
from paceline.store.port import CallState, Examined

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
        # Half a claim, so that the first look, a whole one after the sending, finds a loss in a fleet without backlog.
        margin_ms = self.claim_seconds * 1000 / 2
        return queue in self.empty or sent_ms < self.delivered_ms.get(queue, 0) - margin_ms


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
    """Of the open calls: take these claims back, have somebody asked what these did, and send these again."""

    recover: tuple[CallState, ...]
    in_doubt: tuple[CallState, ...]
    send: tuple[CallId, ...]
    look_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRun:
    """The run is over."""

    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class LetGo:
    """The run is over: it was cancelled while nobody worked on it."""


Repair = LookAgain | SendTurn | SendJoin | RecoverTurn | MendCalls | EndRun | LetGo


def repair(agent: Agent, examined: Examined, view: View) -> Repair:
    """What this run needs."""
    run = examined.run
    match run.state:
        case State.IN_TURN:
            return _in_turn(agent, run, view)
        case State.QUEUED | State.TURN_DUE:
            return _unless_braked(run, queue_of_turn(run), view, SendTurn())
        case State.ON_HOLD:
            return _on_hold(run, view)
        case State.JOINING:
            return _unless_braked(run, Queue.TURNS, view, SendJoin())
        case State.IN_TOOLS:
            return _in_tools(run, examined.calls, view)
        case State.AWAITING_DECISION | State.AWAITING_APPROVAL:
            return _awaiting_person(agent, examined, view)
        case State.SUCCEEDED | State.STOPPED | State.FAILED | State.CANCELLED:
            return LetGo()
        case _:
            assert_never(run.state)


def _in_turn(agent: Agent, run: Run, view: View) -> Repair:
    if view.lives(run.owner) and run.claim_until_ms > view.now_ms:
        return LookAgain(seconds=_known_alive_seconds(run.owner, run.claim_until_ms, view))
    step = next_step(agent, run, WorkerLost(poison_after=view.poison_after))
    if isinstance(step, Finish):
        return EndRun(outcome=step.outcome)
    return RecoverTurn(run=replace(run, streaks=replace(run.streaks, losses=run.streaks.losses + 1)))


def _on_hold(run: Run, view: View) -> Repair:
    if run.hold_until_ms > view.now_ms:
        return LookAgain(seconds=_until(run.hold_until_ms, view))
    if not run.sent_ms:
        return SendTurn()  # it was too long for a timer
    return _unless_braked(run, queue_of_turn(run), view, SendTurn())


def _unless_braked(run: Run, queue: Queue, view: View, remedy: SendTurn | SendJoin) -> Repair:
    return remedy if view.has_passed(queue, run.sent_ms) else _later(run, view)


def _later(run: Run, view: View) -> LookAgain:
    waited = (view.now_ms - run.sent_ms) / 1000 if run.sent_ms else 0.0
    return LookAgain(seconds=min(max(waited, view.claim_seconds), _LONGEST_LOOK_SECONDS))


def _in_tools(run: Run, calls: tuple[CallState, ...], view: View) -> Repair:
    open_calls = [state for state in calls if not state.has_result]
    dead = [state for state in open_calls if state.owner and not _is_held(state, view)]
    if run.cancel_requested and not _runs_here(run, view) and not any(_is_held(state, view) for state in open_calls):
        return EndRun(outcome=Outcome(reason=StopReason.CANCELLED, message="cancelled"))
    lost = [state.losses + (state in dead) for state in open_calls if state.call.effect is not Effect.ONCE]
    if any(times >= view.poison_after for times in lost):
        message = (
            f"one tool call was lost {view.poison_after} times, with its worker or because it could not be answered"
        )
        return EndRun(outcome=Outcome(reason=StopReason.POISON, message=message))
    in_doubt = tuple(state for state in dead if _may_have_run_once(state, view))
    recover = tuple(state for state in dead if state not in in_doubt)
    send = tuple(state.call.call_id for state in _sendable(run, open_calls, recover, view))
    # A call put in doubt may leave the run with nothing to do but await a decision, which it may not be allowed to.
    look_seconds = 0.0 if in_doubt else _look_seconds(run, open_calls, view)
    return MendCalls(recover=recover, in_doubt=in_doubt, send=send, look_seconds=look_seconds)


def _may_have_run_once(state: CallState, view: View) -> bool:
    """Whether it is a `once` call that was running, or whose tool took workers down when it was asked about it."""
    if state.call.effect is not Effect.ONCE:
        return False
    return state.doubt is None or state.losses >= view.poison_after


def _awaiting_person(agent: Agent, examined: Examined, view: View) -> EndRun | LookAgain:
    run = examined.run
    outcome = _end_of_wait(agent, examined.calls) or past_deadline(agent.limits, run, view.now_ms)
    if outcome:
        return EndRun(outcome=outcome)
    moment_ms = deadline_ms(agent.limits, run)
    left_seconds = _LONGEST_LOOK_SECONDS if moment_ms is None else _until(moment_ms, view)
    return LookAgain(seconds=min(left_seconds, _LONGEST_LOOK_SECONDS))


def _end_of_wait(agent: Agent, calls: tuple[CallState, ...]) -> Outcome | None:
    doubtful = [_named(state) for state in calls if state.awaits_person]
    denied = [_named(state) for state in calls if state.permission is Permission.DENIED]
    return end_of_wait(agent.on_unknown_effect, doubtful) or end_of_denied(denied)


def _named(state: CallState) -> str:
    return f"{state.call.tool} ({state.call.call_id})"


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
        if not state.owner
        and not state.may_not_begin
        and (state.call.effect is not Effect.ONCE or state is once)
        and _is_overdue(run, state, view)
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
