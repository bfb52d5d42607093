"""What holds for any request: it is judged, never crashed upon, and memory changes no judgement."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict
from support.sim_wire import HEADERS, HELLO, NOW, TOOL, assistant, body, call, result, signed, text, thought, user

from paceline.sim.api import Accepted, Api
from paceline.sim.batch_body import batch_refusals, items_of, read_batch
from paceline.sim.body import MessageShelf, read_body
from paceline.sim.rules import Refusal, Rule
from paceline.sim.switches import SWITCHABLE, Switches

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", " ", "a", "text", "tool_use", "x@y.zz"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "id", "content", "role", "ttl", "$ref", "anyOf"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
MARK = {"type": "ephemeral"}
SEARCH = {"type": "web_search_20260209", "name": "web_search"}
FIRST = user(text("hello", cache_control=MARK), {"type": "image", "source": {"type": "base64", "data": ""}})
GIVEN: dict[str, object] = {
    "system": [text("Be brief.", cache_control=MARK)],
    "tools": [{**TOOL, "strict": True, "input_schema": {"type": "object", "additionalProperties": False}}, SEARCH],
    "metadata": {"user_id": "run"},
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "adaptive", "display": "summarized"},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "string"}}},
    "stop_sequences": ["x"],
    "cache_control": MARK,
}
SEARCHED: list[dict[str, object]] = [
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
    {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
]
SOUND = body(
    FIRST,
    signed(body(FIRST, **GIVEN), thought(), text("so"), *SEARCHED, call("a"), call("b")),
    user(result("a", [text("one"), {"type": "tool_reference", "tool_name": "look"}]), result("b", is_error=True)),
    **GIVEN,
)
BATCH: dict[str, Any] = {"requests": [{"custom_id": "a", "params": {"model": "m"}}, {"params": {}, "custom_id": "b"}]}
BLOCKS = st.sampled_from([text("hello"), call("a"), call("b"), result("a"), result("b"), result("c")])
MESSAGES = st.lists(
    st.one_of(
        st.builds(lambda blocks: user(*blocks), st.lists(BLOCKS, max_size=3)),
        st.builds(lambda blocks: assistant(*blocks), st.lists(BLOCKS, max_size=3)),
        st.just(HELLO),
    ),
    max_size=6,
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for key, part in inner for each in paths(part, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def fresh_api() -> Api:
    return Api(clock=lambda: NOW)


def judge(api: Api, sends: object) -> Accepted | Refusal:
    return api.judge(CIMultiDict(HEADERS), json.dumps(sends).encode())


def test_the_request_that_is_spoiled_is_sound() -> None:
    assert isinstance(judge(fresh_api(), SOUND), Accepted)


@given(st.sampled_from(paths(SOUND)), JSON)
@settings(max_examples=400)
def test_whatever_stands_in_a_request_it_is_judged(path: tuple[Any, ...], new: object) -> None:
    judged = judge(fresh_api(), replaced(SOUND, path, new))
    if isinstance(judged, Refusal):
        assert judged.text


@given(st.sampled_from(paths(SOUND)), JSON)
@settings(max_examples=300)
def test_it_is_judged_as_well_when_nothing_unseen_is_enforced(path: tuple[Any, ...], new: object) -> None:
    lenient = Api(clock=lambda: NOW, switches=Switches(unenforced=SWITCHABLE))
    judged = judge(lenient, replaced(SOUND, path, new))
    if isinstance(judged, Refusal):
        assert judged.rule.verified or judged.rule is Rule.NOT_AN_OBJECT
    else:
        assert judged.prompt.tokens > 0


@given(st.sampled_from(paths(BATCH)), JSON)
@settings(max_examples=200)
def test_whatever_stands_in_a_batch_it_is_read_or_refused(path: tuple[Any, ...], new: object) -> None:
    read = read_batch(json.dumps(replaced(BATCH, path, new)).encode())
    if isinstance(read, Refusal):
        return
    refusal = next(batch_refusals(read), None)
    if refusal is None:
        assert all(json.loads(item.text) == item.params for item in items_of(read))


@given(st.lists(MESSAGES, min_size=1, max_size=4))
@settings(max_examples=200)
def test_what_was_read_before_changes_no_judgement(conversations: list[list[object]]) -> None:
    remembering = fresh_api()
    for messages in conversations:
        remembered, fresh = (judge(api, body(messages=messages)) for api in (remembering, fresh_api()))
        if isinstance(fresh, Refusal):
            assert remembered == fresh
        else:
            assert isinstance(remembered, Accepted)
            assert remembered.request.messages == fresh.request.messages == messages
            assert remembered.prompt.keys("") == fresh.prompt.keys("")


@given(MESSAGES)
@settings(max_examples=300)
def test_accepted_conversations_answer_each_call_once_in_the_next_message(messages: list[Any]) -> None:
    judged = judge(fresh_api(), body(messages=messages))
    if isinstance(judged, Refusal):
        return
    merged: list[tuple[str, list[Any]]] = []
    for message in messages:
        content = message["content"] if isinstance(message["content"], list) else []
        if merged and merged[-1][0] == message["role"]:
            merged[-1][1].extend(content)
        else:
            merged.append((message["role"], list(content)))
    for (_, before), (_, after) in zip([("", []), *merged], [*merged, ("", [])], strict=True):
        calls = [block["id"] for block in before if block["type"] == "tool_use"]
        results = [block["tool_use_id"] for block in after if block["type"] == "tool_result"]
        assert sorted(calls) == sorted(results)


def test_the_shelf_forgets_the_oldest_and_still_reads_right() -> None:
    shelf = MessageShelf(max_chars=3000)
    for start in range(20):
        messages = [user(text(f"{number} " * 50)) for number in range(start, start + 10)]
        read = read_body(json.dumps({"messages": messages}).encode(), shelf)
        assert not isinstance(read, Refusal)
        assert [message.value for message in read.messages or ()] == messages
        assert shelf.chars <= 3000


@given(st.text(max_size=30))
def test_spaces_of_json_change_nothing_in_what_is_read(words: str) -> None:
    sends = {"messages": [HELLO, {"role": "user", "content": words}]}
    for written in (json.dumps(sends), json.dumps(sends, separators=(",", ":")), json.dumps(sends, indent=3)):
        read = read_body(written.encode(), MessageShelf())
        assert not isinstance(read, Refusal)
        assert [each.value for each in read.messages or ()] == sends["messages"]
