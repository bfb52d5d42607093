"""What was said is in spans where an operator asks for it, bounded; else nothing of it is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from support.runs import ANSWERED, BATCH, SPENT, Driven, a_call, a_result, a_row, asking, model_called
from support.told import Told
from support.worlds import memory_world

from paceline.core.agent import Agent
from paceline.core.ids import CallId
from paceline.core.tool_spec import Placement
from paceline.core.trace_span import Span
from paceline.core.transcript import assistant_content, result_block, results_message
from paceline.store.port import TurnWrite
from paceline.worker.telemetry.content import MOST_CHARS, MOST_CHARS_OF_TEXT, Content, is_wanted
from paceline.worker.telemetry.traced_store import traced

pytestmark = pytest.mark.anyio

AGENT = Agent(name="oncall", model="claude-sonnet-5-5", system="SECRET SYSTEM")
SAID = assistant_content(
    b'[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"SECRET ANSWER"}]'
)


async def _a_run(*, with_content: bool, result: str = "SECRET RESULT") -> Told:
    """A turn with a call of the fleet and one that ran inline, and an answer."""
    world, told = memory_world(), Told()
    content = Content(world.store) if with_content else None
    store = traced(world.store, told, now_ms=world.clock, content=content)
    await store.put_agent(AGENT.digest, AGENT.freeze())
    await store.submit(await store.open_batch(replace(BATCH, agent=AGENT.digest)), [a_row()])
    run = Driven(store, a_row().run_id)
    await run.in_tools(a_call("c1"))
    await store.finish_call(await run.begin_call("c1"), a_result("c1", result))
    blocks = {CallId("c1"): result_block(CallId("c1"), result, is_error=False)}
    await store.join(await run.now_held(), results_message([CallId("c1")], blocks))
    await run.in_tools(a_call("c2", placement=Placement.INLINE))
    inline = {CallId("c2"): result_block(CallId("c2"), result, is_error=False)}
    await store.join(run.held, results_message([CallId("c2")], inline), [a_result("c2", result, turn=2)])
    await run.begin()
    last = replace(model_called(), turn=3, attempt=3, stop_reason="end_turn", calls=())
    await store.finish(run.held, TurnWrite(append=(SAID,), spent=SPENT, ledger=(last,)), ANSWERED)
    return told


def _read(span: Span, name: str) -> Any:
    return json.loads(str(span.attributes[name]))


async def test_nothing_that_was_said_is_in_a_span_unless_somebody_asks_for_it() -> None:
    told = await _a_run(with_content=False)
    assert len(told.spans) == 9
    assert "SECRET" not in repr(told.spans)
    assert "Who is on call?" not in repr(told.spans)


async def test_a_chat_has_what_was_sent_and_what_came_where_somebody_asks_for_it() -> None:
    told = await _a_run(with_content=True)
    chat = told.named("chat")[-1]
    assert _read(chat, "gen_ai.system_instructions") == [{"type": "text", "content": "SECRET SYSTEM"}]
    assert _read(chat, "gen_ai.output.messages") == [
        {
            "role": "assistant",
            "parts": [{"type": "reasoning", "content": "hm"}, {"type": "text", "content": "SECRET ANSWER"}],
            "finish_reason": "stop",
        }
    ]
    sent = _read(chat, "gen_ai.input.messages")
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "assistant", "tool"]
    assert sent[0]["parts"] == [{"type": "text", "content": "Who is on call?"}]
    assert sent[2]["parts"] == [{"type": "tool_call_response", "id": "c1", "response": "SECRET RESULT"}]
    assert sent[3]["parts"] == [{"type": "tool_call", "id": "c2", "name": "search", "arguments": {}}]
    (said,) = _read(told.named("chat")[0], "gen_ai.output.messages")
    assert said["parts"] == [{"type": "tool_call", "id": "c1", "name": "search", "arguments": {}}]
    assert [len(_read(each, "gen_ai.input.messages")) for each in told.named("chat")] == [1, 3, 5]


async def test_a_call_has_its_arguments_and_its_result_where_somebody_asks_for_them() -> None:
    told = await _a_run(with_content=True)
    calls = told.named("execute_tool")
    assert [_read(call, "gen_ai.tool.call.arguments") for call in calls] == [{}, {}]
    assert [_read(call, "gen_ai.tool.call.result") for call in calls] == ["SECRET RESULT"] * 2


async def test_what_is_long_is_cut_and_stays_readable() -> None:
    told = await _a_run(with_content=True, result="r" * 100_000)
    result = _read(told.named("execute_tool")[0], "gen_ai.tool.call.result")
    assert result == "r" * MOST_CHARS_OF_TEXT + f"… ({100_000 - MOST_CHARS_OF_TEXT} more characters)"
    for span in told.spans:
        assert all(len(str(value)) <= MOST_CHARS for value in span.attributes.values())


async def test_of_a_long_conversation_the_newest_messages_are_told() -> None:
    world, told = memory_world(), Told()
    store = traced(world.store, told, now_ms=world.clock, content=Content(world.store))
    await store.put_agent(AGENT.digest, AGENT.freeze())
    await store.submit(await store.open_batch(replace(BATCH, agent=AGENT.digest)), [a_row()])
    run = Driven(store, a_row().run_id)
    for turn in range(1, 9):
        call = CallId(f"c{turn}")
        await run.begin()
        await store.open_calls(run.held, TurnWrite(append=(asking(call),), ledger=(model_called(),)), [a_call(call)])
        await run.run_call(call)
        blocks = {call: result_block(call, f"{turn}" * 4000, is_error=False)}
        await store.join(await run.now_held(), results_message([call], blocks))
    sent = _read(told.named("chat")[-1], "gen_ai.input.messages")
    assert [message["parts"][0]["id"] for message in sent] == ["c5", "c5", "c6", "c6", "c7", "c7"]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("SPAN_ONLY", True), ("span_and_event", True), ("EVENT_ONLY", False), ("NO_CONTENT", False), ("", False)],
)
def test_content_is_wanted_by_the_variable_of_the_conventions(value: str, wanted: bool) -> None:
    assert is_wanted({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": value}) is wanted
    assert not is_wanted({})
