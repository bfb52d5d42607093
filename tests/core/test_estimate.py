"""The cost of a run before it is run, against figures computed by hand."""

from __future__ import annotations

import doctest
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core import estimate as module
from paceline.core.estimate import Bill, Question, estimate
from paceline.core.prices import GivenPrices, ModelPrices, given_prices
from paceline.core.usage import NANO_USD, Usage

PRICES = given_prices(Decimal(3), Decimal(15))
OF_20 = Question(prefix_tokens=8_000, growth_tokens=1_500, turns=20, output_tokens=300, prices=PRICES)


def usd(nanousd: int | None) -> float | None:
    return None if nanousd is None else nanousd / NANO_USD


def test_twenty_turns_send_445k_tokens_for_a_dollar_thirty_four() -> None:
    plain = estimate(OF_20).plain
    assert plain.usage == Usage(input=445_000, output=6_000)
    assert (usd(plain.input_nanousd), usd(plain.output_nanousd), usd(plain.nanousd)) == (1.335, 0.09, 1.425)


def test_cached_they_write_36_5k_and_read_408_5k_for_26_cents() -> None:
    cached = estimate(OF_20).cached
    assert cached.usage == Usage(cache_write=36_500, cache_read=408_500, output=6_000)
    assert (usd(cached.input_nanousd), usd(cached.output_nanousd)) == (0.259425, 0.09)


def test_twice_the_turns_send_more_than_three_times_the_tokens() -> None:
    assert estimate(replace(OF_20, turns=40)).plain.usage.all_input == 1_490_000


def test_each_turn_writes_what_is_new_and_reads_all_that_was_sent_before() -> None:
    first, second, third, *_ = estimate(OF_20).cached_turns
    assert first == Usage(cache_write=8_000, output=300)
    assert second == Usage(cache_write=1_500, cache_read=8_000, output=300)
    assert third == Usage(cache_write=1_500, cache_read=9_500, output=300)


def test_one_turn_is_dearer_with_the_cache_than_without() -> None:
    one = estimate(replace(OF_20, turns=1))
    assert (usd(one.plain.input_nanousd), usd(one.cached.input_nanousd)) == (0.024, 0.03)


def test_the_example_of_the_module_is_right() -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_cache_prices_that_are_given_stand() -> None:
    cache = {"cache_write_usd": Decimal(6), "cache_read_usd": Decimal(0)}
    assert given_prices(Decimal(3), Decimal(15), **cache) == GivenPrices(
        input_usd=Decimal(3), output_usd=Decimal(15), cache_write_usd=Decimal(6), cache_read_usd=Decimal(0)
    )


def test_the_table_has_the_prices_of_a_model() -> None:
    assert estimate(replace(OF_20, prices=ModelPrices(model="claude-sonnet-4-6"))) == estimate(OF_20)


def test_a_turn_with_a_long_prompt_is_priced_by_the_dearer_table_and_the_turns_before_it_are_not() -> None:
    question = Question(
        prefix_tokens=100_000, growth_tokens=1, turns=2, output_tokens=10, prices=ModelPrices(model="claude-haiku-5-5")
    )
    assert estimate(question).plain == Bill(
        usage=Usage(input=200_001, output=20),
        input_nanousd=100_000 * 100 + 100_001 * 500,
        output_nanousd=10 * 500 + 10 * 2_500,
    )


def test_of_a_model_without_a_price_the_tokens_are_known_and_the_cost_is_not() -> None:
    plain = estimate(replace(OF_20, prices=ModelPrices(model="llama-12"))).plain
    assert plain.usage.all_input == 445_000
    assert (plain.input_nanousd, plain.output_nanousd, plain.nanousd) == (None, None, None)


@given(prefix=st.integers(0, 100_000), growth=st.integers(0, 5_000), turns=st.integers(1, 60))
def test_both_ways_send_the_same_tokens_and_each_is_written_once(prefix: int, growth: int, turns: int) -> None:
    result = estimate(replace(OF_20, prefix_tokens=prefix, growth_tokens=growth, turns=turns))
    assert result.cached.usage.all_input == result.plain.usage.all_input
    assert result.plain.usage.all_input == turns * prefix + growth * turns * (turns - 1) // 2
    assert result.cached.usage.cache_write == prefix + (turns - 1) * growth


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-haiku-4-5"])
def test_the_parts_of_a_bill_add_up(model: str) -> None:
    cached = estimate(replace(OF_20, prices=ModelPrices(model=model))).cached
    assert cached.input_nanousd is not None
    assert cached.output_nanousd is not None
    assert cached.nanousd == cached.input_nanousd + cached.output_nanousd
