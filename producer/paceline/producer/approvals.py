"""Calls that a person must approve before they run: what is known of each, and what that person says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.core.agent import Agent
from paceline.core.approval import OnDenied, denied_text
from paceline.core.ids import CallId, RunId
from paceline.core.ledger import ApprovalDecided
from paceline.core.run import Run
from paceline.store.port import CallResult, CallState
from paceline.tools import ToolResult

from .decide import persons_result


@dataclass(frozen=True, slots=True, kw_only=True)
class CallToApprove:
    """A call that does not run before a person has approved it."""

    run_id: RunId
    call_id: CallId
    tool: str

    def told(self) -> str:
        """What to do, in sentences."""
        return (
            f"{self.tool} runs only if a person approves it (call {self.call_id}; what it is called with: "
            f"paceline show {self.run_id} --transcript): paceline approve {self.run_id} {self.call_id}, or "
            f"paceline deny {self.run_id} {self.call_id} --reason TEXT."
        )

    def to_json(self) -> dict[str, object]:
        """Plain data."""
        return {"run_id": self.run_id, "call_id": self.call_id, "tool": self.tool}


def approvals_of(run: Run, calls: Sequence[CallState]) -> list[CallToApprove]:
    """The calls of a run that await an approval, in their order."""
    return [
        CallToApprove(run_id=run.run_id, call_id=state.call.call_id, tool=state.call.tool)
        for state in calls
        if state.awaits_approval
    ]


@dataclass(frozen=True, slots=True)
class Approve:
    """The call may run."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The call may not run. `reason` is for the model and the record; it may be empty."""

    reason: str = ""


def decided(verdict: Approve | Deny, run: Run, state: CallState, *, now_ms: int) -> ApprovalDecided:
    """A person's word, as the record takes it."""
    reason = verdict.reason if isinstance(verdict, Deny) else ""
    is_approved = isinstance(verdict, Approve)
    call = state.call
    return ApprovalDecided(
        turn=run.turn, call=call.call_id, tool=call.tool, at_ms=now_ms, approved=is_approved, reason=reason
    )


def told_to_model(
    verdict: Approve | Deny, run: Run, agent: Agent | None, state: CallState, *, now_ms: int
) -> CallResult | None:
    """The result of a call that was denied; None if it may run, or if its run is to stop."""
    if isinstance(verdict, Approve) or (agent and agent.on_denied is OnDenied.STOP):
        return None
    text = denied_text(verdict.reason)
    return persons_result(run, state, ToolResult(content=text, is_error=True, chars=len(text)), now_ms)
