"""The life of a run: its states, and the one table of legal moves.

docs/architecture.md draws this table; the letter beside each row is the letter on the arrow there.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from .errors import IllegalTransition


class Status(StrEnum):
    """What a user sees of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    STOPPED = "stopped"
    FAILED = "failed"
    CANCELLED = "cancelled"


class State(StrEnum):
    """Where a run stands. A running run has one of the phases between QUEUED and the terminal states."""

    QUEUED = "queued"
    TURN_DUE = "turn_due"
    IN_TURN = "in_turn"
    IN_TOOLS = "in_tools"
    JOINING = "joining"
    ON_HOLD = "on_hold"
    AWAITING_APPROVAL = "awaiting_approval"
    AWAITING_DECISION = "awaiting_decision"
    SUCCEEDED = "succeeded"
    STOPPED = "stopped"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def status(self) -> Status:
        return Status(self.value) if self in _NAMED_LIKE_STATUS else Status.RUNNING

    @property
    def is_terminal(self) -> bool:
        return self in TERMINAL


TERMINAL = frozenset({State.SUCCEEDED, State.STOPPED, State.FAILED, State.CANCELLED})
_NAMED_LIKE_STATUS = TERMINAL | {State.QUEUED}
TURN_CAN_BEGIN = frozenset({State.QUEUED, State.TURN_DUE, State.ON_HOLD})
"""From these a turn is claimed; from ON_HOLD only when its moment has come."""
CAN_GO_ON = frozenset({State.FAILED, State.STOPPED})
"""Ends after which a run may go on, if somebody wants it to."""
AWAITS_PERSON = frozenset({State.AWAITING_APPROVAL, State.AWAITING_DECISION})
"""Nothing of such a run moves until a person has said something about one of its calls."""
_CAN_STOP = frozenset({State.IN_TURN, *TURN_CAN_BEGIN, *AWAITS_PERSON})


class Event(StrEnum):
    """What happens to a run."""

    BEGIN = "begin"
    OPEN_CALLS = "open_calls"
    GO_ON = "go_on"
    HOLD = "hold"
    RECOVER = "recover"
    LAST_RESULT = "last_result"
    AWAIT_DECISION = "await_decision"
    DECIDE = "decide"
    AWAIT_APPROVAL = "await_approval"
    APPROVE = "approve"
    JOIN = "join"
    SUCCEED = "succeed"
    STOP = "stop"
    FAIL = "fail"
    CANCEL = "cancel"
    REDRIVE = "redrive"


MOVES: Mapping[tuple[State, Event], State] = MappingProxyType(
    {
        (State.QUEUED, Event.BEGIN): State.IN_TURN,  # a
        (State.TURN_DUE, Event.BEGIN): State.IN_TURN,  # a
        (State.ON_HOLD, Event.BEGIN): State.IN_TURN,  # b
        (State.IN_TURN, Event.OPEN_CALLS): State.IN_TOOLS,  # c
        (State.IN_TURN, Event.GO_ON): State.TURN_DUE,  # d
        (State.IN_TURN, Event.HOLD): State.ON_HOLD,  # e
        (State.IN_TURN, Event.RECOVER): State.TURN_DUE,  # f
        (State.IN_TOOLS, Event.LAST_RESULT): State.JOINING,  # g
        (State.IN_TOOLS, Event.JOIN): State.TURN_DUE,  # h: every call of the turn ran inline
        (State.JOINING, Event.JOIN): State.TURN_DUE,  # i
        (State.IN_TURN, Event.SUCCEED): State.SUCCEEDED,  # j
        **{(s, Event.STOP): State.STOPPED for s in _CAN_STOP},  # k
        **{(s, Event.FAIL): State.FAILED for s in State if s not in TERMINAL},  # l
        **{(s, Event.CANCEL): State.CANCELLED for s in State if s not in TERMINAL},  # m
        (State.IN_TOOLS, Event.AWAIT_DECISION): State.AWAITING_DECISION,  # n: a person must say what a call did
        (State.AWAITING_DECISION, Event.DECIDE): State.IN_TOOLS,  # o
        (State.IN_TOOLS, Event.AWAIT_APPROVAL): State.AWAITING_APPROVAL,  # q: a person must say whether a call may run
        (State.AWAITING_APPROVAL, Event.APPROVE): State.IN_TOOLS,  # r: a person has said so, whichever it was
        **{(s, Event.REDRIVE): State.TURN_DUE for s in CAN_GO_ON},  # p: somebody wants the run to go on after its end
    }
)


def move(state: State, event: Event) -> State:
    """The state after `event`. Raises IllegalTransition, with both names, for a move the table does not have."""
    try:
        return MOVES[state, event]
    except KeyError:
        raise IllegalTransition(f"a run that is {state.value} cannot {event.value}") from None
