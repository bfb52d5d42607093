"""Runs that go on after their end, from their last good state."""

from __future__ import annotations

from paceline.core.approval import Permission
from paceline.core.endings import StopReason
from paceline.core.ids import RunId
from paceline.core.ledger import Redriven
from paceline.core.redrive import LeftCall, answers, left_of
from paceline.store.port import CallState, Remains, RunRecord, RunStore, Written

SPENT = frozenset(
    {
        StopReason.MAX_TURNS,
        StopReason.TOKEN_BUDGET,
        StopReason.TIME_BUDGET,
        StopReason.DEADLINE,
        StopReason.COST_BUDGET,
    }
)
"""What a run has used up stays used up, and its limits are frozen into it: going on, it would only end so again."""


def is_spent(record: RunRecord) -> bool:
    """Whether the run would only end as it did."""
    return record.reason in SPENT


async def redrive_run(store: RunStore, run_id: RunId) -> bool:
    """Let a run go on that failed or was stopped; whether it does. It does not if it is anything else by now."""
    remains = await store.remains(run_id)
    if remains is None:
        return False
    message = answers([_left_call(state, remains) for state in remains.calls]) if remains.calls else None
    entry = Redriven(turn=remains.held.turn, at_ms=await store.now_ms())
    return await store.redrive(remains.held, message, entry) is Written.WRITTEN


def _left_call(state: CallState, remains: Remains) -> LeftCall:
    call_id = state.call.call_id
    effect, placement = state.call.effect, state.call.placement
    left = left_of(
        effect,
        placement,
        was_begun=bool(state.owner),
        is_in_doubt=state.doubt is not None,
        is_denied=state.permission is Permission.DENIED,
    )
    return LeftCall(call_id=call_id, left=left, block=remains.blocks.get(call_id))
