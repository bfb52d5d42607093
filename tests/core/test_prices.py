"""What a model of one's own costs: as its agent says, and no more than its worst case."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.agent import Agent
from paceline.core.prices import GivenPrices, ModelPrices, call_nanousd, given_prices, is_known, worst_case
from paceline.core.usage import Usage, WorstCase

OWN = given_prices(Decimal("0.3"), Decimal("1.1"), cache_write_usd=Decimal(0), cache_read_usd=Decimal("0.05"))
LOCAL = Agent(name="a", model="llama-12", prices=OWN)


def test_a_call_costs_what_its_agent_says_to_the_nano_dollar() -> None:
    used = Usage(input=1_000_001, cache_read=3, cache_write=7, output=10)
    assert call_nanousd(LOCAL.priced_by, used) == 300_000_300 + 150 + 0 + 11_000
    assert is_known(LOCAL.priced_by)


def test_without_prices_of_its_own_a_model_has_those_of_the_table() -> None:
    agent = Agent(name="a", model="claude-opus-5-5")
    assert agent.priced_by == ModelPrices(model="claude-opus-5-5")
    assert call_nanousd(agent.priced_by, Usage(input=1_000)) == 4_000_000
    assert not is_known(ModelPrices(model="llama-12"))
    assert worst_case(ModelPrices(model="llama-12"), input_tokens=1, output_tokens=2) == WorstCase(
        tokens=3, nanousd=None
    )


def test_a_model_may_cost_nothing() -> None:
    free = given_prices(Decimal(0), Decimal(0))
    assert is_known(free)
    assert worst_case(free, input_tokens=9, output_tokens=9).nanousd == 0


prices = st.builds(GivenPrices, **dict.fromkeys(GivenPrices.__slots__, st.decimals(0, 100, places=3)))
counts = st.integers(0, 200_000)


@given(prices=prices, used=st.builds(Usage, input=counts, cache_read=counts, cache_write=counts, output=counts))
def test_no_call_costs_more_than_its_worst_case(prices: GivenPrices, used: Usage) -> None:
    worst = worst_case(prices, input_tokens=used.all_input, output_tokens=used.output)
    cost = call_nanousd(prices, used)
    assert cost is not None
    assert worst.nanousd is not None
    assert cost <= worst.nanousd
    assert worst.tokens == used.total


@given(prices=prices)
def test_prices_are_frozen_with_the_agent(prices: GivenPrices) -> None:
    agent = Agent(name="a", model="llama-12", prices=prices)
    assert Agent.thaw(agent.freeze()) == agent
    assert Agent.thaw(agent.freeze()).digest == agent.digest


@pytest.mark.parametrize("priced", [OWN, None])
def test_an_agent_with_prices_is_another_one_than_one_without(priced: GivenPrices | None) -> None:
    assert (Agent(name="a", model="llama-12", prices=priced).digest == LOCAL.digest) is (priced is OWN)
