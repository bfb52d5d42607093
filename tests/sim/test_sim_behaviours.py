"""What the model may say, and how its answers may be written, as the official client sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from jsonschema import Draft202012Validator
from support.sim_wire import NOW

from paceline.sim import DIALECTS, FAULTS, Answer, Call, Fault, Limits, Playbook, PlaybookError, ServerCall, Simulator
from paceline.sim.faults import Stage

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "depth": {"type": "integer"}, "tags": {"type": "array"}},
    "required": ["path"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [{"name": "look", "input_schema": SCHEMA}]
CALLING = Answer(text="so", calls=[Call(tool="look", input={"path": "a/b/c"})])
WRITTEN_AS: dict[str, Any] = {"model": "claude-sonnet-5-5", "max_tokens": 4000, "messages": HELLO, "tools": TOOLS}
BINDING = "thinking-binding-controls-2026-08-01"


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator(lambda request: CALLING, clock=lambda: NOW) as running:
        yield running


@pytest.fixture
def client(simulator: Simulator) -> Iterator[anthropic.Anthropic]:
    timeout = httpx2.Timeout(10)
    with anthropic.Anthropic(api_key="k", base_url=simulator.url, max_retries=0, timeout=timeout) as made:
        yield made


def raw(client: anthropic.Anthropic, **fields: Any) -> dict[str, Any]:
    """The answer as it is on the wire."""
    message: dict[str, Any] = client.messages.with_raw_response.create(**{**WRITTEN_AS, **fields}).http_response.json()
    return message


def streamed(client: anthropic.Anthropic, **fields: Any) -> anthropic.types.Message:
    with client.messages.stream(**{**WRITTEN_AS, **fields}) as events:
        return events.get_final_message()


def kinds(message: dict[str, Any]) -> list[str]:
    return [block["type"] for block in message["content"]]


def inputs(message: dict[str, Any]) -> list[Any]:
    return [block["input"] for block in message["content"] if block["type"] == "tool_use"]


def on(message: dict[str, Any], *blocks: Any) -> list[Any]:
    """The conversation after an answer, its calls answered."""
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "ok"}
        for block in message["content"]
        if block["type"] == "tool_use"
    ]
    reply = {"role": "user", "content": [*results, *blocks]}
    return [*HELLO, {"role": "assistant", "content": message["content"]}, *([reply] if results or blocks else [])]


def test_a_call_may_be_cut_with_a_part_of_its_input_or_none(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("cut_call")
    simulator.inject("cut_call_partly", times=2)
    whole, part = raw(client), raw(client)
    assert (whole["stop_reason"], inputs(whole)) == ("max_tokens", [{}])
    assert (part["stop_reason"], inputs(part)) == ("max_tokens", [{"path": "a/b"}])
    assert part["usage"]["output_tokens"] == 4000
    # In a stream the JSON breaks off, and the client makes of it what it can.
    assert streamed(client).to_dict()["content"] == part["content"]


def test_text_and_thinking_may_be_cut(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("cut_text")
    simulator.inject("cut_thinking")
    text, thinking = raw(client), raw(client)
    assert (kinds(text), text["stop_reason"]) == (["text"], "max_tokens")
    assert (kinds(thinking), thinking["stop_reason"]) == (["thinking"], "max_tokens")


def test_thinking_that_is_too_long_is_cut(client: anthropic.Anthropic) -> None:
    with Simulator(lambda request: Answer(thinking="m" * 100, text="so")) as simulator:
        message = raw(client.with_options(base_url=simulator.url), max_tokens=10)
    assert [block["thinking"] for block in message["content"]] == ["m" * 35]
    assert message["usage"]["output_tokens_details"] == {"thinking_tokens": 10}


def test_a_refusal_before_any_word_is_free_and_one_midway_is_not(
    simulator: Simulator, client: anthropic.Anthropic
) -> None:
    simulator.inject("refusal")
    simulator.inject("refusal_midway")
    early, late = raw(client), raw(client)
    assert (early["content"], early["stop_reason"]) == ([], "refusal")
    assert (kinds(late), late["stop_reason"]) == (["text", "tool_use"], "refusal")
    assert late["stop_details"]["type"] == "refusal"
    assert [entry.billed for entry in simulator.journal] == [False, True]


def test_a_turn_may_pause_and_go_on_where_it_paused(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("pause_turn", times=2)
    conversation = HELLO
    for _ in range(2):
        paused = raw(client, messages=conversation)
        assert (paused["stop_reason"], kinds(paused)[-1]) == ("pause_turn", "web_search_tool_result")
        conversation = [*conversation, {"role": "assistant", "content": paused["content"]}]
    assert raw(client, messages=conversation)["stop_reason"] == "tool_use"


def test_a_turn_may_pause_for_ever(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("pause_turn", after=0)
    assert {raw(client)["stop_reason"] for _ in range(4)} == {"pause_turn"}


def test_the_window_may_be_full(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("context_window_exceeded")
    assert raw(client)["stop_reason"] == "model_context_window_exceeded"


def test_the_model_may_end_its_turn_without_a_word(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("empty_answer")
    message = raw(client)
    assert (message["content"], message["stop_reason"]) == ([], "end_turn")
    assert message["usage"]["output_tokens"] == 3


def test_ids_may_be_given_twice_or_again(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("duplicate_ids")
    twice = [block["id"] for block in raw(client)["content"] if block["type"] == "tool_use"]
    assert len(twice) == 2
    assert len(set(twice)) == 1
    first = raw(client)
    simulator.inject("reused_id")
    again = raw(client, messages=on(first))
    assert again["content"][-1]["id"] == first["content"][-1]["id"]
    with pytest.raises(anthropic.BadRequestError, match="`tool_use` ids must be unique"):
        raw(client, messages=[*on(first), *on(again)[1:]])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("input_missing_field", {}),
        ("input_wrong_type", {"path": 7}),
        ("input_extra_field", {"path": "a/b/c", "unasked": True}),
        ("input_string_for_list", {"path": "a/b/c", "tags": "one, two"}),
    ],
)
def test_an_input_may_break_its_schema_in_one_way(
    simulator: Simulator, client: anthropic.Anthropic, name: str, arguments: dict[str, Any]
) -> None:
    simulator.inject(name)
    message = raw(client)
    assert inputs(message) == [arguments]
    assert len(list(Draft202012Validator(SCHEMA).iter_errors(arguments))) == 1
    assert message["stop_reason"] == "tool_use"


def test_an_input_may_be_huge_or_hold_what_few_stores_can(simulator: Simulator, client: anthropic.Anthropic) -> None:
    for name in ("input_huge_string", "input_nul", "input_lone_surrogate"):
        simulator.inject(name)
    paths = [inputs(raw(client))[0]["path"] for _ in range(3)]
    assert (len(paths[0]), paths[1:]) == (300_000, ["before\x00after", "before\ud800after"])


def test_a_lone_surrogate_that_is_sent_back_is_no_json(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("input_lone_surrogate")
    body = json.dumps({**WRITTEN_AS, "messages": on(raw(client))}).encode()
    with pytest.raises(anthropic.BadRequestError, match="no low surrogate in string"):
        client.post("/v1/messages", cast_to=httpx2.Response, content=body)


def test_a_tool_may_be_unknown_wrongly_written_or_gone(simulator: Simulator, client: anthropic.Anthropic) -> None:
    for name in ("unknown_tool", "miscased_tool"):
        simulator.inject(name)
    first, second = raw(client), raw(client)
    assert [each["content"][-1]["name"] for each in (first, second)] == ["no_such_tool", "LOOK"]
    history = on(raw(client))
    simulator.inject("removed_tool")
    other = [{"name": "listen", "input_schema": {"type": "object"}}]
    assert raw(client, messages=history, tools=other)["content"][-1]["name"] == "look"


@pytest.mark.parametrize("count", [1, 8, 64])
def test_the_model_may_ask_for_many_calls_at_once(
    simulator: Simulator, client: anthropic.Anthropic, count: int
) -> None:
    simulator.inject(Fault("many_calls", count=count, calls=(Call(tool="look", input={"path": "it"}),)))
    message = raw(client)
    calls = [block for block in message["content"] if block["type"] == "tool_use"]
    assert [(call["name"], call["input"]) for call in calls] == [("look", {"path": "it"})] * count
    assert len({call["id"] for call in calls}) == count
    assert simulator.journal.entries[0].tool_use_ids == tuple(call["id"] for call in calls)


@pytest.mark.parametrize(("name", "tools"), [("same_call", ["look", "look"]), ("ping_pong", ["look", "listen"])])
def test_the_model_may_go_round_in_circles(
    simulator: Simulator, client: anthropic.Anthropic, name: str, tools: list[str]
) -> None:
    simulator.inject(Fault(name, calls=(Call(tool="look"), Call(tool="listen"))), after=0)
    first = raw(client)
    second = raw(client, messages=on(first))
    assert [each["content"][-1]["name"] for each in (first, second)] == tools


def test_an_answer_may_be_very_large(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("huge_answer")
    simulator.inject("huge_input")
    text, call = raw(client, max_tokens=128_000), raw(client)
    assert len(text["content"][0]["text"]) == 450_000
    assert text["usage"]["output_tokens"] == 128_000
    assert len(inputs(call)[0]["path"]) == 450_000
    assert call["stop_reason"] == "tool_use"


def test_nobody_may_know_the_block_the_reason_the_usage_or_the_field(
    simulator: Simulator, client: anthropic.Anthropic
) -> None:
    for name in ("unknown_block", "unknown_stop_reason", "unknown_usage", "unknown_fields"):
        simulator.inject(name)
    block, reason, usage, fields = (raw(client) for _ in range(4))
    assert kinds(block) == ["hologram", "text", "tool_use"]
    assert block["content"][-1]["id"].startswith("toolu_01")
    assert reason["stop_reason"] == "moon_phase"
    assert usage["usage"]["tokens_of_tomorrow"] == 17
    assert fields["mood"] == "cheerful"


def test_end_and_content_may_contradict_each_other(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("tool_use_without_call")
    simulator.inject("end_turn_with_call")
    none, one = raw(client), raw(client)
    assert (kinds(none), none["stop_reason"]) == (["text"], "tool_use")
    assert (kinds(one), one["stop_reason"]) == (["text", "tool_use"], "end_turn")


def test_the_server_and_the_client_may_be_asked_at_once(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("mixed_server_call")
    search = {"type": "web_search_20250305", "name": "web_search"}
    mixed = raw(client, tools=[*TOOLS, search])
    assert (kinds(mixed), mixed["stop_reason"]) == (["text", "server_tool_use", "tool_use"], "tool_use")
    assert mixed["usage"]["server_tool_use"] == {"web_search_requests": 1, "web_fetch_requests": 0}
    assert raw(client, messages=on(mixed), tools=[*TOOLS, search])["stop_reason"] == "tool_use"
    with pytest.raises(anthropic.BadRequestError, match="only `tool_result` blocks are allowed"):
        raw(client, messages=on(mixed, {"type": "text", "text": "?"}), tools=[*TOOLS, search])
    with pytest.raises(anthropic.BadRequestError, match="but no `web_search` tool was provided"):
        raw(client, messages=on(mixed))


def test_code_runs_in_a_container_that_is_named_again(simulator: Simulator, client: anthropic.Anthropic) -> None:
    def answer(request: Any) -> Answer:
        code = ServerCall(tool="code_execution", input={"code": "look()"})
        return Answer(server_calls=[code], calls=[Call(tool="look", by_code=True)]) if request.turn == 1 else CALLING

    code: Any = {"type": "code_execution_20260120", "name": "code_execution"}
    with Simulator(answer, clock=lambda: NOW) as other:
        here = client.with_options(base_url=other.url)
        first = here.messages.create(**{**WRITTEN_AS, "tools": [*TOOLS, code]})
        assert first.container is not None
        call: Any = first.content[-1]
        assert call.caller.tool_id == first.content[0].to_dict()["id"]
        history = on(first.to_dict())
        with pytest.raises(anthropic.BadRequestError, match="container_id is required"):
            raw(here, messages=history, tools=[*TOOLS, code])
        second = raw(here, messages=history, tools=[*TOOLS, code], container=first.container.id)
        assert second["container"]["id"] == first.container.id


def test_usage_may_be_odd(simulator: Simulator, client: anthropic.Anthropic) -> None:
    marked: Any = {"system": [{"type": "text", "text": "s" * 3500, "cache_control": {"type": "ephemeral"}}]}
    raw(client, **marked)
    hit = raw(client, **marked)["usage"]
    simulator.inject("cache_miss")
    missed = raw(client, **marked)["usage"]
    assert (hit["cache_read_input_tokens"] > 0, missed["cache_read_input_tokens"]) == (True, 0)
    assert missed["cache_creation_input_tokens"] == hit["cache_read_input_tokens"]
    assert simulator.journal.entries[-1].usage.cache_read_input_tokens == 0
    simulator.inject("null_cache_fields")
    assert raw(client, **marked)["usage"]["cache_read_input_tokens"] is None


def test_iterations_tell_of_compaction_and_of_another_model(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("compaction_iteration")
    simulator.inject("other_model", times=2)
    compacted: Any = client.beta.messages.create(**WRITTEN_AS)
    assert [each.type for each in compacted.usage.iterations] == ["compaction", "message"]
    assert compacted.usage.input_tokens == compacted.usage.iterations[1].input_tokens
    fallen: Any = client.beta.messages.create(**WRITTEN_AS)
    assert fallen.model != "claude-sonnet-5-5"
    assert [(each.type, each.model) for each in fallen.usage.iterations] == [("fallback_message", fallen.model)]
    assert streamed(client).model == fallen.model


@pytest.mark.filterwarnings("ignore:The model 'claude-sonnet-4-5' is deprecated:DeprecationWarning")
def test_a_model_that_retires_is_not_found_from_then_on(client: anthropic.Anthropic) -> None:
    now = [NOW]
    with Simulator(lambda request: Answer(text="hi"), clock=lambda: now[0]) as simulator:
        here = client.with_options(base_url=simulator.url)
        assert raw(here, model="claude-sonnet-4-5")["stop_reason"] == "end_turn"
        now[0] += 16 * 24 * 3600
        with pytest.raises(anthropic.NotFoundError, match="model: claude-sonnet-4-5"):
            raw(here, model="claude-sonnet-4-5")
        simulator.inject("model_retired", model="claude-sonnet-5-5", after=1)
        raw(here)
        with pytest.raises(anthropic.NotFoundError):
            raw(here)


def test_rate_limit_headers_may_be_skewed_or_missing() -> None:
    with (
        Simulator(lambda request: CALLING, limits=Limits(requests_per_minute=60), clock=lambda: NOW) as simulator,
        anthropic.Anthropic(api_key="k", base_url=simulator.url, max_retries=0, timeout=5) as client,
    ):
        simulator.inject(Fault("skewed_clock", seconds=-3600))
        simulator.inject("no_limit_headers")
        names = "anthropic-ratelimit-requests-reset", "anthropic-ratelimit-requests-remaining"
        told = [client.messages.with_raw_response.create(**WRITTEN_AS).headers for _ in range(3)]
    assert [headers.get(names[0]) for headers in told] == ["2026-11-14T23:00:01Z", None, "2026-11-15T00:00:03Z"]
    assert [headers.get(names[1]) for headers in told] == ["59", None, "57"]


def test_thinking_is_signed_and_holds_where_it_stands(simulator: Simulator, client: anthropic.Anthropic) -> None:
    for name in ("thinking", "redacted_thinking", "empty_thinking"):
        simulator.inject(name)
    conversation = HELLO
    for kind in ("thinking", "redacted_thinking", "thinking"):
        answer = client.messages.create(**{**WRITTEN_AS, "messages": conversation})
        assert answer.content[0].type == kind
        told: Any = {"content": [block.to_dict() for block in answer.content]}
        conversation = [*conversation, *on(told)[1:]]
    assert told["content"][0]["thinking"] == ""
    raw(client, messages=conversation)
    with pytest.raises(anthropic.BadRequestError, match="bound to a different conversation"):
        raw(client, messages=conversation, system="Be brief.")


def test_thinking_is_streamed_with_its_signature(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("thinking", times=2)
    final = streamed(client)
    assert final.to_dict()["content"] == raw(client)["content"]


def test_thinking_may_be_left_out_of_sight(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("thinking", times=2)
    shown, unseen = raw(client), raw(client, thinking={"type": "adaptive", "display": "omitted"})
    assert (shown["content"][0]["thinking"], unseen["content"][0]["thinking"]) == ("I should read the page first.", "")
    assert unseen["usage"]["output_tokens"] == shown["usage"]["output_tokens"]
    raw(client, messages=on(unseen))


def test_the_beta_client_drops_moved_thinking_and_is_told(simulator: Simulator, client: anthropic.Anthropic) -> None:
    simulator.inject("thinking")
    history: Any = on(raw(client))
    drop: Any = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    given: Any = {**WRITTEN_AS, "messages": history, "system": "Be brief.", "betas": [BINDING], "thinking": drop}
    message = client.beta.messages.create(**given)
    told = message.input_transformations or []
    assert [(each.type, each.reason) for each in told] == [("thinking_dropped", "prefix_binding_mismatch")]


DIALECT_ERRORS = {
    "vllm": {"object": "error", "message": "Overloaded", "type": "InternalServerError", "param": None, "code": 529},
    "llama.cpp": {"error": {"code": 529, "message": "Overloaded", "type": "overloaded_error"}},
}


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "anthropic"])
def test_a_compatible_server_takes_any_model_and_fails_in_its_own_way(dialect: str) -> None:
    limits = Limits(requests_per_minute=60)
    with (
        Simulator(lambda request: CALLING, dialect=dialect, limits=limits) as simulator,
        anthropic.Anthropic(api_key="k", base_url=simulator.url, max_retries=0, timeout=5) as client,
    ):
        answer = client.messages.with_raw_response.create(**{**WRITTEN_AS, "model": "qwen"})
        assert not [name for name in answer.headers if name.startswith(("request-id", "anthropic-"))]
        usage = answer.http_response.json()["usage"]
        assert ("cache_read_input_tokens" in usage) is (dialect == "litellm")
        simulator.inject("overloaded")
        with pytest.raises(anthropic.OverloadedError) as caught:
            raw(client)
    body: Any = caught.value.body
    if dialect in DIALECT_ERRORS:
        assert body == DIALECT_ERRORS[dialect]
    else:
        assert body["error"]["code"] == "529"
        assert body["error"]["message"].startswith('litellm.InternalServerError: AnthropicException - {"type": "error"')


def test_vllm_says_what_it_does_not_find_as_its_framework_does() -> None:
    with (
        Simulator(lambda request: CALLING, dialect="vllm", api_keys={"other"}) as simulator,
        anthropic.Anthropic(api_key="k", base_url=simulator.url, max_retries=0, timeout=5) as client,
        pytest.raises(anthropic.AuthenticationError) as caught,
    ):
        raw(client)
    assert caught.value.body == {"detail": "Invalid bearer token"}


def test_a_playbook_may_say_all_of_that() -> None:
    text = r"""
dialect: litellm
switches: {unenforced: [49], account_binds_thinking: false}
batches: {seconds: 5, seed: 3}
faults:
  - {fault: {name: input_nul, calls: [{tool: look}]}, after: 1, times: 1}
rules:
  - when: {turn: 1, first_user: "about (?P<what>\\w+)"}
    answer:
      thinking: Where is {what}?
      text: I will search for {what}.
      server_calls: [{tool: web_search, input: {query: "{what}"}, result: []}]
      calls: [{tool: look, input: {path: "{what}"}}]
  - answer: {blocks: [{type: thinking, thinking: hm}, {type: text, text: done}], stop_reason: pause_turn}
"""
    with (
        Simulator(Playbook.parse(text)) as simulator,
        anthropic.Anthropic(api_key="k", base_url=simulator.url, max_retries=0, timeout=5) as client,
    ):
        first = raw(client, messages=[{"role": "user", "content": "all about cats"}])
        assert kinds(first) == ["thinking", "text", "server_tool_use", "web_search_tool_result", "tool_use"]
        assert (first["content"][0]["thinking"], inputs(first)) == ("Where is cats?", [{"path": "cats"}])
        assert inputs(raw(client))[0]["path"] == "before\x00after"
        last = raw(client)
        assert (kinds(last), last["stop_reason"]) == (["thinking", "text"], "pause_turn")
        assert last["content"][0]["signature"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("dialect: vlm\nrules: []", "there is no dialect 'vlm'; there are: anthropic, vllm"),
        ("switches: {unenforced: [19]}\nrules: []", "rule 19 cannot be left out"),
        ("rules: [{answer: {server_calls: [{tol: x}]}}]", "did you mean `tool`?"),
    ],
)
def test_mistakes_in_that_are_told_when_the_playbook_is_read(text: str, says: str) -> None:
    with pytest.raises(PlaybookError) as caught:
        Playbook.parse(text)
    assert says in str(caught.value)


def test_every_fault_of_words_and_writing_is_tried_here() -> None:
    written = Path(__file__).read_text(encoding="utf-8")
    mine = {name for name, stage in FAULTS.items() if stage in (Stage.SPOKEN, Stage.WRITTEN, Stage.HEADERS)}
    assert {name for name in mine if f'"{name}"' not in written} == set()
