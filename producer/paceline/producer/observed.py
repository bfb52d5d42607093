"""What a batch's finished runs say about the limits of its agent: gathered from the record, and in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from paceline.core.advice import HEADROOM, Advice, FinishedRun, LimitAdvice, advise
from paceline.core.errors import UnknownBatch
from paceline.store.port import RunRecord

from .fleet import Batch
from .progress import count_text, counted, dollars, duration
from .result import result_of

_FEW = 20
"""Of fewer runs the p95 is the largest."""


def batch_advice(batch: Batch) -> Advice:
    """The advice of the batch's runs that are over, as they stand."""
    agent = batch.agent()
    if agent is None:
        raise UnknownBatch(f"the agent of batch {batch.name!r} is no longer on record, or of a newer paceline")
    return advise(agent, filter(None, map(_finished, batch.records())))


def _finished(record: RunRecord) -> FinishedRun | None:
    result, spent = result_of(record), record.run.spent
    if result.stop_reason is None:
        return None
    return FinishedRun(
        reason=result.stop_reason,
        turns=result.turns,
        tokens=spent.usage.total,
        working_ms=spent.working_ms,
        cost_nanousd=None if spent.unpriced_calls else spent.cost_nanousd,
        context_tokens=record.run.context_tokens,
    )


def limit_row(limit: LimitAdvice) -> tuple[str, ...]:
    """A limit as a row of a table: name, today, p50, p95, recommended, what the limit of today does."""
    amounts = [_amount(limit.name, value) for value in (limit.p50, limit.p95, limit.recommended)]
    today = "none" if limit.today is None else _amount(limit.name, limit.today)
    return (limit.name, today, *amounts, _does(limit))


def _amount(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    match name:
        case "usd":
            return dollars(value)
        case "seconds":
            return duration(value)
        case _:
            return count_text(int(value))


def _does(limit: LimitAdvice) -> str:
    cut = f"cut {counted(limit.cut_runs, 'run')}" if limit.cut_runs else ""
    idle = f"idles at {limit.times_p95:.0f} x p95" if limit.is_idle else ""
    return "; ".join(filter(None, (cut, idle)))


def notes(advice: Advice, batch: str) -> Iterator[str]:
    """What else there is to know, a line each."""
    if not advice.succeeded:
        yield "no run has succeeded yet, so there is nothing to recommend limits from"
    elif advice.succeeded < _FEW:
        succeeded = counted(advice.succeeded, "run")
        yield f"only {succeeded} succeeded, so p95 is the largest: look again when there are more"
    if raised := ", ".join(limit.name for limit in advice.limits if limit.is_raised):
        yield f"{raised}: more than {HEADROOM} x p95, to leave room for the worst case of a run's last call"
    for limit in advice.limits:
        if limit.cut_runs:
            yield f"see what {limit.name} cut: paceline runs --batch {batch} --stop-reason {limit.reason}"
    if advice.deadline_cut_runs:
        yield f"{counted(advice.deadline_cut_runs, 'run')} came too late for limits.deadline: raise it, or add workers"


def recommended_yaml(advice: Advice) -> str | None:
    """The recommendation as a line of the agent file; None where there is none."""
    parts = [
        f"{limit.name}: {limit.recommended:.4f}" if limit.name == "usd" else f"{limit.name}: {limit.recommended:.0f}"
        for limit in advice.limits
        if limit.recommended is not None
    ]
    return f"limits: {{{', '.join(parts)}}}" if parts else None


def advice_json(advice: Advice) -> dict[str, Any]:
    """The advice as plain data."""
    return {
        "finished": advice.finished,
        "succeeded": advice.succeeded,
        "deadline_cut_runs": advice.deadline_cut_runs,
        "limits": [{**asdict(limit), "is_idle": limit.is_idle} for limit in advice.limits],
    }
