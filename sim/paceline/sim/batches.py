"""Message batches: what has been asked, what is done by when, and how it ends. Time comes in as an argument.

Nothing of a batch is known before all of it has ended; then each request has succeeded, is errored, or was not done
before the batch was cancelled or expired.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.sim.rules import Refusal, Rule, refuse
from paceline.sim.wire import rfc_3339

EXPIRE_SECONDS = 24 * 3600.0
KEEP_SECONDS = 29 * 24 * 3600.0
NEVER = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """How batches go: each takes `seconds`, and longer if an answer in it has a longer delay; a cancelled one
    takes `cancel_seconds` to end. `seed` gives the order of the results."""

    seconds: float = 0.0
    cancel_seconds: float = 0.0
    seed: int = 0


AT_ONCE = BatchPlan()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One request of a batch, done at `done_at`. `finish` then gives its result; it is called at most once."""

    custom_id: str
    done_at: float
    finish: Callable[[], dict[str, Any]]


@dataclass(slots=True, kw_only=True)
class Batch:
    """A batch on its way. `ends_at` is known from the start, and moves when the batch is cancelled."""

    id: str
    workspace: str
    created_at: float
    tasks: Sequence[Task]
    ends_at: float
    seed: int
    cancelled_at: float | None = None
    results: list[dict[str, Any]] = field(default_factory=list)
    is_settled: bool = False

    @property
    def expires_at(self) -> float:
        return self.created_at + EXPIRE_SECONDS

    @property
    def archived_at(self) -> float:
        return self.created_at + KEEP_SECONDS

    def status(self, now: float) -> str:
        if now >= self.ends_at:
            return "ended"
        return "in_progress" if self.cancelled_at is None else "canceling"

    def settle(self, now: float) -> str:
        """How the batch stands; finds the results once it has ended."""
        status = self.status(now)
        if status == "ended" and not self.is_settled:
            self.is_settled = True
            self.results = [{"custom_id": task.custom_id, "result": self._result(task)} for task in self.tasks]
            random.Random(self.seed).shuffle(self.results)
        return status

    def _result(self, task: Task) -> dict[str, Any]:
        end = self.ends_at if self.cancelled_at is None else self.cancelled_at
        if task.done_at <= end:
            return task.finish()
        return {"type": "expired" if self.cancelled_at is None else "canceled"}

    def written(self, status: str, now: float, base_url: str) -> dict[str, Any]:
        """The batch as the API writes it, told to stand so."""
        has_ended = status == "ended"
        url = f"{base_url}/v1/messages/batches/{self.id}/results"
        return {
            "id": self.id,
            "type": "message_batch",
            "processing_status": status,
            "request_counts": self._counts(has_ended),
            "created_at": rfc_3339(self.created_at),
            "expires_at": rfc_3339(self.expires_at),
            "ended_at": rfc_3339(self.ends_at) if has_ended else None,
            "cancel_initiated_at": None if self.cancelled_at is None else rfc_3339(self.cancelled_at),
            "archived_at": rfc_3339(self.archived_at) if now >= self.archived_at else None,
            "results_url": url if has_ended and now < self.archived_at else None,
        }

    def results_refusal(self, now: float) -> Refusal | None:
        """Why there are no results to be had; None when there are."""
        status = self.settle(now)
        if status == "ended" and now < self.archived_at:
            return None
        return refuse(Rule.RESULTS_NOT_READY, id=self.id, status=status if status != "ended" else "archived")

    def lines(self) -> bytes:
        """The results, one JSON line each."""
        return b"".join(json.dumps(result).encode() + b"\n" for result in self.results)

    def _counts(self, has_ended: bool) -> dict[str, int]:
        kinds = Counter(result["result"]["type"] for result in self.results if has_ended)
        done = {kind: kinds[kind] for kind in ("succeeded", "errored", "canceled", "expired")}
        return {"processing": 0 if has_ended else len(self.tasks), **done}


class BatchShelf:
    """The batches of all workspaces, the newest first."""

    def __init__(self, plan: BatchPlan) -> None:
        self._plan = plan
        self._batches: list[Batch] = []

    def add(self, batch_id: str, workspace: str, tasks: Sequence[Task], now: float, fault: str | None) -> Batch:
        """A new batch; a fault may keep it from ever being done, or let it expire at once."""
        done_at = max(now + self._plan.seconds, *(task.done_at for task in tasks))
        if fault is not None and fault != "batch_lost":
            tasks = [Task(custom_id=task.custom_id, done_at=NEVER, finish=task.finish) for task in tasks]
        ends_at = NEVER if fault == "batch_stuck" else done_at
        batch = Batch(
            id=batch_id,
            workspace=workspace,
            created_at=now,
            tasks=tasks,
            ends_at=min(ends_at, now + EXPIRE_SECONDS),
            seed=self._plan.seed,
        )
        self._batches.insert(0, batch)
        return batch

    def all_of(self, workspace: str) -> list[Batch]:
        return [batch for batch in self._batches if batch.workspace == workspace]

    def find(self, batch_id: str, workspace: str) -> Batch | Refusal:
        for batch in self._batches:
            if batch.id == batch_id and batch.workspace == workspace:
                return batch
        return refuse(Rule.NO_SUCH_BATCH, id=batch_id)

    def cancel(self, batch: Batch, now: float) -> Refusal | None:
        """Begin to cancel; what is done by now keeps its result."""
        if batch.settle(now) == "ended":
            return refuse(Rule.BATCH_NOT_ENDED, id=batch.id, done="canceled", status="ended")
        if batch.cancelled_at is None:
            batch.cancelled_at = now
            batch.ends_at = min(batch.ends_at, now + self._plan.cancel_seconds)
        return None

    def delete(self, batch: Batch, now: float) -> Refusal | None:
        """Forget a batch that has ended."""
        status = batch.settle(now)
        if status != "ended":
            return refuse(Rule.BATCH_NOT_ENDED, id=batch.id, done="deleted", status=status)
        self._batches.remove(batch)
        return None
