"""Every rule of the table is broken once, and each refusal reads as the API's does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sim_wire import (
    BATCH_RULES,
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
from paceline.sim.rules import BEHAVIOURS, Rule

DOCS = Path(__file__).parents[2] / "docs" / "simulator.md"
OLD = "claude-opus-4-5-20251101"
LONG_SEE = "https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview."
UNANSWERED = (
    "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}. Each `tool_use`"
    " block must have a corresponding `tool_result` block in the next message."
)


def asked(*calls: str) -> tuple[object, object]:
    return HELLO, assistant(*[call(each) for each in calls])


def tool(**fields: object) -> list[object]:
    return [{name: value for name, value in {**TOOL, **fields}.items() if value is not None}]


BREAKS = [
    Break(Rule.NO_KEY, "x-api-key header is required", headers={"anthropic-version": "2026-10-21"}),
    Break(Rule.WRONG_KEY, "invalid x-api-key", headers={"anthropic-version": "2026-10-21", "x-api-key": "wrong"}),
    Break(Rule.WRONG_BEARER, "Invalid bearer token", headers={**HEADERS, "authorization": "Bearer wrong"}),
    Break(Rule.NO_VERSION, "anthropic-version: header is required", headers={"authorization": "Bearer key"}),
    Break(
        Rule.BAD_VERSION,
        'anthropic-version: "2024-10-22" is not a valid version',
        headers={**HEADERS, "anthropic-version": "2024-10-22"},
    ),
    Break(
        Rule.UNKNOWN_BETA,
        "Unexpected value(s) `nope-2020-01-01` for the `anthropic-beta` header. Please consult our documentation at"
        " docs.claude.com or try again without the header.",
        headers={**HEADERS, "anthropic-beta": "fast-mode-2026-02-01, nope-2020-01-01"},
    ),
    Break(Rule.NOT_JSON, "The request body is not valid JSON: ...", b'{"model": "claude'),
    Break(Rule.NOT_JSON, "The request body is not valid JSON: Extra data: ...", b"{} {}"),
    Break(Rule.NOT_JSON, "The request body is not valid JSON: Invalid control character...", b'{"model": "a\nb"}'),
    Break(
        Rule.NOT_JSON,
        "The request body is not valid JSON: no low surrogate in string: line 1 column 23 (char 22)",
        rb'{"messages": "x \ud800 y"}',
    ),
    Break(
        Rule.NOT_JSON,
        "The request body is not valid JSON: no high surrogate...",
        rb'{"messages": "\udc00"}',
    ),
    Break(Rule.NOT_JSON, "The request body is not valid JSON: NaN is not JSON", b'{"max_tokens": NaN}'),
    Break(Rule.NOT_JSON, "The request body is not valid JSON: invalid start byte: byte 11", b'{"model": "\xff"}'),
    Break(Rule.NOT_AN_OBJECT, "body: Input should be a valid dictionary", [1, 2]),
    Break(Rule.TOO_LARGE, "Request exceeds the maximum size", b" " * (32 * 1024 * 1024 + 1)),
    Break(Rule.MISSING_FIELD, "max_tokens: Field required", body(max_tokens=None)),
    Break(
        Rule.MISSING_FIELD,
        "messages.0.content.0.tool_result.tool_use_id: Field required",
        body(user({"type": "tool_result"})),
    ),
    Break(Rule.WRONG_TYPE, "max_tokens: Input should be a valid integer", body(max_tokens=True)),
    Break(Rule.WRONG_TYPE, "messages: Input should be a valid list", body(messages="hello")),
    Break(Rule.WRONG_TYPE, "messages.0: Input should be a valid dictionary", body("hello")),
    Break(
        Rule.EXTRA_FIELD,
        "messages.1.content.0.tool_use.text: Extra inputs are not permitted",
        body(HELLO, assistant(call("a", text="x"))),
    ),
    Break(
        Rule.EXTRA_FIELD,
        "context_management: Extra inputs are not permitted",
        body(context_management={"edits": []}),
    ),
    Break(
        Rule.UNKNOWN_TAG,
        "tools.0: Input tag 'function' found using 'type' does not match any of the expected tags: ...",
        body(tools=tool(type="function")),
    ),
    Break(
        Rule.UNKNOWN_TAG,
        "messages.0.content.0: Input tag 'txt' found using 'type' does not match any of the expected tags: 'text', ...",
        body(user({"type": "txt", "text": "hello"})),
    ),
    Break(Rule.UNKNOWN_MODEL, "model: sonnet4", body(model="sonnet4")),
    Break(
        Rule.BAD_EXAMPLE,
        "tools.0.custom.input_examples.0: does not match the input_schema: 'page' is a required property",
        body(tools=tool(input_schema={"type": "object", "required": ["page"]}, input_examples=[{}])),
    ),
    Break(Rule.NO_MESSAGES, "messages: at least one message is required", body(messages=[])),
    Break(
        Rule.FIRST_NOT_USER,
        'messages: first message must use the "user" role',
        body(assistant(text("hello")), HELLO),
    ),
    Break(
        Rule.BAD_ROLE,
        'messages: Unexpected role "tool". Allowed roles are "user" or "assistant". For instructions on how to use'
        f" tools, see {LONG_SEE}",
        body({"role": "tool", "content": "hello"}),
    ),
    Break(
        Rule.NO_SYSTEM_ROLE,
        "role 'system' is not supported on this model",
        body(HELLO, {"role": "system", "content": "Be brief."}, model=OLD),
    ),
    Break(
        Rule.SYSTEM_MISPLACED,
        "messages.0: a message with role 'system' must not be the first message",
        body({"role": "system", "content": "Be brief."}, HELLO),
    ),
    Break(
        Rule.SYSTEM_MISPLACED,
        "messages.2: a message with role 'system' must follow a user message or ...",
        body(*asked("a"), {"role": "system", "content": "Be brief."}, user(result("a"))),
    ),
    Break(
        Rule.SYSTEM_MISPLACED,
        "messages.1: a message with role 'system' must be the last message or ...",
        body(HELLO, {"role": "system", "content": "Be brief."}, HELLO),
    ),
    Break(Rule.CALLS_UNANSWERED, UNANSWERED.format(ids="a, b"), body(*asked("a", "b"), HELLO)),
    Break(Rule.CALLS_UNANSWERED, UNANSWERED.format(ids="b"), body(*asked("a", "b"), user(result("a")))),
    Break(Rule.CALLS_UNANSWERED, UNANSWERED.format(ids="a"), body(*asked("a"))),
    Break(Rule.RESULTS_NOT_FIRST, UNANSWERED.format(ids="a"), body(*asked("a"), user(text("so:"), result("a")))),
    Break(
        Rule.RESULTS_NOT_FIRST,
        UNANSWERED.format(ids="b"),
        body(*asked("a", "b"), user(result("a"), text("and"), result("b"))),
    ),
    Break(
        Rule.RESULTS_NOT_FIRST,
        UNANSWERED.format(ids="b"),
        body(*asked("a", "b"), user(result("a"), text("and")), user(result("b"))),
    ),
    Break(
        Rule.CALLS_NOT_LAST,
        UNANSWERED.format(ids="a"),
        body(HELLO, assistant(call("a"), text("done")), user(result("a"))),
    ),
    Break(
        Rule.RESULT_WITHOUT_CALL,
        "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: a. Each `tool_result` block"
        " must have a corresponding `tool_use` block in the previous message.",
        body(user(result("a"))),
    ),
    Break(
        Rule.RESULT_WITHOUT_CALL,
        "messages.4.content.0: unexpected `tool_use_id` found in `tool_result` blocks: a. ...",
        body(*asked("a"), user(result("a")), assistant(text("so")), user(result("a"))),
    ),
    Break(
        Rule.RESULT_TWICE,
        "messages.2.content.1: each tool_use must have a single result. Found multiple `tool_result` blocks with id: a",
        body(*asked("a"), user(result("a"), result("a"))),
    ),
    Break(Rule.CALL_ID_TWICE, "messages.1.content.1: `tool_use` ids must be unique", body(*asked("a", "a"))),
    Break(
        Rule.CALL_ID_TWICE,
        "messages.3.content.0: `tool_use` ids must be unique",
        body(*asked("a"), user(result("a")), assistant(call("a")), user(result("a"))),
    ),
    Break(
        Rule.BAD_ID,
        "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        body(*asked("a:b")),
    ),
    Break(
        Rule.INPUT_NOT_OBJECT,
        "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
        body(HELLO, assistant(call("a", input="{}"))),
    ),
    Break(
        Rule.WRONG_SIDE,
        "messages.0.content.0: `tool_use` blocks can only be in `assistant` messages",
        body(user(call("a"))),
    ),
    Break(
        Rule.WRONG_SIDE,
        "messages.1.content.0: `tool_result` blocks can only be in `user` messages",
        body(HELLO, assistant(result("a"))),
    ),
    Break(Rule.EMPTY_TEXT, "messages: text content blocks must be non-empty", body(user(text("")))),
    Break(
        Rule.EMPTY_TEXT,
        "messages: text content blocks must be non-empty",
        body(*asked("a"), user(result("a", [text("")]))),
    ),
    Break(Rule.BLANK_TEXT, "messages: text content blocks must contain non-whitespace text", body(user(text(" \n")))),
    Break(
        Rule.EMPTY_CONTENT,
        "messages.1: all messages must have non-empty content except for the optional final assistant message",
        body(HELLO, assistant(), HELLO),
    ),
    Break(Rule.EMPTY_CONTENT, "messages.0: all messages must have ...", body({"role": "user", "content": ""})),
    Break(
        Rule.PREFILL,
        "This model does not support assistant message prefill. The conversation must end with a user message.",
        body(HELLO, assistant(text("I think"))),
    ),
    Break(
        Rule.PREFILL_BLANK_END,
        "messages: final assistant content cannot end with trailing whitespace",
        body(HELLO, assistant(text("I think ")), model=OLD),
    ),
    Break(
        Rule.TOOL_NAME_LENGTH,
        "tools.0.custom.name: String should have at most 128 characters",
        body(tools=tool(name="n" * 129)),
    ),
    Break(
        Rule.TOOL_NAME_PATTERN,
        "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
        body(tools=tool(name="look up")),
    ),
    Break(Rule.TOOL_NAME_TWICE, "tools: Tool names must be unique.", body(tools=[TOOL, TOOL])),
    Break(
        Rule.BAD_SCHEMA,
        "tools.0.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12"
        f" (https://json-schema.org/draft/2020-12). Learn more about tool use at {LONG_SEE}",
        body(tools=tool(input_schema={"type": "object", "required": "path"})),
    ),
    Break(
        Rule.TOP_LEVEL_UNION,
        "tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level",
        body(tools=tool(input_schema={"type": "object", "anyOf": [{}]})),
    ),
    Break(
        Rule.NO_SCHEMA_TYPE,
        "tools.0.custom.input_schema.type: Field required",
        body(tools=tool(input_schema={"properties": {}})),
    ),
    Break(
        Rule.ALL_DEFERRED,
        "At least one tool must have defer_loading=false. All tools cannot be deferred.",
        body(tools=tool(defer_loading=True)),
    ),
    Break(
        Rule.CHOSEN_TOOL_UNKNOWN,
        "Tool 'find' not found in provided tools",
        body(model="claude-opus-5", tool_choice={"type": "tool", "name": "find"}),
    ),
    Break(
        Rule.CHOICE_NOT_SUPPORTED,
        'tool_choice: type "tool" and "any" are not supported for this model.',
        body(tool_choice={"type": "any"}),
    ),
    Break(
        Rule.CHOICE_WITH_THINKING,
        "Thinking may not be enabled when tool_choice forces tool use.",
        body(
            model=OLD, tool_choice={"type": "any"}, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2000
        ),
    ),
    Break(
        Rule.CHOICE_WITHOUT_TOOLS,
        "tool_choice may only be specified while providing tools",
        body(tools=None, tool_choice={"type": "auto"}),
    ),
    Break(Rule.SAMPLING_GONE, "`temperature` is deprecated for this model.", body(temperature=1.0)),
    Break(
        Rule.MAX_TOKENS_TOO_LARGE,
        f"max_tokens: 128001 > 64000, which is the maximum allowed number of output tokens for {OLD}",
        body(model=OLD, max_tokens=128001),
    ),
    Break(
        Rule.PROMPT_TOO_LONG,
        "prompt is too long: 200020 tokens > 200000 maximum",
        body(user(text("x" * 700_070)), model=OLD, tools=None),
    ),
    Break(
        Rule.TOO_MANY_MARKERS,
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        body(
            user(*[text(word, cache_control={"type": "ephemeral"}) for word in "abcd"], text("e")),
            cache_control={"type": "ephemeral"},
        ),
    ),
    Break(
        Rule.LONG_AFTER_SHORT,
        "messages.0.content.1.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m'"
        " cache_control block. Note that blocks are processed in the following order: tools, system, messages.",
        body(
            user(
                text("a", cache_control={"type": "ephemeral"}),
                text("b", cache_control={"type": "ephemeral", "ttl": "1h"}),
            )
        ),
    ),
    Break(
        Rule.MARKER_ON_EMPTY_TEXT,
        "cache_control cannot be set for empty text blocks",
        body(user(text("", cache_control={"type": "ephemeral"}))),
    ),
    Break(
        Rule.USER_ID_PERSONAL,
        "metadata.user_id: user_id appears to contain an email address. Please send a uuid or hash value instead.",
        body(metadata={"user_id": "someone@example.org"}),
    ),
    Break(
        Rule.USER_ID_LENGTH,
        "metadata.user_id: String should have at most 256 characters",
        body(metadata={"user_id": "u" * 257}),
    ),
    Break(
        Rule.BLANK_STOP_SEQUENCE,
        "stop_sequences: each stop sequence must contain non-whitespace",
        body(stop_sequences=["\n"]),
    ),
]
# By the tests of limits and of faults.
ELSEWHERE = {
    Rule.RATE_LIMITED,
    Rule.TOO_MANY_CONNECTIONS,
    Rule.NO_PLAYBOOK_RULE,
    Rule.SPEND_CAP,
    Rule.OWN_SPEND_LIMIT,
    Rule.NO_CREDIT,
}


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator(lambda request: Answer(text="hi"), api_keys={"key"}, clock=lambda: NOW) as running:
        yield running


@pytest.mark.parametrize("case", BREAKS, ids=lambda case: f"{case.rule.number}-{case.rule.name}")
def test_a_request_that_breaks_a_rule_is_refused_with_the_text_of_the_api(simulator: Simulator, case: Break) -> None:
    assert_refused(simulator, case)


def test_every_rule_of_the_table_is_broken_by_some_test() -> None:
    mine = {rule for rule in Rule if rule.number not in LATER_RULES | BATCH_RULES}
    assert {case.rule for case in BREAKS} | ELSEWHERE == mine


def test_every_number_from_one_to_seventy_is_in_the_table_or_refuses_nothing() -> None:
    assert {rule.number for rule in Rule} | set(BEHAVIOURS) == set(range(71))


def test_refusals_are_wrapped_but_for_the_one_of_the_proxy(simulator: Simulator) -> None:
    wrapped = post(simulator.url, body(model="x"))
    assert wrapped.body == {
        "type": "error",
        "error": {"type": "not_found_error", "message": "model: x"},
        "request_id": wrapped.headers["request-id"],
    }
    bare = post(simulator.url, b" " * (32 * 1024 * 1024 + 1))
    assert bare.body == {"error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}


def test_the_first_broken_rule_in_the_order_of_the_api_is_the_one_told(simulator: Simulator) -> None:
    everything = body(user(result("a")), model="x", surprise=1)
    assert post(simulator.url, everything, {}).text == "x-api-key header is required"
    assert post(simulator.url, everything).text == "surprise: Extra inputs are not permitted"
    assert post(simulator.url, body(user(result("a")), model="x")).text == "model: x"


ACCEPTED = {
    "consecutive messages of one role are merged": body(HELLO, HELLO),
    "results may be split over two user messages": body(*asked("a", "b"), user(result("a")), user(result("b"))),
    "text may follow results": body(*asked("a"), user(result("a"), text("and now?"))),
    "results may come in any order": body(*asked("a", "b"), user(result("b"), result("a"))),
    "a result may have no content": body(*asked("a"), user({"type": "tool_result", "tool_use_id": "a"})),
    "a result may be an error": body(*asked("a"), user(result("a", "no such page", is_error=True))),
    "thinking may stand between calls": body(
        HELLO, signed(body(), call("a"), thought(""), call("b")), user(result("a"), result("b"))
    ),
    "a system message may follow a user message": body(HELLO, {"role": "system", "content": "Be brief."}),
    "an old model takes a prefill, even an empty one": body(HELLO, assistant(), model=OLD),
    "an escaped pair of surrogates is a character": rb'{"model": "claude-opus-5", "max_tokens": 9, "messages":'
    rb' [{"role": "user", "content": "\ud83d\ude00 \\ud800"}]}',
    "automatic caching on a marked block takes no slot of its own": body(
        user(*[text(word, cache_control={"type": "ephemeral"}) for word in "abcd"]),
        cache_control={"type": "ephemeral"},
    ),
}


@pytest.mark.parametrize("sends", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_what_the_api_takes_is_taken(simulator: Simulator, sends: object) -> None:
    reply = post(simulator.url, sends)
    assert reply.status == 200, reply.text


def test_a_field_of_a_beta_is_known_with_its_header(simulator: Simulator) -> None:
    headers = {**HEADERS, "anthropic-beta": "context-management-2025-06-27"}
    assert post(simulator.url, body(context_management={"edits": []}), headers).status == 200


def test_an_older_version_and_model_still_take_a_temperature(simulator: Simulator) -> None:
    headers = {**HEADERS, "anthropic-version": "2023-06-01"}
    assert post(simulator.url, body(model=OLD, temperature=0.5), headers).status == 200


def test_the_counter_checks_like_the_api_and_wants_no_max_tokens(simulator: Simulator) -> None:
    path = "/v1/messages/count_tokens"
    counted = post(simulator.url, body(user(text("x" * 36)), max_tokens=None, tools=None), path=path)
    assert counted.body == {"input_tokens": 11}
    assert post(simulator.url, body(*asked("a"), max_tokens=None), path=path).status == 400
    assert post(simulator.url, body(max_tokens=5), path=path).text == "max_tokens: Extra inputs are not permitted"


def test_health_is_told_and_other_paths_are_not_found(simulator: Simulator) -> None:
    assert post(simulator.url, {}, path="/health").body == {"status": "ok"}
    assert post(simulator.url, {}, path="/v1/complete").status == 404


def test_the_documentation_lists_every_rule_with_its_status_and_what_is_known_of_it() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*?) \| .* \| (.*?) \|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    listed = {int(number): (status, known) for number, status, known in rows}
    assert listed == {number: documented(number) for number in range(1, 71)}


def documented(number: int) -> tuple[str, str]:
    """What the documentation must say of a rule: its status, and whether its text was seen."""
    rules = [rule for rule in Rule if rule.number == number]
    if not rules:
        return "none", "none"
    known = {rule.verified for rule in rules}
    status = ", ".join(sorted({str(rule.status) for rule in rules}))
    return status, "in part" if len(known) == 2 else "seen" if known == {True} else "believed"
