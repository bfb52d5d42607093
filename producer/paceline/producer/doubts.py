"""Calls of which nobody knows whether they took effect: what is known of each, and how to settle it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from paceline.core.ids import CallId, RunId, idempotency_key
from paceline.core.run import Run
from paceline.store.port import CallState


@dataclass(frozen=True, slots=True, kw_only=True)
class CallInDoubt:
    """A call that awaits the decision of a person."""

    run_id: RunId
    call_id: CallId
    tool: str
    worker: str
    """Which ran it, and was lost."""
    began_ms: int
    idempotency_key: str
    """What the tool handed to the outside, if it used it: what to look for there."""

    def told(self) -> str:
        """What is known, and what to do, in sentences."""
        return (
            f"{self.tool} began at {clock(self.began_ms)} on worker {self.worker}, which was lost: it may have taken "
            f"effect or not (call {self.call_id}, idempotency key {self.idempotency_key}). Find out, then: "
            f"paceline resolve {self.run_id} {self.call_id} --ran | --not-ran | --result FILE."
        )

    def to_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "run_id": self.run_id,
            "call_id": self.call_id,
            "tool": self.tool,
            "worker": self.worker,
            "began_ms": self.began_ms,
            "idempotency_key": self.idempotency_key,
        }


def doubts_of(run: Run, calls: Sequence[CallState]) -> list[CallInDoubt]:
    """The calls of a run that await a decision, in their order."""
    return [
        CallInDoubt(
            run_id=run.run_id,
            call_id=state.call.call_id,
            tool=state.call.tool,
            worker=state.doubt.worker,
            began_ms=state.doubt.began_ms,
            idempotency_key=idempotency_key(run.run_id, run.turn, state.call.call_id),
        )
        for state in calls
        if state.doubt and state.awaits_person
    ]


def clock(at_ms: int) -> str:
    """The time of day, UTC."""
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%H:%M:%SZ")
