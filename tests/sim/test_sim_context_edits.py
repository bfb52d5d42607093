"""Edits of the context, asked for by the official client: old results cleared, old messages summed up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from support.sim_wire import TOOL

from paceline.sim import Answer, Request, Simulator

CLEARING = "context-management-2025-06-27"
COMPACTING = "compact-2026-01-12"
PAGE = "What there is to know of it. " * 242
"""Two thousand tokens."""


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator(lambda request: Answer(text="Ada.", thinking="Who?" if request.turn == 1 else None)) as running:
        yield running


@pytest.fixture
def client(simulator: Simulator) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=simulator.url, api_key="k", max_retries=0) as client:
        yield client


def pages(count: int, tool: str = "look") -> list[Any]:
    messages: list[Any] = [{"role": "user", "content": "Who is on call?"}]
    for number in range(count):
        use = {"type": "tool_use", "id": f"toolu_{number}", "name": tool, "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": PAGE}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return messages


def ask(client: anthropic.Anthropic, messages: list[Any], *edits: dict[str, Any], beta: str = CLEARING) -> Any:
    given: Any = {"tools": [TOOL], "context_management": {"edits": list(edits)}, "betas": [beta]}
    return client.beta.messages.create(model="claude-opus-5-5", max_tokens=100, messages=messages, **given)


def clear(at: int, **options: Any) -> dict[str, Any]:
    return {"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": at}, **options}


def test_old_results_are_cleared_past_the_trigger_and_the_latest_kept(client: anthropic.Anthropic) -> None:
    whole = ask(client, pages(10))
    assert whole.context_management.applied_edits == []
    cleared = ask(client, pages(10), clear(10_000))
    (done,) = cleared.context_management.applied_edits
    assert (done.type, done.cleared_tool_uses) == ("clear_tool_uses_20250919", 7)
    assert 7 * 1_900 < done.cleared_input_tokens < 7 * 2_100
    assert cleared.usage.input_tokens == whole.usage.input_tokens - done.cleared_input_tokens
    for left in (clear(30_000), clear(10_000, clear_at_least={"type": "input_tokens", "value": 15_000})):
        assert ask(client, pages(10), left).context_management.applied_edits == []


def test_what_is_kept_and_spared_can_be_said(client: anthropic.Anthropic) -> None:
    one = ask(client, pages(10), clear(10_000, keep={"type": "tool_uses", "value": 9}))
    assert one.context_management.applied_edits[0].cleared_tool_uses == 1
    none = ask(client, pages(10), clear(10_000, exclude_tools=["look"]))
    assert none.context_management.applied_edits == []
    often = {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 9}}
    assert ask(client, pages(10), often).context_management.applied_edits[0].cleared_tool_uses == 7
    assert ask(client, pages(9), often).context_management.applied_edits == []


def compact(**options: Any) -> dict[str, Any]:
    return {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 50_000}, **options}


def test_a_summary_stands_before_the_answer_and_in_its_iterations_alone(client: anthropic.Anthropic) -> None:
    answered = ask(client, pages(26), compact(), beta=COMPACTING)
    assert [block.type for block in answered.content] == ["compaction", "text"]
    assert answered.stop_reason == "end_turn"
    summing_up, message = answered.usage.iterations
    assert (summing_up.type, message.type) == ("compaction", "message")
    assert summing_up.input_tokens > 50_000
    assert answered.usage.input_tokens == message.input_tokens < 200

    later = ask(client, [*pages(26), _said(answered), {"role": "user", "content": "Sure?"}], compact(), beta=COMPACTING)
    assert [block.type for block in later.content] == ["text"]
    assert later.usage.input_tokens < 200, "nothing that stands before the summary is read any more"


def test_a_pause_after_a_summary_is_gone_on_from(client: anthropic.Anthropic, simulator: Simulator) -> None:
    edit = compact(pause_after_compaction=True)
    paused = ask(client, pages(26), edit, beta=COMPACTING)
    assert ([block.type for block in paused.content], paused.stop_reason) == (["compaction"], "compaction")
    assert (paused.usage.input_tokens, paused.usage.output_tokens) == (0, 0)
    answered = ask(client, [*pages(26), _said(paused)], edit, beta=COMPACTING)
    assert (answered.content[-1].text, answered.stop_reason) == ("Ada.", "end_turn")
    assert [entry.stop_reason for entry in simulator.journal] == ["compaction", "end_turn"]


def test_an_assistant_message_that_sums_nothing_up_may_still_not_be_the_last(client: anthropic.Anthropic) -> None:
    last = {"role": "assistant", "content": [{"type": "text", "text": "So far."}]}
    with pytest.raises(anthropic.BadRequestError, match="does not support assistant message prefill"):
        ask(client, [{"role": "user", "content": "Who?"}, last], compact(), beta=COMPACTING)


def _said(message: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [block.to_dict() for block in message.content]}


def test_the_playbook_is_not_asked_while_a_summary_is_made(client: anthropic.Anthropic) -> None:
    asked: list[Request] = []

    def answer(request: Request) -> Answer:
        asked.append(request)
        return Answer(text="Ada.")

    with Simulator(answer) as simulator:
        own = client.with_options(base_url=simulator.url)
        ask(own, pages(26), compact(pause_after_compaction=True), beta=COMPACTING)
    assert asked == []
