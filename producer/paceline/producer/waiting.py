"""Why runs wait: what an operator wants to know of a batch that does not get on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from paceline.core.ids import AgentDigest
from paceline.core.lifecycle import State
from paceline.store.port import RunRecord, WorkerReport

from .fleet import BatchStatus
from .progress import counted, duration

_OF_AGENT = re.compile(r"agent (?P<digest>\w+): ")
"""How a worker's problem begins that keeps only the runs of one agent waiting."""
RUNS_LOOKED_AT = 5_000
"""Runs on hold have their reasons one by one: of a large batch the first ones must do."""


def why_runs_wait(
    status: BatchStatus,
    workers: Sequence[WorkerReport],
    records: Iterable[RunRecord],
    *,
    now_ms: int,
    get_workers: str = "start some with `paceline worker`",
) -> list[str]:
    """Sentences for a person, the gravest first; none for a batch that gets on or is over.

    Of the workers' problems those that are another agent's are left out. `get_workers` is what to do where there are
    no workers.
    """
    if status.is_done:
        return []
    problems = Counter(
        problem for worker in workers for problem in worker.problems if _concerns(problem, status.info.agent)
    )
    return [
        *([] if workers else [f"no worker is alive: {get_workers}"]),
        *(
            f"{count} of {counted(len(workers), 'worker')} {'says' if len(workers) == 1 else 'say'}: {problem}"
            for problem, count in problems.most_common()
        ),
        *(_holds(records, now_ms) if status.counts.states[State.ON_HOLD] else []),
        *_decisions(status),
        *_approvals(status),
        *_backlog(status, workers),
    ]


def _concerns(problem: str, agent: AgentDigest) -> bool:
    of_agent = _OF_AGENT.match(problem)
    return of_agent is None or of_agent["digest"] == agent


def _holds(records: Iterable[RunRecord], now_ms: int) -> list[str]:
    held = [record.run for record in islice(records, RUNS_LOOKED_AT) if record.run.state is State.ON_HOLD]
    by_reason = Counter(run.hold_reason for run in held)
    first = {reason: min(run.hold_until_ms for run in held if run.hold_reason == reason) for reason in by_reason}
    return [
        f"{count} on hold: {reason.removesuffix('.')}; the first goes on {_in(first[reason] - now_ms)}"
        for reason, count in by_reason.most_common()
    ]


def _decisions(status: BatchStatus) -> list[str]:
    return _awaited(
        status, State.AWAITING_DECISION, "a decision about a call that may have taken effect", "what is known"
    )


def _approvals(status: BatchStatus) -> list[str]:
    return _awaited(status, State.AWAITING_APPROVAL, "the approval of a call", "how to give it")


def _awaited(status: BatchStatus, state: State, what: str, shown: str) -> list[str]:
    """How many runs wait for a person's word, and which commands list them and say more."""
    runs = status.counts.states[state]
    if not runs:
        return []
    return [
        f"{runs} {'awaits' if runs == 1 else 'await'} {what}: "
        f"`paceline runs --batch {status.info.name} --state {state}` lists them, `paceline show RUN` tells {shown}"
    ]


def _in(milliseconds: int) -> str:
    return f"in {duration(milliseconds / 1000)}" if milliseconds > 0 else "now"


def _backlog(status: BatchStatus, workers: Sequence[WorkerReport]) -> list[str]:
    slots, busy = sum(worker.concurrency for worker in workers), sum(worker.in_flight for worker in workers)
    queued = status.counts.states[State.QUEUED]
    if not queued or not slots or busy < slots:
        return []
    waits = "waits" if queued == 1 else "wait"
    return [f"{queued} {waits} for a free worker: all {slots} slots of {counted(len(workers), 'worker')} are taken"]
