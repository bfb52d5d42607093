"""What each line of models can see and say at most."""

from __future__ import annotations

import pytest

from paceline.core.models import context_window_tokens, max_output_tokens


@pytest.mark.parametrize("model", ["claude-haiku-4-5", "claude-opus-4-5-20251101", "claude-sonnet-4-5"])
def test_the_4_5_line_sees_200_000_tokens_and_says_64_000(model: str) -> None:
    assert (context_window_tokens(model), max_output_tokens(model)) == (200_000, 64_000)


@pytest.mark.parametrize("model", ["claude-sonnet-5-5", "claude-opus-4-6", "claude-fable-5-2", "claude-haiku-5-5"])
def test_what_came_after_it_sees_a_million_and_says_128_000(model: str) -> None:
    assert (context_window_tokens(model), max_output_tokens(model)) == (1_000_000, 128_000)
