"""What is logged of runs: a line for each attempt at a turn, and one for each end. Never what was said in them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from paceline.core.endings import Outcome
from paceline.core.ids import RunId
from paceline.core.run import Run, Spent
from paceline.core.trace_ids import part_of, trace_of
from paceline.core.usage import NANO_USD
from paceline.store.port import TurnWrite

log = logging.getLogger("paceline.run")


def of_turn(run_id: RunId, turn: int) -> Mapping[str, object]:
    """By which a line can be found, as the `extra` of its record."""
    return {"run_id": run_id, "turn": turn, "trace_id": trace_of(run_id, part_of(turn))}


def of_attempt(run: Run) -> Mapping[str, object]:
    """As `of_turn`, for an attempt at it."""
    return {**of_turn(run.run_id, run.turn), "attempt": run.attempts}


def log_attempt(run: Run, write: TurnWrite, outcome: str, *, calls: int = 0) -> None:
    """One line for an attempt, once it is written: what came of it and what it used."""
    if not log.isEnabledFor(logging.INFO):
        return
    spent = write.spent
    used = {
        "outcome": outcome,
        "calls": calls,
        "input_tokens": spent.usage.all_input,
        "output_tokens": spent.usage.output,
        "cost_usd": _cost_usd(spent),
        "took_ms": spent.working_ms,
    }
    log.info(
        "run %s turn %d: %s; %d calls, %d tokens in, %d out, %s, %d ms",
        run.run_id,
        run.turn,
        outcome,
        calls,
        spent.usage.all_input,
        spent.usage.output,
        "price unknown" if used["cost_usd"] is None else f"${used['cost_usd']:.6f}",
        spent.working_ms,
        extra={**of_attempt(run), **used},
    )


def log_end(run_id: RunId, turn: int, outcome: Outcome) -> None:
    """One line for a run's end. Its message is in the record: it may hold an API's own words."""
    log.info(
        "run %s ended in turn %d: %s",
        run_id,
        turn,
        outcome.reason,
        extra={**of_turn(run_id, turn), "outcome": outcome.ending.status, "stop_reason": outcome.reason},
    )


def _cost_usd(spent: Spent) -> float | None:
    return None if spent.unpriced_calls else spent.cost_nanousd / NANO_USD
