"""What a run will cost, before it is run: the arithmetic of a conversation that is sent whole with each turn.

Turn n sends the prefix and what n - 1 turns added, so the tokens of a run grow with the square of its turns. With
prompt caching each token is written to the cache once, by the turn that first sends it, and read by every later turn.

A run of 20 turns at $3 and $15 a million tokens, and one of 40:

>>> from decimal import Decimal
>>> from paceline.core.prices import given_prices
>>> from paceline.core.usage import NANO_USD
>>> prices = given_prices(Decimal(3), Decimal(15))
>>> of_20 = estimate(Question(prefix_tokens=8_000, growth_tokens=1_500, turns=20, output_tokens=300, prices=prices))
>>> of_20.plain.usage
Usage(input=445000, cache_read=0, cache_write=0, output=6000)
>>> of_20.cached.usage
Usage(input=0, cache_read=408500, cache_write=36500, output=6000)
>>> [bill.input_nanousd / NANO_USD for bill in (of_20.plain, of_20.cached)], of_20.plain.output_nanousd / NANO_USD
([1.335, 0.259425], 0.09)
>>> of_40 = estimate(Question(prefix_tokens=8_000, growth_tokens=1_500, turns=40, output_tokens=300, prices=prices))
>>> of_40.plain.usage.all_input
1490000
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .prices import Prices, call_nanousd
from .usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The run that is asked about."""

    prefix_tokens: int
    """What the first turn sends: system prompt, tools, and the row's question."""
    growth_tokens: int
    """What each turn adds to the next one's input: the model's answer and the results of its calls."""
    turns: int
    output_tokens: int
    """What the model writes in each turn."""
    prices: Prices


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Tokens of a run and what they cost; None: the price is unknown."""

    usage: Usage
    input_nanousd: int | None
    output_nanousd: int | None

    @property
    def nanousd(self) -> int | None:
        """Input and output."""
        known = [part for part in (self.input_nanousd, self.output_nanousd) if part is not None]
        return sum(known) if len(known) == 2 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The run without prompt caching, and with it; `cached_turns` says what each turn writes and reads."""

    plain: Bill
    cached: Bill
    cached_turns: tuple[Usage, ...]


def estimate(question: Question) -> Estimate:
    """What the run uses and costs.

    With caching the prefix must reach the model's minimum (512 to 4,096 tokens), each turn must come before the cache
    expires, and no other run has written the prefix already.
    """
    cached_turns = tuple(_cached_turn(question, turn) for turn in range(question.turns))
    plain_turns = [Usage(input=usage.all_input, output=usage.output) for usage in cached_turns]
    return Estimate(
        plain=_bill(question.prices, plain_turns),
        cached=_bill(question.prices, cached_turns),
        cached_turns=cached_turns,
    )


def _cached_turn(question: Question, turns_before: int) -> Usage:
    sent = question.prefix_tokens + turns_before * question.growth_tokens
    new = question.growth_tokens if turns_before else question.prefix_tokens
    return Usage(cache_write=new, cache_read=sent - new, output=question.output_tokens)


def _bill(prices: Prices, turns: Sequence[Usage]) -> Bill:
    whole = _sum([call_nanousd(prices, usage) for usage in turns])
    input_ = _sum([call_nanousd(prices, replace(usage, output=0)) for usage in turns])
    return Bill(
        usage=sum(turns, Usage()),
        input_nanousd=input_,
        output_nanousd=None if whole is None or input_ is None else whole - input_,
    )


def _sum(costs: Sequence[int | None]) -> int | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None
