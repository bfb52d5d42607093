"""Limits are held against the worst case of the next call, before it is made: none is ever passed, only reached."""

from __future__ import annotations

from .agent import Agent, Limits
from .endings import Outcome, StopReason
from .models import context_window_tokens
from .run import Run
from .usage import NANO_USD, WorstCase


def breach(agent: Agent, run: Run, *, call: WorstCase, now_ms: int) -> Outcome | None:
    """Why the next call may not be made, or None. `call` is the most that it can use."""
    limits = agent.limits
    return (
        past_deadline(limits, run, now_ms)
        or _turns(limits, run)
        or _seconds(limits, run)
        or _tokens(limits, run, call.tokens)
        or _usd(limits, run, call.nanousd)
        or _window(agent.model, call.tokens)
        or _batch_budget(run, call.nanousd)
    )


def seconds_left(limits: Limits, run: Run) -> float | None:
    """Working time that is left, in seconds; None: no limit. The next call must not take longer."""
    return None if limits.seconds is None else max(0.0, limits.seconds - run.spent.working_ms / 1000)


def deadline_ms(limits: Limits, run: Run) -> int | None:
    """The moment at which the run must be over, by the record's clock; None: no limit."""
    return None if limits.deadline_seconds is None else run.submitted_ms + int(limits.deadline_seconds * 1000)


def past_deadline(limits: Limits, run: Run, now_ms: int) -> Outcome | None:
    """The end of a run that is not over in time; None while there is time."""
    moment_ms = deadline_ms(limits, run)
    if moment_ms is None or now_ms < moment_ms:
        return None
    return Outcome(
        reason=StopReason.DEADLINE,
        message=f"not done {limits.deadline_seconds:g} s after submission (limits.deadline)",
    )


def tool_errors(limits: Limits, error_turns: int) -> Outcome | None:
    """The end of a run whose calls all failed for so many turns in a row; None while it may try again."""
    if limits.error_turns is None or error_turns < limits.error_turns:
        return None
    return Outcome(
        reason=StopReason.TOOL_ERRORS,
        message=f"every call failed in {error_turns} turns in a row (limits.error_turns)",
    )


def _turns(limits: Limits, run: Run) -> Outcome | None:
    if limits.turns is None or run.turn <= limits.turns:
        return None
    return Outcome(reason=StopReason.MAX_TURNS, message=f"no answer after {limits.turns} turns (limits.turns)")


def _seconds(limits: Limits, run: Run) -> Outcome | None:
    left = seconds_left(limits, run)
    if left is None or left > 0:
        return None
    return Outcome(
        reason=StopReason.TIME_BUDGET,
        message=f"{limits.seconds:g} s of working time are used up (limits.seconds)",
    )


def _tokens(limits: Limits, run: Run, worst_case: int) -> Outcome | None:
    if limits.tokens is None or run.spent.tokens_at_most + worst_case <= limits.tokens:
        return None
    possibly = run.spent.possibly_billed_tokens
    lost = f" and up to {possibly} by calls without an answer" if possibly else ""
    return Outcome(
        reason=StopReason.TOKEN_BUDGET,
        message=f"{run.spent.usage.total} tokens used{lost}; the next call could take {worst_case} more, "
        f"past {limits.tokens} (limits.tokens)",
    )


def _usd(limits: Limits, run: Run, worst_case: int | None) -> Outcome | None:
    if limits.usd is None:
        return None
    if worst_case is None or run.spent.unpriced_calls:
        return Outcome(
            reason=StopReason.COST_BUDGET,
            message="the model's price is unknown, so limits.usd cannot be kept; set `usd: null` to run without it",
        )
    if run.spent.nanousd_at_most + worst_case <= limits.usd * NANO_USD:
        return None
    possibly = run.spent.possibly_billed_nanousd
    lost = f" and up to ${possibly / NANO_USD:.4f} for calls without an answer" if possibly else ""
    return Outcome(
        reason=StopReason.COST_BUDGET,
        message=f"${run.spent.cost_nanousd / NANO_USD:.4f} spent{lost}; the next call could cost "
        f"${worst_case / NANO_USD:.4f} more, past ${limits.usd:g} (limits.usd)",
    )


def _window(model: str, worst_case: int) -> Outcome | None:
    window = context_window_tokens(model)
    if worst_case <= window:
        return None
    return Outcome(
        reason=StopReason.CONTEXT_WINDOW,
        message=f"the next call could take {worst_case} tokens, past the {window} that {model} sees at once",
    )


def _batch_budget(run: Run, worst_case: int | None) -> Outcome | None:
    if not run.has_budget or (worst_case is not None and not run.spent.unpriced_calls):
        return None
    message = "the model's price is unknown, so the batch's budget cannot be kept"
    return Outcome(reason=StopReason.BATCH_BUDGET, message=message)
