"""What a chaos run proves or refutes: functions from the evidence to what it shows."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from paceline.core.ids import CallId, RunId, idempotency_key
from paceline.core.ledger import AttemptLost, CallRan, EffectInDoubt, EffectRuledOut, Ended, Entry, ModelCalled
from paceline.core.run import Spent
from paceline.core.transcript import Fragment
from paceline.sim.journal import Entry as Request

from .evidence import Evidence, HeldClaim, RunEvidence
from .report import Recovery, Report

ONCE = frozenset({"pay"})
"""The tools of `integration.effect_tools` whose effect may not come twice."""


def check(evidence: Evidence) -> Report:
    """All that the evidence shows."""
    ended = [found for found in evidence.runs.values() if found.record.run.state.is_terminal]
    return Report(
        runs=len(evidence.submitted),
        ends=dict(Counter(found.record.reason for found in ended)),
        turns=evidence.counts.turns,
        calls=evidence.counts.spent.tool_calls,
        seconds=evidence.seconds,
        blows=dict(evidence.blows),
        lost=tuple(run_id for run_id in evidence.submitted if run_id not in evidence.runs),
        stuck=tuple(run_id for run_id, found in evidence.runs.items() if not found.record.run.state.is_terminal),
        doubled_appends=tuple(run_id for run_id, found in evidence.runs.items() if is_doubled(found.transcript)),
        doubled_effects=tuple(doubled_effects(evidence)),
        missing_effects=tuple(missing_effects(evidence)),
        rejected_requests=tuple(
            f"{request.run} turn {request.turn}: {request.reason}"
            for request in evidence.requests
            if request.verdict == "refused"
        ),
        miscounted=tuple(miscounted(evidence)),
        billed_again=billed_again(evidence.requests),
        counted_lost=sum(found.record.run.lost_attempts for found in evidence.runs.values()),
        in_doubt=sum(isinstance(entry, EffectInDoubt) for found in evidence.runs.values() for entry in found.ledger),
        recovery=recovery(evidence),
    )


# Appends -------------------------------------------------------------------------------------------------------------


def is_doubled(transcript: Sequence[Fragment]) -> bool:
    """Whether a message or a result was appended twice: two messages of one side in a row, or an id that comes again.

    Holds for the scripts of chaos runs, whose runs never are asked to go on.
    """
    messages: list[dict[str, Any]] = [json.loads(fragment) for fragment in transcript]
    same_side = any(first["role"] == second["role"] for first, second in pairwise(messages))
    blocks = [block for message in messages for block in message["content"]]
    asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
    answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    return same_side or len(set(asked)) < len(asked) or len(set(answered)) < len(answered)


# Effects -------------------------------------------------------------------------------------------------------------


def doubled_effects(evidence: Evidence) -> Iterator[str]:
    """Each call of a `once` tool that took effect more than once."""
    times = Counter((effect.run, effect.call) for effect in evidence.effects if effect.tool in ONCE)
    return (f"{run} call {call}: {count} times" for (run, call), count in times.items() if count > 1)


def missing_effects(evidence: Evidence) -> Iterator[str]:
    """Each call that is on record as done by its tool and was not, or was done under another key."""
    done = {effect.key for effect in evidence.effects}
    for run_id, found in evidence.runs.items():
        ran = [entry for entry in found.ledger if isinstance(entry, CallRan) and not entry.is_error]
        for entry in ran:
            if idempotency_key(run_id, entry.turn, CallId(entry.call)) not in done:
                yield f"{run_id} turn {entry.turn} call {entry.call} ({entry.tool})"


# Accounts ------------------------------------------------------------------------------------------------------------


def miscounted(evidence: Evidence) -> Iterator[str]:
    """Where totals do not add up: a run's against its ledger, the batch's against its runs."""
    for run_id, found in evidence.runs.items():
        spent = found.record.run.spent
        told = [entry for entry in found.ledger if isinstance(entry, ModelCalled)]
        if spent.usage.output != sum(entry.usage.output for entry in told):
            yield f"{run_id}: output tokens are not those of its ledger"
        if spent.tool_calls != sum(isinstance(entry, CallRan) for entry in found.ledger):
            yield f"{run_id}: tool calls are not those of its ledger"
    states = Counter(found.record.run.state for found in evidence.runs.values())
    if states != Counter({state: count for state, count in evidence.counts.states.items() if count}):
        yield "the batch's states are not those of its runs"
    total = sum((found.record.run.spent for found in evidence.runs.values()), Spent())
    if total != evidence.counts.spent:
        yield "the batch's totals are not those of its runs"


def billed_again(requests: Iterable[Request]) -> int:
    """Model calls that were billed for a turn that had been billed before."""
    billed = Counter((request.run, request.turn) for request in requests if request.billed)
    return sum(count - 1 for count in billed.values())


# Recovery ------------------------------------------------------------------------------------------------------------


def recovery(evidence: Evidence) -> Recovery:
    """How long what a killed worker held stood still."""
    seen = _seen_outside(evidence)
    held = [
        (seconds_to_move(claim, kill.at, evidence.runs[claim.run], seen[claim]), claim)
        for kill in evidence.kills
        for claim in kill.held
    ]
    held.sort(key=lambda each: each[0])
    seconds = [each[0] for each in held]
    return Recovery(
        claims=len(seconds),
        p50_s=percentile(seconds, 0.50),
        p99_s=percentile(seconds, 0.99),
        max_s=max(seconds, default=0.0),
        slowest=tuple(f"{took_s:.1f} s {claim.run} {claim.call or ''}".strip() for took_s, claim in held[:-4:-1]),
    )


def seconds_to_move(claim: HeldClaim, at: float, run: RunEvidence, seen: Sequence[float]) -> float:
    """From the kill to the next thing that happened to what was held; infinite if nothing did.

    A turn moves with the next model call, or with the run's end. A call moves when it takes effect, with its result,
    or when somebody is asked about it. That a loss was noticed is no movement. `seen`: the moments of its model calls
    or effects, in Unix seconds.
    """
    moments = [*seen, *(entry.at_ms / 1000 for entry in run.ledger if _moves(entry, claim))]
    return min((moment for moment in moments if moment > at), default=math.inf) - at


def _seen_outside(evidence: Evidence) -> Mapping[HeldClaim, Sequence[float]]:
    """When the model, or the world, saw each turn and each call."""
    seen: defaultdict[HeldClaim, list[float]] = defaultdict(list)
    for request in evidence.requests:
        seen[HeldClaim(run=RunId(request.run or ""))].append(request.time)
    for effect in evidence.effects:
        seen[HeldClaim(run=RunId(effect.run), call=CallId(effect.call))].append(effect.at)
    return seen


def _moves(entry: Entry, claim: HeldClaim) -> bool:
    match entry:
        case Ended():
            return True
        case AttemptLost():
            return False
        case CallRan(call=call) | EffectInDoubt(call=call) | EffectRuledOut(call=call):
            return call == claim.call
        case _:
            return claim.call is None


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that this share of them does not pass; 0 if there are none."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
