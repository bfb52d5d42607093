"""Tokens and money, against values computed by hand from the price table ($ per million tokens, November 2026)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.usage import NANO_USD, Usage, context_tokens, cost_nanousd, read_usage, worst_case_nanousd

COUNTS = {
    "input_tokens": 1_000,
    "cache_read_input_tokens": 10_000,
    "cache_creation_input_tokens": 3_000,
    "cache_creation": {"ephemeral_5m_input_tokens": 2_000, "ephemeral_1h_input_tokens": 1_000},
    "output_tokens": 500,
}

# model: input, output, write 5m, write 1h, read; in nano-dollars a token (that is milli-dollars a million)
PRICES = {
    "claude-fable-5-2": (8_000, 40_000, 10_000, 16_000, 200),
    "claude-opus-5-5": (4_000, 20_000, 5_000, 8_000, 200),
    "claude-opus-5": (5_000, 25_000, 6_250, 10_000, 500),
    "claude-sonnet-5-5": (2_000, 10_000, 2_500, 4_000, 100),
    "claude-sonnet-4-6": (3_000, 15_000, 3_750, 6_000, 300),
    "claude-haiku-5-5": (100, 500, 125, 200, 10),
    "claude-haiku-4-5": (1_000, 5_000, 1_250, 2_000, 100),
}


def by_hand(model: str) -> int:
    input_, output, write_5m, write_1h, read = PRICES[model]
    return 1_000 * input_ + 500 * output + 2_000 * write_5m + 1_000 * write_1h + 10_000 * read


@pytest.mark.parametrize("model", PRICES)
def test_a_call_costs_what_the_table_says(model: str) -> None:
    assert cost_nanousd(COUNTS, model) == by_hand(model)


def test_a_dated_model_costs_what_its_line_does() -> None:
    assert cost_nanousd(COUNTS, "claude-haiku-4-5-20251001") == by_hand("claude-haiku-4-5")


@pytest.mark.parametrize("model", PRICES)
def test_the_batch_tier_costs_half(model: str) -> None:
    assert cost_nanousd(COUNTS | {"service_tier": "batch"}, model) == by_hand(model) // 2


def test_fast_mode_has_prices_of_its_own() -> None:
    plain = {"input_tokens": 1_000, "output_tokens": 500, "speed": "fast"}
    assert cost_nanousd(plain, "claude-opus-5-5") == 1_000 * 8_000 + 500 * 40_000
    assert cost_nanousd(plain, "claude-opus-5") == 1_000 * 10_000 + 500 * 50_000
    assert cost_nanousd(plain, "claude-fable-5-2") == 1_000 * 16_000 + 500 * 80_000


def test_a_long_prompt_moves_the_whole_request_of_haiku_to_the_dearer_table() -> None:
    small = {"input_tokens": 1_000, "cache_read_input_tokens": 99_000, "output_tokens": 10}
    assert cost_nanousd(small, "claude-haiku-5-5") == 1_000 * 100 + 99_000 * 10 + 10 * 500
    large = small | {"cache_read_input_tokens": 99_001}
    assert cost_nanousd(large, "claude-haiku-5-5") == 1_000 * 500 + 99_001 * 50 + 10 * 2_500


def test_iterations_are_summed_in_place_of_the_top_level_each_at_its_own_model() -> None:
    wire = {
        "input_tokens": 9,
        "output_tokens": 9,
        "iterations": [
            {"type": "compaction", "input_tokens": 1_000, "output_tokens": 100},
            {"type": "fallback_message", "input_tokens": 2_000, "output_tokens": 10, "model": "claude-haiku-4-5"},
        ],
    }
    expected = (1_000 * 4_000 + 100 * 20_000) + (2_000 * 1_000 + 10 * 5_000)
    assert cost_nanousd(wire, "claude-opus-5-5") == expected
    assert cost_nanousd(wire | {"iterations": []}, "claude-opus-5-5") == 9 * 4_000 + 9 * 20_000


def test_tokens_are_those_of_all_iterations_and_the_context_is_the_last_answers() -> None:
    compaction = {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500}
    message = {"type": "message", "input_tokens": 23_000, "cache_read_input_tokens": 2_000, "output_tokens": 1_000}
    # The API leaves the compaction out of the top level.
    wire = {"input_tokens": 23_000, "cache_read_input_tokens": 2_000, "output_tokens": 1_000}
    assert read_usage(wire) == Usage(input=23_000, cache_read=2_000, output=1_000)
    assert context_tokens(wire) == 26_000
    with_all = wire | {"iterations": [compaction, message]}
    assert read_usage(with_all) == Usage(input=203_000, cache_read=2_000, output=4_500)
    assert context_tokens(with_all) == 26_000
    assert cost_nanousd(with_all, "claude-opus-5-5") == 203_000 * 4_000 + 2_000 * 200 + 4_500 * 20_000
    # What advises is billed, and is no part of the conversation.
    advised = wire | {"iterations": [message, {**compaction, "type": "advisor_message"}]}
    assert context_tokens(advised) == 26_000
    # Of kinds that nobody knows here, the whole says how long the conversation is.
    assert context_tokens(wire | {"iterations": [compaction]}) == 26_000


def test_a_tier_without_prices_of_its_own_costs_as_usual() -> None:
    plain = {"input_tokens": 1_000, "output_tokens": 100}
    for tier in ("standard", "priority", "one_that_is_new"):
        assert cost_nanousd(plain | {"service_tier": tier}, "claude-opus-5-5") == 1_000 * 4_000 + 100 * 20_000


def test_staying_in_the_us_costs_a_tenth_more_and_a_web_search_a_cent() -> None:
    plain = {"input_tokens": 1_000, "output_tokens": 100}
    cost = 1_000 * 4_000 + 100 * 20_000
    assert cost_nanousd(plain | {"inference_geo": "us"}, "claude-opus-5-5") == cost * 11 // 10
    assert cost_nanousd(plain | {"inference_geo": "not_available"}, "claude-opus-5-5") == cost
    searched = plain | {"server_tool_use": {"web_search_requests": 3}}
    assert cost_nanousd(searched, "claude-opus-5-5") == cost + 3 * NANO_USD // 100


def test_an_unknown_price_is_none_and_never_zero() -> None:
    assert cost_nanousd(COUNTS, "llama-12") is None
    assert worst_case_nanousd("llama-12", input_tokens=1, output_tokens=1) is None
    half_known = {"iterations": [{"input_tokens": 1}, {"input_tokens": 1, "model": "llama-12"}]}
    assert cost_nanousd(half_known, "claude-opus-5-5") is None


def test_counts_that_contradict_each_other_have_no_known_cost() -> None:
    wire: dict[str, Any] = COUNTS | {"cache_creation": {"ephemeral_1h_input_tokens": 3_001}}
    assert cost_nanousd(wire, "claude-opus-5-5") is None


counts = st.integers(0, 400_000)


@given(
    model=st.sampled_from(sorted(PRICES)),
    fresh=counts,
    reads=counts,
    writes=counts,
    output=counts,
)
def test_no_call_costs_more_than_its_worst_case(model: str, fresh: int, reads: int, writes: int, output: int) -> None:
    wire = {
        "input_tokens": fresh,
        "cache_read_input_tokens": reads,
        "cache_creation_input_tokens": writes,
        "output_tokens": output,
    }
    cost = cost_nanousd(wire, model)
    worst = worst_case_nanousd(model, input_tokens=fresh + reads + writes, output_tokens=output)
    assert cost is not None
    assert worst is not None
    assert cost <= worst


def test_usage_reads_the_wire_with_null_and_absent_cache_counts() -> None:
    assert read_usage(COUNTS) == Usage(input=1_000, cache_read=10_000, cache_write=3_000, output=500)
    bare = {"input_tokens": 5, "output_tokens": 7, "cache_read_input_tokens": None}
    assert read_usage(bare) == Usage(input=5, output=7)


@pytest.mark.parametrize("missing", ["input_tokens", "output_tokens"])
def test_usage_needs_its_two_counts(missing: str) -> None:
    with pytest.raises(ValueError, match="usage has no"):
        read_usage({name: value for name, value in COUNTS.items() if name != missing})


def test_usage_adds_up() -> None:
    one, two = Usage(input=1, cache_read=2, cache_write=3, output=4), Usage(input=10, output=40)
    assert one + two == Usage(input=11, cache_read=2, cache_write=3, output=44)
    assert (one.all_input, one.total) == (6, 10)
