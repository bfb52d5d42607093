"""Answers as streams, as the official clients read them and as the bytes are."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx2
import pytest
from support.sim_wire import HEADERS, HELLO, TOOL, body

from paceline.sim import Answer, Call, Request, Simulator

ANSWER = Answer(
    text="Reading two pages, one of which has a title longer than a single delta of the stream.",
    calls=(Call(tool="look", input={"path": "teams/payments/rotation", "depth": 2}), Call(tool="look")),
)
GIVEN: dict[str, Any] = {
    "model": "claude-sonnet-5-5",
    "max_tokens": 1000,
    "messages": [HELLO],
    "tools": [TOOL],
}


def answer(request: Request) -> Answer:
    return ANSWER


def plain(url: str) -> dict[str, Any]:
    with anthropic.Anthropic(api_key="k", base_url=url, max_retries=0, timeout=5) as client:
        message: anthropic.types.Message = client.messages.create(**GIVEN)
    return message.to_dict()


def test_a_stream_adds_up_to_the_plain_answer() -> None:
    with (
        Simulator(answer) as simulator,
        anthropic.Anthropic(api_key="k", base_url=simulator.url, max_retries=0, timeout=5) as client,
    ):
        with client.messages.stream(**GIVEN) as events:
            streamed: dict[str, Any] = events.get_final_message().to_dict()
        whole = plain(simulator.url)
    assert streamed["content"] == whole["content"]
    assert streamed["stop_reason"] == whole["stop_reason"] == "tool_use"
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens")
    assert [streamed["usage"][name] for name in names] == [whole["usage"][name] for name in names]


@pytest.mark.anyio
async def test_the_asynchronous_client_streams_and_asks_alike() -> None:
    with Simulator(answer) as simulator:
        async with anthropic.AsyncAnthropic(api_key="k", base_url=simulator.url, max_retries=0, timeout=5) as client:
            async with client.messages.stream(**GIVEN) as events:
                streamed = await events.get_final_message()
            asked = await client.messages.create(**GIVEN)
    assert [block.to_dict() for block in streamed.content] == [block.to_dict() for block in asked.content]


def test_events_come_in_the_order_of_the_api() -> None:
    with Simulator(answer) as simulator, httpx2.Client() as client:
        request = {**body(), "stream": True}
        reply = client.post(f"{simulator.url}/v1/messages", json=request, headers=HEADERS)
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.headers["request-id"].startswith("req_011")
    kinds = [line.removeprefix("event: ") for line in reply.text.splitlines() if line.startswith("event: ")]
    once = [kind for kind, before in zip(kinds, ["", *kinds[:-1]], strict=True) if kind != before]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert once == ["message_start", "ping", *block * 3, "message_delta", "message_stop"]


def test_raw_blocks_of_a_playbook_are_sent_and_streamed_as_they_stand() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "Which page?", "signature": "c2ln"},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "redacted_thinking", "data": "ZGF0YQ=="},
    ]
    with (
        Simulator(lambda request: Answer(blocks=blocks, stop_reason="pause_turn")) as simulator,
        anthropic.Anthropic(api_key="k", base_url=simulator.url, max_retries=0, timeout=5) as client,
    ):
        with client.messages.stream(**GIVEN) as events:
            streamed = events.get_final_message().to_dict()
        assert plain(simulator.url)["content"] == blocks
    assert streamed["content"] == blocks
