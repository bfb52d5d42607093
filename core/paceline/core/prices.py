"""What tokens of a model cost: by the price table, or as its operator says, for a model of his own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import TypeAlias, assert_never

from .usage import NANO_USD, Usage, WorstCase, usage_nanousd, worst_case_nanousd

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

    def to_json(self) -> dict[str, str]:
        """Plain JSON data, exact."""
        return {name: str(usd) for name, usd in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, str]) -> GivenPrices:
        """What `to_json` wrote."""
        return cls(
            input_usd=Decimal(data["input_usd"]),
            output_usd=Decimal(data["output_usd"]),
            cache_write_usd=Decimal(data["cache_write_usd"]),
            cache_read_usd=Decimal(data["cache_read_usd"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPrices:
    """The prices of this model, by the price table."""

    model: str


Prices: TypeAlias = GivenPrices | ModelPrices


def exact_usd(usd: float) -> Decimal:
    """The dollars that somebody wrote: 0.3 is three tenths, not the nearest binary fraction."""
    return Decimal(str(usd))


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


def call_nanousd(prices: Prices, usage: Usage) -> int | None:
    """What a call that uses this costs at these prices; None: the price is unknown."""
    match prices:
        case ModelPrices(model=model):
            return usage_nanousd(usage, model)
        case GivenPrices():
            return _nano(
                usage.input * prices.input_usd
                + usage.cache_write * prices.cache_write_usd
                + usage.cache_read * prices.cache_read_usd
                + usage.output * prices.output_usd
            )
        case _:
            assert_never(prices)


def worst_case(prices: Prices, *, input_tokens: int, output_tokens: int) -> WorstCase:
    """The most that a call of this size can use and cost, whatever part of its input the cache has or gets."""
    match prices:
        case ModelPrices(model=model):
            nanousd = worst_case_nanousd(model, input_tokens=input_tokens, output_tokens=output_tokens)
        case GivenPrices():
            dearest = max(prices.input_usd, prices.cache_write_usd, prices.cache_read_usd)
            nanousd = _nano(input_tokens * dearest + output_tokens * prices.output_usd)
        case _:
            assert_never(prices)
    return WorstCase(tokens=input_tokens + output_tokens, nanousd=nanousd)


def is_known(prices: Prices) -> bool:
    """Whether a call's cost can be known."""
    return call_nanousd(prices, Usage(input=1, output=1)) is not None


def _nano(usd_per_million: Decimal) -> int:
    return int((usd_per_million * _NANO_USD_PER_TOKEN).to_integral_value(ROUND_HALF_UP))
