"""How far a batch is: the figures that people watch, as values and as a line of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.core.lifecycle import AWAITS_PERSON, State
from paceline.core.run import Spent
from paceline.core.usage import NANO_USD, Usage
from paceline.store.port import Budget

from .fleet import BatchStatus
from .result import cost_usd, usage_json

_MINUTE = 60
_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a batch stood when the watching began: what was done before says nothing about the speed now."""

    at_seconds: float
    done: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The figures of one moment."""

    rows: int
    done: int
    running: int
    held: int
    undecided: int
    """Runs that await the decision of a person."""
    queued: int
    turns: int
    usage: Usage
    cost_usd: float | None
    eta_seconds: float | None

    def line(self) -> str:
        """One line for a person."""
        parts = [
            f"{self.done}/{counted(self.rows, 'row')}",
            f"{self.running} running",
            *([f"{self.held} on hold"] if self.held else []),
            *([f"{self.undecided} awaiting a decision"] if self.undecided else []),
            counted(self.turns, "turn"),
            f"{count_text(self.usage.total)} tokens",
            dollars(self.cost_usd),
            f"{percent(cache_share(self.usage))} cached",
        ]
        if self.eta_seconds is not None and self.done < self.rows:
            parts.append(f"about {duration(self.eta_seconds)} left")
        return ", ".join(parts)


def progress_of(status: BatchStatus, start: Start, now_seconds: float) -> Progress:
    """The figures; what is left is reckoned from the rows done since `start`."""
    counts = status.counts
    done = counts.runs - counts.active
    held, queued = counts.states[State.ON_HOLD], counts.states[State.QUEUED]
    undecided = sum(counts.states[state] for state in AWAITS_PERSON)
    return Progress(
        rows=counts.runs,
        done=done,
        running=counts.active - held - undecided - queued,
        held=held,
        undecided=undecided,
        queued=queued,
        turns=counts.turns,
        usage=counts.spent.usage,
        cost_usd=cost_usd(counts.spent.cost_nanousd, counts.spent.unpriced_calls),
        eta_seconds=_eta(counts.active, done - start.done, now_seconds - start.at_seconds),
    )


def _eta(left: int, done: int, seconds: float) -> float | None:
    return left * seconds / done if done > 0 else None


def cache_share(usage: Usage) -> float | None:
    """The share of all input that was read from the prompt cache; None where there was no input."""
    return usage.cache_read / usage.all_input if usage.all_input else None


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def dollars(usd: float | None) -> str:
    """Dollars with four decimals: runs cost fractions of a cent."""
    return "cost unknown" if usd is None else f"${usd:,.4f}" if usd < 100 else f"${usd:,.2f}"


def possibly_billed(spent: Spent) -> str:
    """What follows the cost in words: how much more calls without an answer may have cost; empty if there were none."""
    if not spent.possibly_billed_tokens:
        return ""
    # Without a known price there are no dollars to tell of.
    usd = spent.possibly_billed_nanousd
    cost = f"{dollars(cost_usd(usd, 0))} and " if usd else ""
    return f" (and up to {cost}{count_text(spent.possibly_billed_tokens)} tokens possibly billed)"


def possibly_billed_json(spent: Spent) -> dict[str, int | float]:
    """The same as plain data."""
    return {"tokens": spent.possibly_billed_tokens, "usd": spent.possibly_billed_nanousd / NANO_USD}


def budget_text(budget: Budget) -> str:
    """A budget and what is gone of it, for a person."""
    reserved = f", {_usd(budget.reserved)} reserved for calls under way" if budget.reserved else ""
    return f"budget {_usd(budget.total)}: {_usd(budget.spent)} spent{reserved}"


def budget_json(budget: Budget | None) -> dict[str, float] | None:
    """The same as plain data."""
    if budget is None:
        return None
    spent, reserved = budget.spent / NANO_USD, budget.reserved / NANO_USD
    return {"usd": budget.total / NANO_USD, "spent_usd": spent, "reserved_usd": reserved}


def _usd(nanousd: int) -> str:
    return dollars(nanousd / NANO_USD)


def count_text(count: int) -> str:
    """A large number as people say it: 12.3k, 4.56M."""
    if count < 10_000:
        return str(count)
    return f"{count / 1000:.1f}k" if count < 1_000_000 else f"{count / 1_000_000:.2f}M"


def counted(count: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`."""
    if seconds < _MINUTE:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"


def sentence(text: str) -> str:
    """The text as a sentence: an API's own words often are one already."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def status_json(status: BatchStatus) -> dict[str, Any]:
    """Where a batch stands, as plain data."""
    info, counts = status.info, status.counts
    return {
        "batch": info.name,
        "agent": info.agent_name,
        "agent_digest": info.agent,
        "tenant": info.tenant,
        "opened_ms": info.opened_ms,
        "rows": counts.runs,
        "active": counts.active,
        "states": {state.value: count for state, count in counts.states.items() if count},
        "stop_reasons": dict(counts.reasons),
        "turns": counts.turns,
        "tool_calls": counts.spent.tool_calls,
        "usage": usage_json(counts.spent.usage),
        "cache_share": cache_share(counts.spent.usage),
        "cost_usd": cost_usd(counts.spent.cost_nanousd, counts.spent.unpriced_calls),
        "possibly_billed": possibly_billed_json(counts.spent),
        "budget": budget_json(status.budget),
        "working_seconds": counts.spent.working_ms / 1000,
    }
