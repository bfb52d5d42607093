"""Limits from observed runs: twice what all but the longest of the successful runs needed.

A limit is there for the run that has gone astray, not for the one that is merely long. One that lies far above what
runs need guards nothing; one that ends runs may be right or too low, and a person must look at those runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .agent import Agent, Limits
from .endings import ENDINGS, StopReason
from .lifecycle import Status
from .prices import worst_case
from .usage import NANO_USD

HEADROOM = 2
"""A recommended limit is so many times the p95."""
IDLE_ABOVE = 10
"""A limit of more than so many times the p95 ends only runs that have long gone astray."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """A run that is over, and what it used."""

    reason: StopReason
    turns: int
    tokens: int
    """All input, cached too, and output."""
    working_ms: int
    cost_nanousd: int | None
    """None: unknown, because the price of one of its calls is."""
    context_tokens: int = 0
    """Of its last call: what went in and what came out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitAdvice:
    """One limit. All numbers are in its own unit: turns, tokens, seconds or dollars."""

    name: str
    """As in the agent file, under `limits`."""
    reason: StopReason
    """How a run ends that the limit cuts."""
    today: float | None
    """None: no limit."""
    p50: float | None
    p95: float | None
    """Of the successful runs; None where there are none, or what they used is unknown."""
    recommended: float | None
    is_raised: bool
    """The recommendation is more than twice the p95.

    The worst case of a call must fit in before it is made, and may be far more than the call then takes: by twice the
    p95 alone, runs that would have used less would be stopped before their last call.
    """
    cut_runs: int
    """Runs that this limit ended."""

    @property
    def times_p95(self) -> float | None:
        """How many times the p95 the limit of today is."""
        return self.today / self.p95 if self.today is not None and self.p95 else None

    @property
    def is_idle(self) -> bool:
        """Whether the limit of today lies so high that it guards next to nothing."""
        return self.times_p95 is not None and self.times_p95 > IDLE_ABOVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What the finished runs say about the limits of their agent."""

    finished: int
    succeeded: int
    deadline_cut_runs: int
    """Runs that `limits.deadline` ended: it is kept by having workers enough, so none is recommended."""
    limits: tuple[LimitAdvice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measure:
    """One limit, and how runs are held against it: in whole small units, `unit` of which are one of the limit's."""

    name: str
    reason: StopReason
    today: Callable[[Limits], float | None]
    used: Callable[[FinishedRun], int | None]
    a_call: Callable[[Agent, int], int]
    """The worst case of a call with so many tokens of input, which must fit in before the call is made."""
    unit: int = 1
    step: int = 1
    """A recommendation is rounded up to a multiple of this."""

    def in_unit(self, value: int | None) -> float | None:
        return value if value is None or self.unit == 1 else value / self.unit


def _no_worst_case(agent: Agent, input_tokens: int) -> int:
    return 0


def _worst_tokens(agent: Agent, input_tokens: int) -> int:
    return input_tokens + agent.max_tokens


def _worst_nanousd(agent: Agent, input_tokens: int) -> int:
    return worst_case(agent.priced_by, input_tokens=input_tokens, output_tokens=agent.max_tokens).nanousd or 0


_MEASURES = (
    _Measure(
        name="turns",
        reason=StopReason.MAX_TURNS,
        today=lambda limits: limits.turns,
        used=lambda run: run.turns,
        a_call=_no_worst_case,
    ),
    _Measure(
        name="tokens",
        reason=StopReason.TOKEN_BUDGET,
        today=lambda limits: limits.tokens,
        used=lambda run: run.tokens,
        a_call=_worst_tokens,
    ),
    _Measure(
        name="seconds",
        reason=StopReason.TIME_BUDGET,
        today=lambda limits: limits.seconds,
        used=lambda run: run.working_ms,
        a_call=_no_worst_case,
        unit=1000,
        step=1000,
    ),
    _Measure(
        name="usd",
        reason=StopReason.COST_BUDGET,
        today=lambda limits: limits.usd,
        used=lambda run: run.cost_nanousd,
        a_call=_worst_nanousd,
        unit=NANO_USD,
        step=NANO_USD // 10_000,
    ),
)


def advise(agent: Agent, finished: Iterable[FinishedRun]) -> Advice:
    """What these runs, all of this agent, say about its limits."""
    runs = list(finished)
    succeeded = [run for run in runs if ENDINGS[run.reason].status is Status.SUCCEEDED]
    return Advice(
        finished=len(runs),
        succeeded=len(succeeded),
        deadline_cut_runs=_cut_by(StopReason.DEADLINE, runs),
        limits=tuple(_limit(measure, agent, runs, succeeded) for measure in _MEASURES),
    )


def percentile(values: Sequence[int], percent: int) -> int | None:
    """The smallest of the values that at least so many percent of them do not pass (nearest rank); None of none."""
    if not values:
        return None
    return sorted(values)[max(1, _up(len(values) * percent, 100) // 100) - 1]


def _limit(
    measure: _Measure, agent: Agent, runs: Sequence[FinishedRun], succeeded: Sequence[FinishedRun]
) -> LimitAdvice:
    used = _used(measure, succeeded)
    amounts = [amount for _, amount in used]
    p95 = percentile(amounts, 95)
    least = None if p95 is None else _least(measure, agent, used, HEADROOM * p95)
    return LimitAdvice(
        name=measure.name,
        reason=measure.reason,
        today=measure.today(agent.limits),
        p50=measure.in_unit(percentile(amounts, 50)),
        p95=measure.in_unit(p95),
        recommended=measure.in_unit(_recommended(measure, p95, least)),
        is_raised=p95 is not None and least is not None and least > HEADROOM * p95,
        cut_runs=_cut_by(measure.reason, runs),
    )


def _used(measure: _Measure, succeeded: Sequence[FinishedRun]) -> list[tuple[FinishedRun, int]]:
    """What each run used; nothing where that is unknown of any, for the runs of unknown cost may be the dear ones."""
    known = [(run, amount) for run in succeeded if (amount := measure.used(run)) is not None]
    return known if len(known) == len(succeeded) else []


def _least(measure: _Measure, agent: Agent, used: Sequence[tuple[FinishedRun, int]], most: int) -> int:
    """The limit that lets each of these runs that used `most` or less begin its last call."""
    within = [(run, amount) for run, amount in used if amount <= most]
    worst_call = measure.a_call(agent, max(run.context_tokens for run, _ in within))
    return max(amount for _, amount in within) + worst_call


def _recommended(measure: _Measure, p95: int | None, least: int | None) -> int | None:
    if p95 is None or least is None:
        return None
    # A limit is more than zero, also where what runs used rounds to it.
    return _up(max(HEADROOM * p95, least, 1), measure.step)


def _cut_by(reason: StopReason, runs: Sequence[FinishedRun]) -> int:
    return sum(run.reason is reason for run in runs)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
