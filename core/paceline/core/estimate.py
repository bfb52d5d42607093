"""What a run will cost, before it is run: the arithmetic of a conversation that is sent whole with each turn.

Turn n sends the prefix and what n - 1 turns added, so the tokens of a run grow with the square of its turns. With
prompt caching each token is written to the cache once, by the turn that first sends it, and read by every later turn.

A run of 20 turns at $3 and $15 a million tokens, and one of 40:

>>> from decimal import Decimal
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
from decimal import ROUND_HALF_UP, Decimal
from typing import TypeAlias, assert_never

from .usage import NANO_USD, Usage, usage_nanousd

_USUAL_CACHE_WRITE = Decimal("1.25")
_USUAL_CACHE_READ = Decimal("0.1")
"""Of the input's price: Anthropic's pricing page, for a cache that holds five minutes."""
_NANO_USD_PER_TOKEN = NANO_USD // 1_000_000
"""Of a price of one dollar a million tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenPrices:
    """Dollars a million tokens, the same for a prompt of any size."""

    input_usd: Decimal
    output_usd: Decimal
    cache_write_usd: Decimal
    cache_read_usd: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPrices:
    """The prices of this model, by the price table."""

    model: str


Prices: TypeAlias = GivenPrices | ModelPrices


def given_prices(
    input_usd: Decimal,
    output_usd: Decimal,
    *,
    cache_write_usd: Decimal | None = None,
    cache_read_usd: Decimal | None = None,
) -> GivenPrices:
    """Prices in dollars a million tokens; the cache's, where they are not given, by Anthropic's usual factors."""
    return GivenPrices(
        input_usd=input_usd,
        output_usd=output_usd,
        cache_write_usd=input_usd * _USUAL_CACHE_WRITE if cache_write_usd is None else cache_write_usd,
        cache_read_usd=input_usd * _USUAL_CACHE_READ if cache_read_usd is None else cache_read_usd,
    )


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


def call_nanousd(prices: Prices, usage: Usage) -> int | None:
    """What a call that uses this costs at these prices; None: the price is unknown."""
    match prices:
        case ModelPrices(model=model):
            return usage_nanousd(usage, model)
        case GivenPrices():
            usd_per_million = (
                usage.input * prices.input_usd
                + usage.cache_write * prices.cache_write_usd
                + usage.cache_read * prices.cache_read_usd
                + usage.output * prices.output_usd
            )
            return int((usd_per_million * _NANO_USD_PER_TOKEN).to_integral_value(ROUND_HALF_UP))
        case _:
            assert_never(prices)
