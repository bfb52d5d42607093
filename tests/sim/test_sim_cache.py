"""Prompt caching, worked by hand: a text of 3,500 characters is 1,000 tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from multidict import CIMultiDict
from support.sim_wire import HEADERS, assistant, body, post, signed, text, thought, user

from paceline.sim import Answer, Simulator, Usage
from paceline.sim.api import Accepted, Api
from paceline.sim.cache import PromptCache

SHORT = {"type": "ephemeral"}
LONG = {"type": "ephemeral", "ttl": "1h"}


def block(name: str, tokens: int = 1000, **more: object) -> dict[str, object]:
    return text((name * 3500)[: tokens * 7 // 2], **more)


@dataclass
class Clock:
    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Caching:
    """A simulator on a clock of its own; `ask` answers (read, written for 5 minutes, for an hour, in full)."""

    def __init__(self, simulator: Simulator, clock: Clock) -> None:
        self.simulator = simulator
        self.clock = clock

    def ask(self, *messages: object, key: str = "a", **fields: object) -> tuple[int, int, int, int]:
        sends = body(*messages, **{"model": "claude-opus-5", "tools": None, **fields})
        reply = post(self.simulator.url, sends, {**HEADERS, "authorization": f"Bearer {key}"})
        assert reply.status == 200, reply.text
        usage = reply.body["usage"]
        written = usage["cache_creation"]
        assert usage["cache_creation_input_tokens"] == sum(written.values())
        return (
            usage["cache_read_input_tokens"],
            written["ephemeral_5m_input_tokens"],
            written["ephemeral_1h_input_tokens"],
            usage["input_tokens"],
        )


@pytest.fixture
def caching() -> Iterator[Caching]:
    clock = Clock()
    keys = {"a": "blue", "b": "blue", "c": "green"}
    with Simulator(lambda request: Answer(text="hi"), api_keys=keys, clock=clock) as simulator:
        yield Caching(simulator, clock)


def test_without_breakpoints_everything_is_paid_in_full(caching: Caching) -> None:
    assert caching.ask(user(block("a"))) == (0, 0, 0, 1000)
    assert caching.ask(user(block("a"))) == (0, 0, 0, 1000)


def test_what_one_request_writes_the_next_reads(caching: Caching) -> None:
    first = user(block("a", cache_control=SHORT), block("b", tokens=10))
    assert caching.ask(first) == (0, 1000, 0, 10)
    assert caching.ask(first) == (1000, 0, 0, 10)


def test_a_breakpoint_that_moves_with_the_conversation_pays_for_the_new_blocks_alone(caching: Caching) -> None:
    assert caching.ask(user(block("a", cache_control=SHORT))) == (0, 1000, 0, 0)
    grown = [user(block("a")), assistant(block("b", tokens=100)), user(block("c", 200, cache_control=SHORT))]
    assert caching.ask(*grown) == (1000, 300, 0, 0)
    assert caching.ask(*grown) == (1300, 0, 0, 0)


def test_the_automatic_breakpoint_moves_by_itself(caching: Caching) -> None:
    assert caching.ask(user(block("a")), cache_control=SHORT) == (0, 1000, 0, 0)
    grown = [user(block("a")), assistant(block("b", tokens=100)), user(block("c", tokens=200))]
    assert caching.ask(*grown, cache_control=SHORT) == (1000, 300, 0, 0)


def test_the_automatic_breakpoint_skips_thinking(caching: Caching) -> None:
    first = user(block("a"))
    prefilled: dict[str, Any] = {"model": "claude-haiku-4-5", "system": "s" * 14_000, "tools": None}
    spoken = signed(body(first, **prefilled), block("b", tokens=50), thought("m" * 350))
    assert caching.ask(first, spoken, cache_control=SHORT, **prefilled) == (0, 5050, 0, 100)


def test_tools_and_system_come_before_the_messages(caching: Caching) -> None:
    # A tool counts as its JSON: 78 characters around the description.
    tool = {"name": "t", "input_schema": {"type": "object"}, "description": "d" * (3500 - 78)}
    tools = [{**tool, "cache_control": SHORT}]
    last = user(block("a", tokens=10))
    assert caching.ask(last, tools=tools, system=[block("s", cache_control=SHORT)]) == (0, 2000, 0, 10)
    assert caching.ask(last, tools=tools, system=[block("x", cache_control=SHORT)]) == (1000, 1000, 0, 10)


def test_a_string_system_prompt_is_the_same_prompt_as_one_block(caching: Caching) -> None:
    words = "s" * 3500
    last = user(block("a", cache_control=SHORT))
    assert caching.ask(last, system=words) == (0, 2000, 0, 0)
    assert caching.ask(last, system=[text(words)]) == (2000, 0, 0, 0)


def test_below_the_minimum_of_the_model_nothing_is_cached(caching: Caching) -> None:
    small = user(block("a", tokens=511, cache_control=SHORT))
    assert caching.ask(small) == (0, 0, 0, 511)
    assert caching.ask(small) == (0, 0, 0, 511)
    assert caching.ask(user(block("a", tokens=512, cache_control=SHORT))) == (0, 512, 0, 0)
    old = {"model": "claude-haiku-4-5"}
    assert caching.ask(user(block("a", tokens=1000, cache_control=SHORT)), **old) == (0, 0, 0, 1000)


def test_a_breakpoint_looks_back_at_twenty_blocks_and_no_further(caching: Caching) -> None:
    caching.ask(user(block("a", cache_control=SHORT)))
    new = [block(letter, tokens=2) for letter in "bcdefghijklmnopqrstu"]
    assert len(new) == 20
    near = user(block("a"), *new[:18], block("z", tokens=2, cache_control=SHORT))
    assert caching.ask(near) == (1000, 38, 0, 0)
    # The breakpoint is the 21st block after the entry of `a` alone; nothing nearer begins this way.
    far = user(block("a"), block("y", tokens=2), *new[:18], block("z", tokens=2, cache_control=SHORT))
    assert caching.ask(far) == (0, 1040, 0, 0)


def test_a_second_breakpoint_finds_what_one_alone_would_miss(caching: Caching) -> None:
    caching.ask(user(block("a", cache_control=SHORT)))
    new = [block(letter, tokens=2) for letter in "bcdefghijklmnopqrstuvwx"]
    both = user(block("a", cache_control=SHORT), *new, block("z", tokens=2, cache_control=SHORT))
    assert caching.ask(both) == (1000, 48, 0, 0)


def test_five_minutes_count_from_the_start_and_every_read_renews_them(caching: Caching) -> None:
    again = user(block("a", cache_control=SHORT))
    caching.ask(again)
    caching.clock.now += 299
    assert caching.ask(again) == (1000, 0, 0, 0)
    caching.clock.now += 299
    assert caching.ask(again) == (1000, 0, 0, 0)
    caching.clock.now += 300
    assert caching.ask(again) == (0, 1000, 0, 0)


def test_an_hour_is_written_apart_and_lasts_an_hour(caching: Caching) -> None:
    both = user(block("a", cache_control=LONG), block("b", tokens=50, cache_control=SHORT), block("c", tokens=5))
    assert caching.ask(both) == (0, 50, 1000, 5)
    caching.clock.now += 301
    assert caching.ask(both) == (1000, 50, 0, 5)
    caching.clock.now += 3600
    assert caching.ask(both) == (0, 50, 1000, 5)


def test_markers_and_their_life_do_not_change_the_prefix(caching: Caching) -> None:
    caching.ask(user(block("a", cache_control=SHORT)))
    assert caching.ask(user(block("a", cache_control=LONG))) == (1000, 0, 0, 0)


def test_entries_are_shared_within_a_workspace_and_no_further(caching: Caching) -> None:
    same = user(block("a", cache_control=SHORT))
    caching.ask(same, key="a")
    assert caching.ask(same, key="b") == (1000, 0, 0, 0)
    assert caching.ask(same, key="c") == (0, 1000, 0, 0)
    assert caching.ask(same, model="claude-opus-5-5") == (0, 1000, 0, 0)
    assert caching.ask(same, speed="fast") == (0, 1000, 0, 0)


def test_a_changed_tool_choice_spares_the_system_prompt_and_loses_the_messages(caching: Caching) -> None:
    tools = [{"name": "t", "input_schema": {"type": "object"}}]
    given: dict[str, Any] = {"tools": tools, "system": [block("s", cache_control=SHORT)]}
    cold = caching.ask(user(block("a", cache_control=SHORT)), **given)
    changed = caching.ask(user(block("a", cache_control=SHORT)), **given, tool_choice={"type": "none"})
    assert changed == (cold[1] - 1000, 1000, 0, 0)


def test_requests_side_by_side_all_write_because_no_answer_has_begun() -> None:
    judged = Api(clock=lambda: 0.0).judge(
        CIMultiDict(HEADERS), json.dumps(body(user(block("a", cache_control=SHORT)))).encode()
    )
    assert isinstance(judged, Accepted)
    cache = PromptCache()
    first = cache.charge(judged.prompt, judged.model, "scope", now=0.0)
    second = cache.charge(judged.prompt, judged.model, "scope", now=1.0)
    cache.begin(first)
    third = cache.charge(judged.prompt, judged.model, "scope", now=2.0)
    written = first.usage.cache_creation_5m_tokens
    assert written > 1000
    assert second.usage == first.usage
    assert third.usage == Usage(cache_read_input_tokens=written)
