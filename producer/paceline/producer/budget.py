"""The budget of a batch, as its owner gives it."""

from __future__ import annotations

from paceline.core.agent import Agent
from paceline.core.errors import UsageError
from paceline.core.prices import is_known
from paceline.core.usage import NANO_USD
from paceline.store.port import BatchInfo

_LEAST_USD = 1 / NANO_USD
"""What is less cannot be told from nothing."""
_MOST_USD = 1_000_000.0
"""What is beyond cannot be counted exactly in the record."""


def budget_nanousd(agent: Agent, usd: float) -> int:
    """The budget in nano-dollars. Raises UsageError for one that is none, or that cannot be kept."""
    if not _LEAST_USD <= usd <= _MOST_USD:
        raise UsageError(f"a budget of {usd:g} is none: give dollars, more than 0 and at most {_MOST_USD:,.0f}")
    if not is_known(agent.priced_by):
        raise UsageError(
            f"the price of {agent.model!r} is not known here, so no budget can be kept: check the model's name, or "
            "give its `prices` in the agent file"
        )
    return round(usd * NANO_USD)


def require_budget(info: BatchInfo) -> None:
    """Raises UsageError for a batch whose runs do not ask for a budget: they were submitted without one."""
    if not info.has_budget:
        raise UsageError(
            f"batch {info.name!r} was submitted without a budget, and its runs will never ask for one: choose another "
            "--batch, or leave the budget out"
        )
