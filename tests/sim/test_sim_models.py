"""The Models API and the counter of tokens, as the official client asks them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from support.sim_wire import HELLO, NOW, TOOL

from paceline.sim import Answer, Simulator, Switches
from paceline.sim.models import MODELS


@pytest.fixture
def client() -> Iterator[anthropic.Anthropic]:
    with (
        Simulator(lambda request: Answer(text="hi"), clock=lambda: NOW) as simulator,
        anthropic.Anthropic(api_key="k", base_url=simulator.url, max_retries=0, timeout=5) as made,
    ):
        yield made


def test_a_model_tells_its_window_its_largest_answer_and_what_it_takes(client: anthropic.Anthropic) -> None:
    model = client.models.retrieve("claude-sonnet-5-5")
    assert (model.max_input_tokens, model.max_tokens, model.line) == (1_000_000, 128_000, "sonnet")
    assert (model.display_name, model.lifecycle) == ("Claude Sonnet 5.5", "active")
    assert str(model.created_at) == "2026-09-28 00:00:00+00:00"
    assert model.capabilities is not None
    thinking = model.capabilities.thinking.types
    assert (thinking.adaptive.supported, thinking.enabled.supported) == (True, False)
    assert thinking.between_tools.supported
    old = client.models.retrieve("claude-haiku-4-5-20251001")
    assert (old.max_input_tokens, old.max_tokens) == (200_000, 64_000)


def test_an_unknown_model_is_not_found(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="model: sonnet4"):
        client.models.retrieve("sonnet4")


def test_models_are_listed_in_pages_and_by_their_stage_of_life() -> None:
    now = [NOW]
    with (
        Simulator(lambda request: Answer(text="hi"), clock=lambda: now[0]) as simulator,
        anthropic.Anthropic(api_key="k", base_url=simulator.url, max_retries=0, timeout=5) as client,
    ):
        assert [model.id for model in client.models.list(limit=7)] == list(MODELS)
        assert {model.id for model in client.beta.models.list()} == set(MODELS)
        deprecated = {model.id for model in client.models.list(lifecycle=["deprecated"])}
        assert {"claude-opus-4-5", "claude-sonnet-4-5"} < deprecated
        now[0] += 16 * 24 * 3600
        assert "claude-sonnet-4-5" not in {model.id for model in client.models.list()}
        retired = {model.id for model in client.models.list(lifecycle=["retired"])}
        assert retired == {"claude-sonnet-4-5", "claude-sonnet-4-5-20250929"}


def test_the_counter_validates_as_messages_do(client: anthropic.Anthropic) -> None:
    given: Any = {"model": "claude-sonnet-5-5", "messages": [HELLO]}
    assert client.messages.count_tokens(**given).input_tokens == 2
    with pytest.raises(anthropic.BadRequestError, match="are not supported for this model"):
        client.messages.count_tokens(**given, tools=[TOOL], tool_choice={"type": "any"})  # type: ignore[list-item]
    with pytest.raises(anthropic.NotFoundError):
        client.messages.count_tokens(**{**given, "model": "sonnet4"})
    with pytest.raises(anthropic.BadRequestError, match=r"thinking\.type\.enabled"):
        client.messages.count_tokens(**given, thinking={"type": "enabled", "budget_tokens": 2000})


def test_the_beta_counter_tells_what_there_was_before_edits(client: anthropic.Anthropic) -> None:
    counted = client.beta.messages.count_tokens(
        model="claude-sonnet-5-5",
        messages=[{"role": "user", "content": "hello"}],
        context_management={"edits": []},
        betas=["context-management-2025-06-27"],
    )
    assert counted.context_management is not None
    assert counted.context_management.original_input_tokens == counted.input_tokens == 2


def test_only_what_nobody_has_seen_can_be_let_pass() -> None:
    with pytest.raises(ValueError, match="rule 19 cannot be left out: only unverified ones can, which are 1, "):
        Switches(unenforced={19})
    assert Switches(unenforced={14, 49}).unenforced_rules
