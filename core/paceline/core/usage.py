"""Tokens and money: what one model call used, what it cost, and what the next one could cost at most.

Money is counted in whole nano-dollars, so that totals add up exactly. Prices are genai-prices': the read price is a
model's own, and some models have two tables by prompt size, so a price is always asked for a whole call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from typing import Any

from genai_prices import Usage as PricedUsage
from genai_prices import calc_price

NANO_USD = 1_000_000_000
_WEB_SEARCH_USD = Decimal("0.01")
_US_ONLY_FACTOR = Decimal("1.1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens. `input` excludes what was read from or written to the cache, as on the wire."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            output=self.output + other.output,
        )

    @property
    def all_input(self) -> int:
        """Every token that went in, cached or not."""
        return self.input + self.cache_read + self.cache_write

    @property
    def total(self) -> int:
        """All input and the output: what `limits.tokens` counts, and what the next request carries at least."""
        return self.all_input + self.output


def read_usage(wire: Mapping[str, Any]) -> Usage:
    """The tokens that an answer's `usage` is billed for: of all its `iterations`, where there are any.

    Raises ValueError where a count is not one, or a needed one is missing.
    """
    return sum((_tokens(part) for part in _parts(wire)), Usage())


def context_tokens(wire: Mapping[str, Any]) -> int:
    """What the conversation comes to with this answer: what its last step took in and said. Raises as `read_usage`.

    An answer may have several steps where tools of the API's own run; its top level is their sum.
    """
    steps = [part for part in _parts(wire) if part.get("type") in _ANSWERING]
    return _tokens(steps[-1] if steps else wire).total


_ANSWERING = ("message", "fallback_message")
"""Iterations that answer: no compaction, nor whoever advises."""


def _parts(wire: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """What is billed: each iteration, or the whole where there is none. The whole leaves compactions out."""
    return wire.get("iterations") or [wire]


def _tokens(wire: Mapping[str, Any]) -> Usage:
    return Usage(
        input=_count(wire.get("input_tokens"), "input_tokens"),
        cache_read=_optional_count(wire, "cache_read_input_tokens"),
        cache_write=_optional_count(wire, "cache_creation_input_tokens"),
        output=_count(wire.get("output_tokens"), "output_tokens"),
    )


def _optional_count(wire: Mapping[str, Any], name: str) -> int:
    return 0 if wire.get(name) is None else _count(wire[name], name)


def _count(value: object, name: str) -> int:
    # Not a bool, which Python takes for a number.
    if type(value) is not int or value < 0:
        raise ValueError(f"usage has no number of 0 or more as {name}")
    return value


def cost_nanousd(wire: Mapping[str, Any], model: str) -> int | None:
    """What a call cost, from its answer's `usage`; None where that cannot be known (never 0).

    Sums `iterations` where there are any (each may name its model), halves the batch tier, and adds what
    `inference_geo` and web searches add (Anthropic's pricing page). Raises ValueError where a count is not one.
    """
    context = _price_context(wire)
    prices = [_price(part, part.get("model") or model, context) for part in _parts(wire)]
    known = [price for price in prices if price is not None]
    if len(known) < len(prices):
        return None
    usd = sum(known, Decimal(0))
    if wire.get("inference_geo") == "us":
        usd *= _US_ONLY_FACTOR
    searches = _optional_count(wire.get("server_tool_use") or {}, "web_search_requests")
    return _nano(usd + _WEB_SEARCH_USD * searches)


def usage_nanousd(usage: Usage, model: str) -> int | None:
    """What a call that uses this costs by the price table, with a cache of five minutes; None: the price is unknown."""
    usd = _priced(model, usage.all_input, usage.cache_read, usage.cache_write, 0, usage.output, ())
    return None if usd is None else _nano(usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstCase:
    """The most that a call can use. `nanousd` is None where the price is unknown."""

    tokens: int
    nanousd: int | None


def worst_case_nanousd(model: str, *, input_tokens: int, output_tokens: int) -> int | None:
    """The most that a call of this size can cost; None: the price is unknown.

    All of its input is written to the cache, and the workspace may be one that is served from the US alone.
    """
    usd = _priced(model, input_tokens, 0, input_tokens, 0, output_tokens, ())
    return None if usd is None else _nano(usd * _US_ONLY_FACTOR)


def _price_context(wire: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    batch = (("processing", "batch"),) if wire.get("service_tier") == "batch" else ()
    fast = (("speed", "fast"),) if wire.get("speed") == "fast" else ()
    return batch + fast


def _price(part: Mapping[str, Any], model: str, context: tuple[tuple[str, str], ...]) -> Decimal | None:
    writes = _optional_count(part, "cache_creation_input_tokens")
    reads = _optional_count(part, "cache_read_input_tokens")
    hour_writes = _optional_count(part.get("cache_creation") or {}, "ephemeral_1h_input_tokens")
    inclusive = _optional_count(part, "input_tokens") + writes + reads
    output = _optional_count(part, "output_tokens")
    return _priced(model, inclusive, reads, writes - hour_writes, hour_writes, output, context)


@lru_cache(maxsize=4096)
def _priced(
    model: str,
    inclusive_input: int,
    reads: int,
    writes_5m: int,
    writes_1h: int,
    output: int,
    context: tuple[tuple[str, str], ...],
) -> Decimal | None:
    try:
        usage = PricedUsage(
            input_tokens=inclusive_input,
            cache_read_tokens=reads,
            cache_write_tokens=writes_5m + writes_1h,
            cache_write_5m_tokens=writes_5m,
            cache_write_1h_tokens=writes_1h,
            output_tokens=output,
        )
        return calc_price(usage, model, provider_id="anthropic", price_context=dict(context) or None).total_price
    except (LookupError, ValueError):  # an unknown model, or counts that contradict each other
        return None


def _nano(usd: Decimal) -> int:
    return int((usd * NANO_USD).to_integral_value(ROUND_HALF_UP))
