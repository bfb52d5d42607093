"""The rules about thinking, server tools, schemas and models: each is broken once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.sim_wire import (
    HEADERS,
    HELLO,
    LATER_RULES,
    NOW,
    TOOL,
    Break,
    assert_refused,
    assistant,
    body,
    call,
    post,
    result,
    signed,
    text,
    thought,
    user,
)

from paceline.sim import Answer, Simulator
from paceline.sim.rules import Rule

OLD = "claude-haiku-4-5"
MANUAL = {"type": "enabled", "budget_tokens": 1024}
ADAPTIVE = {"type": "adaptive"}
BINDING = {**HEADERS, "anthropic-beta": "thinking-binding-controls-2026-08-01"}
DROP = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
CODE = {"type": "code_execution_20260120", "name": "code_execution"}
OPEN = {"type": "object", "properties": {}}
CLOSED = {"type": "object", "additionalProperties": False}
MODIFIED = (
    ": `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must"
    " remain as they were in the original response."
)
MOVED = (
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
    ' Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block". That setting'
    " requires the `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header. "
)
SYSTEM_DIFFERS = "The `system` prompt differs from the one this block was created with."
SPOKEN = signed(body(), thought("first"), text("so"), thought("second"), call("a"))
BLOCKS: list[dict[str, object]] = SPOKEN["content"]  # type: ignore[assignment]
FIRST, SO, SECOND, CALL = BLOCKS
REPLY = user(result("a"))


def searching(name: str = "web_search", call_id: str = "srvtoolu_1") -> dict[str, object]:
    return {"type": "server_tool_use", "id": call_id, "name": name, "input": {}}


def found(kind: str = "web_search_tool_result", call_id: str = "srvtoolu_1") -> dict[str, object]:
    return {"type": kind, "tool_use_id": call_id, "content": []}


def by_code(call_id: str = "a") -> dict[str, object]:
    return call(call_id, caller={"type": "code_execution_20260120", "tool_id": "srvtoolu_1"})


def shaped(schema: object) -> dict[str, object]:
    return body(output_config={"format": {"type": "json_schema", "schema": schema}})


def strict(count: int) -> list[object]:
    return [{"name": f"look{number}", "strict": True, "input_schema": CLOSED} for number in range(count)]


BREAKS = [
    Break(
        Rule.THINKING_MODIFIED,
        "messages.1.content.0" + MODIFIED,
        body(HELLO, assistant({**FIRST, "thinking": "other"}, SO, SECOND, CALL), REPLY),
    ),
    Break(Rule.THINKING_MODIFIED, "messages.1.content.1" + MODIFIED, body(HELLO, assistant(SO, SECOND, CALL), REPLY)),
    Break(Rule.THINKING_MODIFIED, "messages.1.content.0" + MODIFIED, body(HELLO, assistant(FIRST, SO, CALL), REPLY)),
    Break(
        Rule.THINKING_MODIFIED,
        "messages.1.content.0" + MODIFIED,
        body(HELLO, assistant(SECOND, SO, FIRST, CALL), REPLY),
    ),
    Break(
        Rule.THINKING_MODIFIED,
        "messages.1.content.2" + MODIFIED,
        body(HELLO, assistant(FIRST, text("then"), SECOND, CALL), REPLY),
    ),
    Break(
        Rule.THINKING_EXPECTED,
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. When `thinking` is"
        " enabled, ...",
        body(HELLO, assistant(text("so"), call("a")), REPLY, model=OLD, thinking=MANUAL, max_tokens=2000),
    ),
    Break(
        Rule.BAD_SIGNATURE,
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        body(HELLO, assistant(thought("hm", signature="c2lnbmVk"), text("so")), HELLO),
    ),
    Break(
        Rule.BAD_SIGNATURE,
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        body(HELLO, assistant({**FIRST, "signature": str(FIRST["signature"])[:-8] + "AAAAAAA="}, text("so")), HELLO),
    ),
    Break(
        Rule.BAD_REDACTED,
        "messages.1.content.0: Invalid `data` in `redacted_thinking` block",
        body(HELLO, assistant({"type": "redacted_thinking", "data": "x"}, text("so")), HELLO),
    ),
    Break(Rule.THINKING_MOVED, MOVED + SYSTEM_DIFFERS, body(HELLO, SPOKEN, REPLY, system="Be brief.")),
    Break(
        Rule.THINKING_MOVED,
        MOVED + "The `tools` differ from the ones this block was created with.",
        body(HELLO, SPOKEN, REPLY, tools=[{**TOOL, "description": "Looks."}]),
    ),
    Break(
        Rule.THINKING_MOVED,
        MOVED + "The `messages` before it differ from the ones this block was created with.",
        body(user(text("hello!")), SPOKEN, REPLY),
    ),
    Break(
        Rule.THINKING_MOVED,
        MOVED + "The message it stands in differs from the one this block was created in.",
        body(HELLO, assistant({**FIRST, "thinking": "other"}, SO, SECOND, CALL), REPLY, assistant(text("so")), HELLO),
    ),
    Break(
        Rule.SERVER_CALL_UNANSWERED,
        "`web_search` tool use with id `srvtoolu_1` was found without a corresponding `web_search_tool_result` block",
        body(HELLO, assistant(searching()), HELLO, tools=[SEARCH]),
    ),
    Break(
        Rule.SERVER_CALL_UNANSWERED,
        "`web_search` tool use with id `srvtoolu_1` was found without a corresponding `web_search_tool_result` block,"
        " but no `web_search` tool was provided",
        body(HELLO, assistant(searching())),
    ),
    Break(
        Rule.SERVER_RESULT_ALONE,
        "messages.1.content.0: unexpected `tool_use_id` found in `advisor_tool_result` blocks: srvtoolu_1. Each"
        " `advisor_tool_result` block must have a corresponding `server_tool_use` block before it.",
        body(HELLO, assistant(found("advisor_tool_result")), HELLO),
    ),
    Break(
        Rule.SERVER_RESULT_ALONE,
        "messages.1.content.0: unexpected `tool_use_id` found in `mcp_tool_result` blocks: m. Each `mcp_tool_result`"
        " block must have a corresponding `mcp_tool_use` block before it.",
        body(HELLO, assistant(found("mcp_tool_result", "m")), HELLO),
    ),
    Break(
        Rule.REFERENCE_UNKNOWN,
        "Tool reference 'unknown_tool' not found in available tools",
        body(
            HELLO,
            assistant(call("a")),
            user(result("a", [{"type": "tool_reference", "tool_name": "unknown_tool"}])),
        ),
    ),
    Break(
        Rule.CALLS_WITHOUT_TOOLS,
        "Requests which include `tool_use` or `tool_result` blocks must define tools",
        body(HELLO, assistant(call("a")), REPLY, tools=None),
    ),
    Break(
        Rule.THINKING_KIND,
        '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and'
        ' "output_config.effort" to control thinking behavior.',
        body(thinking=MANUAL, max_tokens=2000),
    ),
    Break(
        Rule.THINKING_KIND,
        '"thinking.type.disabled" is not supported ...',
        body(model="claude-opus-5-5", thinking={"type": "disabled"}),
    ),
    Break(
        Rule.THINKING_KIND,
        '"thinking.type.between_tools" is not supported ...',
        body(model="claude-opus-5", thinking={"type": "between_tools"}),
    ),
    Break(
        Rule.NO_ADAPTIVE_THINKING,
        "adaptive thinking is not supported on this model",
        body(model=OLD, thinking=ADAPTIVE),
    ),
    Break(
        Rule.EFFORT_WITHOUT_THINKING,
        '"thinking.type.disabled" is not supported with effort "max" for this model.',
        body(model="claude-opus-5", thinking={"type": "disabled"}, output_config={"effort": "max"}),
    ),
    Break(
        Rule.BUDGET_TOO_LARGE,
        "`max_tokens` must be greater than `thinking.budget_tokens`. ...",
        body(model=OLD, thinking=MANUAL, max_tokens=1024),
    ),
    Break(
        Rule.BUDGET_TOO_SMALL,
        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        body(model=OLD, thinking={"type": "enabled", "budget_tokens": 1023}, max_tokens=2000),
    ),
    Break(
        Rule.TOOL_TYPE_NOT_SUPPORTED,
        "'claude-opus-5-5' does not support tool types: computer_20251124.",
        body(model="claude-opus-5-5", tools=[{"type": "computer_20251124", "name": "computer"}]),
    ),
    Break(Rule.NO_FAST_MODE, "speed: 'fast' is not supported for this model", body(speed="fast")),
    Break(
        Rule.DOCUMENT_IN_ANSWER,
        "messages.1.content.0: `document` blocks are not allowed in `assistant` messages",
        body(HELLO, assistant({"type": "document", "source": {}}), HELLO),
    ),
    Break(
        Rule.CITATIONS_IN_INPUT,
        "messages.0.content.0.citations: text blocks with citations are not allowed here",
        body(user(text("hello", citations=[{"type": "char_location"}]))),
    ),
    Break(
        Rule.CITATIONS_IN_INPUT,
        "messages.0.content.0.search_result.content.0.citations: text blocks with citations are not allowed here",
        body(
            user(
                {
                    "type": "search_result",
                    "source": "s",
                    "title": "t",
                    "content": [text("x", citations=[{"type": "char_location"}])],
                }
            )
        ),
    ),
    Break(Rule.WARMING_WITH, "max_tokens: 0 cannot be combined with stream", body(max_tokens=0, stream=True)),
    Break(
        Rule.WARMING_WITH,
        "max_tokens: 0 cannot be combined with thinking",
        body(max_tokens=0, model=OLD, thinking=MANUAL),
    ),
    Break(
        Rule.WARMING_WITH,
        "max_tokens: 0 cannot be combined with output_config.format",
        {**shaped({"type": "string"}), "max_tokens": 0},
    ),
    Break(
        Rule.WARMING_WITH,
        "max_tokens: 0 cannot be combined with a forced tool_choice",
        body(max_tokens=0, model="claude-opus-5", tool_choice={"type": "any"}),
    ),
    Break(
        Rule.SCHEMA_TOO_COMPLEX,
        "Schema is too complex for compilation.",
        shaped({**CLOSED, "properties": {f"p{number}": {"type": "string"} for number in range(25)}}),
    ),
    Break(
        Rule.SCHEMA_TOO_COMPLEX,
        "Schema is too complex for compilation.",
        shaped({"type": "array", "items": {"anyOf": [{"type": ["string", "null"]}] * 16}}),
    ),
    Break(Rule.SCHEMA_TOO_COMPLEX, "Schema is too complex for compilation.", body(tools=strict(21))),
    Break(
        Rule.REGEX_NOT_SUPPORTED,
        "Unsupported regex feature in pattern field: (?=x)",
        shaped({"type": "string", "pattern": "(?=x)"}),
    ),
    Break(
        Rule.OPEN_OBJECT,
        "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly set to false",
        shaped(OPEN),
    ),
    Break(
        Rule.OPEN_OBJECT,
        "tools.0.custom.input_schema: For 'object' type, ...",
        body(tools=[{**TOOL, "strict": True}]),
    ),
    Break(
        Rule.KEYWORD_NOT_SUPPORTED,
        "output_config.format.schema: For 'integer' type, properties minimum, maximum are not supported",
        shaped({"type": "integer", "maximum": 9, "minimum": 1}),
    ),
    Break(
        Rule.RECURSIVE_SCHEMA,
        "output_config.format.schema: Recursive schemas are not supported",
        shaped({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}}),
    ),
    Break(
        Rule.FORMAT_WITH_PREFILL,
        "Your API request included an `assistant` message in the final position, which would pre-fill the `assistant`"
        " response. When using output format, pre-filling the `assistant` response is not supported.",
        {**shaped({"type": "string"}), "model": OLD, "messages": [HELLO, assistant(text("{"))]},
    ),
    Break(
        Rule.FORMAT_WITH_CITATIONS,
        "messages.0.content.0.citations: citations are not supported with output_config.format",
        {
            **shaped({"type": "string"}),
            "messages": [user({"type": "document", "source": {}, "citations": {"enabled": True}}, text("so?"))],
        },
    ),
    Break(
        Rule.NO_CONTAINER,
        "container_id is required when there are pending tool uses generated by code execution with tools.",
        body(HELLO, assistant(searching("code_execution"), by_code()), REPLY, tools=[TOOL, CODE]),
    ),
    Break(
        Rule.REPLY_NOT_RESULTS_ALONE,
        "messages.2.content.1: only `tool_result` blocks are allowed while ...",
        body(
            HELLO,
            assistant(searching("code_execution"), by_code()),
            user(result("a"), text("and now?")),
            tools=[TOOL, CODE],
            container="container_1",
        ),
    ),
    Break(
        Rule.REPLY_NOT_RESULTS_ALONE,
        "messages.2.content.1: only `tool_result` blocks are allowed while ...",
        body(HELLO, assistant(searching(), call("a")), user(result("a"), text("and now?")), tools=[TOOL, SEARCH]),
    ),
    Break(
        Rule.RESULT_NOT_TEXT,
        "messages.2.content.0: results of programmatic tool calls can only contain text",
        body(
            HELLO,
            assistant(searching("code_execution"), by_code()),
            user(result("a", [{"type": "image", "source": {}}])),
            tools=[TOOL, CODE],
            container={"id": "container_1"},
        ),
    ),
]


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator(lambda request: Answer(text="hi"), clock=lambda: NOW) as running:
        yield running


@pytest.mark.parametrize("case", BREAKS, ids=lambda case: f"{case.rule.number}-{case.rule.name}")
def test_a_request_that_breaks_a_later_rule_is_refused_with_the_text_of_the_api(
    simulator: Simulator, case: Break
) -> None:
    assert_refused(simulator, case)


def test_every_later_rule_of_the_table_is_broken_by_some_test() -> None:
    assert {case.rule for case in BREAKS} == {rule for rule in Rule if rule.number in LATER_RULES}


LATEST = (HELLO, SPOKEN, REPLY)
ACCEPTED = {
    "thinking that stands where it was thought": body(*LATEST),
    "thinking of a turn that is long past": body(*LATEST, assistant(text("so")), HELLO),
    "no thinking at all any more": body(HELLO, assistant(SO, CALL), REPLY, system="Be brief."),
    "thinking of another model, which is dropped": body(*LATEST, model="claude-opus-5"),
    "cache markers are no change": body(user(text("hello", cache_control={"type": "ephemeral"})), SPOKEN, REPLY),
    "a client that writes the same in another order": body(
        HELLO,
        assistant({**FIRST, "type": FIRST["type"]}, dict(reversed(SO.items())), SECOND, {**CALL, "caller": None}),
        REPLY,
    ),
    "a changed system prompt, on a model that does not bind": body(
        HELLO,
        signed(body(model="claude-opus-5"), thought(), text("so")),
        HELLO,
        model="claude-opus-5",
        system="Be brief.",
    ),
    "manual thinking that begins with thinking": body(
        HELLO,
        signed(body(model=OLD), thought(), call("a")),
        REPLY,
        model=OLD,
        thinking=MANUAL,
        max_tokens=2000,
    ),
    "a search and what it found": body(HELLO, assistant(searching(), found(), text("so")), HELLO),
    "a paused turn that goes on": body(HELLO, assistant(text("so"), searching()), tools=[SEARCH]),
    "a paused turn in two messages": body(HELLO, assistant(searching()), assistant(found()), tools=[SEARCH]),
    "a result of the server after those of the client": body(
        HELLO,
        assistant(searching(), call("a")),
        REPLY,
        assistant(found(), text("so")),
        HELLO,
        tools=[TOOL, SEARCH],
    ),
    "code that a search brings along": body(
        HELLO,
        assistant(searching("code_execution"), by_code()),
        REPLY,
        tools=[TOOL, {"type": "web_search_20260209", "name": "web_search"}],
        container="container_1",
    ),
    "a reference to a tool that is there": body(
        HELLO, assistant(call("a")), user(result("a", [{"type": "tool_reference", "tool_name": "look"}]))
    ),
    "a document by the user": body(user({"type": "document", "source": {}}, text("read it"))),
    "twenty strict tools": body(tools=strict(20)),
    "a schema with all that a grammar takes": shaped(
        {**CLOSED, "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "string", "pattern": "^a+$"}}}
    ),
    "fast, silently ignored": body(model="claude-opus-4-6", speed="fast"),
}


@pytest.mark.parametrize("sends", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_what_the_api_takes_of_all_that_is_taken(simulator: Simulator, sends: object) -> None:
    reply = post(simulator.url, sends)
    assert reply.status == 200, reply.text


def test_the_older_versions_take_documents_and_citations_anywhere(simulator: Simulator) -> None:
    sends = body(user(text("hello", citations=[{"type": "char_location"}])), assistant(text("so")), HELLO)
    assert post(simulator.url, sends, {**HEADERS, "anthropic-version": "2023-06-01"}).status == 200


def test_block_binding_is_known_with_its_beta_alone(simulator: Simulator) -> None:
    refused = post(simulator.url, body(thinking=DROP))
    assert refused.text == "thinking.adaptive.block_binding: Extra inputs are not permitted"
    assert post(simulator.url, body(thinking=DROP), BINDING).status == 200


def test_a_moved_block_can_be_dropped_which_is_told_and_not_billed(simulator: Simulator) -> None:
    sends = body(HELLO, SPOKEN, REPLY, system="Be brief.", thinking=DROP)
    reply = post(simulator.url, sends, BINDING)
    assert reply.body["input_transformations"] == [
        {"type": "thinking_dropped", "path": f"messages.1.content.{position}", "reason": "prefix_binding_mismatch"}
        for position in (0, 2)
    ]
    bare = body(HELLO, assistant(SO, CALL), REPLY, system="Be brief.", thinking=DROP)
    assert reply.body["usage"]["input_tokens"] == post(simulator.url, bare, BINDING).body["usage"]["input_tokens"]


def test_without_the_beta_nothing_is_told_of_what_was_dropped(simulator: Simulator) -> None:
    reply = post(simulator.url, body(*LATEST, model="claude-opus-5"))
    assert "input_transformations" not in reply.body
    told = post(simulator.url, body(*LATEST, model="claude-opus-5"), BINDING).body["input_transformations"]
    assert {each["reason"] for each in told} == {"model_binding_mismatch"}
    assert post(simulator.url, body(), BINDING).body["input_transformations"] == []
