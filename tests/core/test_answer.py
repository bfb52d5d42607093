"""An answer is read from its bytes, and its content's bytes are kept as they came."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.wire import body, json_values, member_texts, message, spelled, text, thinking, tool_use

from paceline.core.answer import Billed, BrokenAnswer, Call, raw_member, read_answer
from paceline.core.ids import CallId
from paceline.core.usage import Usage


def test_an_answer_tells_what_decides_the_next_step() -> None:
    answer = read_answer(body(text("I look. "), tool_use("toolu_1", q="on call"), stop_reason="tool_use"))
    assert (answer.message_id, answer.model, answer.stop_reason) == ("msg_01", "claude-sonnet-5-5", "tool_use")
    assert (answer.text, answer.only_text) == ("I look. ", False)
    assert answer.calls == (Call(call_id=CallId("toolu_1"), tool="search", raw_input='{"q": "on call"}'),)
    assert answer.usage == Usage(input=12, cache_read=50_000, cache_write=3_000, output=400)
    # 12 at $2, 50,000 read at $0.10, 3,000 written at $2.50, 400 out at $10 a million
    assert answer.cost_nanousd == 24_000 + 5_000_000 + 7_500_000 + 4_000_000


def test_calls_keep_the_order_of_the_message() -> None:
    answer = read_answer(body(tool_use("z"), tool_use("a"), tool_use("m"), stop_reason="tool_use"))
    assert [call.call_id for call in answer.calls] == ["z", "a", "m"]


@given(data=st.data(), words=st.text(min_size=1).filter(lambda t: t.strip()), arguments=json_values)
def test_the_content_is_kept_byte_for_byte(data: st.DataObject, words: str, arguments: Any) -> None:
    blocks = [thinking(words), text(words), tool_use("toolu_1", value=arguments)]
    try:
        json.dumps(blocks, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return  # half a character cannot come in UTF-8
    raw = data.draw(spelled(blocks)).strip(" \t\r\n")
    rest = message(stop_reason="tool_use")
    del rest["content"]
    members = [(name, data.draw(spelled(value))) for name, value in rest.items()]
    members.insert(data.draw(st.integers(0, len(members))), ("content", f" {raw}\n"))
    answer = read_answer(member_texts(members).encode())
    assert answer.fragment == b'{"role":"assistant","content":' + raw.encode() + b"}"


def test_key_order_whitespace_escapes_and_unicode_survive() -> None:
    words = '{"text":"\\u00e9\\/ é ☃ \\ud83d\\ude00","type" : "text"}'
    call = '{"input":{"b":1,"a":2.0},"name":"search","id":"c1","type":"tool_use"}'
    raw = f"[ {words},\n{call}]"
    members = [(name, json.dumps(value)) for name, value in message().items() if name != "content"]
    answer = read_answer(member_texts([*members, ("content", raw)]).encode())
    assert answer.fragment == b'{"role":"assistant","content":' + raw.encode() + b"}"
    assert answer.text == "é/ é ☃ 😀"
    assert answer.calls[0].raw_input == '{"b": 1, "a": 2.0}'


@given(data=st.data(), members=st.dictionaries(st.text(max_size=8), json_values, max_size=6))
def test_a_member_is_found_as_it_stands_in_any_object(data: st.DataObject, members: dict[str, Any]) -> None:
    whole = data.draw(spelled(members))
    for name, value in json.loads(whole).items():
        raw = raw_member(whole, name)
        assert raw == raw.strip(" \t\r\n")
        assert raw in whole
        assert json.loads(raw) == value
    with pytest.raises(KeyError):
        raw_member(whole, "no such member")


def test_of_two_members_of_one_name_the_last_counts_as_in_json() -> None:
    assert raw_member('{"a": 1, "b": {"a": 5}, "a" : [2 ] }', "a") == "[2 ]"


@pytest.mark.parametrize("blocks", [[], [text("")], [text(" \n"), text("")]], ids=["nothing", "empty", "blank"])
def test_an_answer_that_says_nothing_has_no_fragment(blocks: list[dict[str, Any]]) -> None:
    answer = read_answer(body(*blocks))
    assert (answer.fragment, answer.text, answer.calls) == (None, "", ())


def test_a_refusal_names_its_category_where_there_is_one() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "…"}
    assert read_answer(body(stop_reason="refusal", stop_details=details)).refusal == "cyber"
    assert read_answer(body(stop_reason="refusal", stop_details={"category": None})).refusal == "no category given"
    assert read_answer(body(stop_reason="refusal")).refusal == "no category given"


def test_an_answer_of_an_unpriced_model_has_no_cost_not_none_at_all() -> None:
    answer = read_answer(body(text("Hi"), model="llama-12"))
    assert answer.cost_nanousd is None
    assert answer.usage.output == 400


SECRET = "the-content-is-secret"

BROKEN = {
    "empty": b"",
    "html": b"<html><body>502 Bad Gateway</body></html>",
    "cut": body(text(SECRET))[:-30],
    "not utf-8": b'{"type":"message","content":"\xff\xfe"}',
    "a list": b"[]",
    "too deep": b"[" * 100_000,
    "not JSON's number": body(tool_use("c1", n=float("nan")), stop_reason="tool_use"),
    "an error": b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
    "no content": json.dumps({"type": "message", "model": "m", "usage": {}}).encode(),
    "null content": body(content=None),
    "no usage": body(text("Hi"), usage=None),
    "usage without counts": body(text("Hi"), usage={"input_tokens": 5}),
    "usage with words": body(text("Hi"), usage={"input_tokens": 5, "output_tokens": 5, "cache_read_input_tokens": "9"}),
    "usage that is true": body(text("Hi"), usage={"input_tokens": True, "output_tokens": 5}),
    "usage below nothing": body(text("Hi"), usage={"input_tokens": 5, "output_tokens": -5}),
    "a cache below nothing": body(
        text("Hi"), usage={"input_tokens": 5, "output_tokens": 5, "cache_creation_input_tokens": -1}
    ),
    "usage that is false": body(
        text("Hi"), usage={"input_tokens": 5, "output_tokens": 5, "cache_read_input_tokens": False}
    ),
    "iterations below nothing": body(
        text("Hi"), usage={"input_tokens": 5, "output_tokens": 5, "iterations": [{"output_tokens": -5}]}
    ),
    "searches in words": body(
        text("Hi"), usage={"input_tokens": 5, "output_tokens": 5, "server_tool_use": {"web_search_requests": "2"}}
    ),
    "a list as stop reason": body(text("Hi"), stop_reason=["end_turn"]),
    "odd usage": body(text("Hi"), usage={"input_tokens": 5, "output_tokens": 5, "iterations": [7]}),
    "no model": body(text("Hi"), model=None),
    "a block without type": body({"text": SECRET}),
    "a block that is a word": body(content=[SECRET]),
    "a text that is a number": body({"type": "text", "text": 5}),
    "a call without id": body({"type": "tool_use", "name": SECRET, "input": {}}),
    "a call without name": body({"type": "tool_use", "id": "c1", "input": {"q": SECRET}}),
    "a call without input": body({"type": "tool_use", "id": "c1", "name": "search"}),
    "an input that is no object": body({"type": "tool_use", "id": "c1", "name": "search", "input": [SECRET]}),
    "an odd id": body(tool_use("c 1")),
    "an id twice": body(tool_use("c1"), tool_use("c1")),
    "text after a call": body(tool_use("c1"), text(SECRET)),
    "a result": body({"type": "tool_result", "tool_use_id": "c1", "content": SECRET}),
    "half a character": body(text("\ud800 " + SECRET)),
    "odd stop details": body(text("Hi"), stop_details="refusal"),
}


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
def test_a_broken_answer_is_refused_without_telling_its_content(answer: bytes) -> None:
    with pytest.raises(BrokenAnswer) as refusal:
        read_answer(answer)
    assert SECRET not in str(refusal.value)
    assert str(refusal.value)


@given(data=st.data())
def test_whatever_comes_is_an_answer_or_broken(data: st.DataObject) -> None:
    whole = message(text("Hi"), tool_use("c1"), stop_reason="tool_use")
    at: Any = whole
    while True:
        key = data.draw(st.sampled_from(list(at) if isinstance(at, dict) else range(len(at))))
        if not isinstance(at[key], dict | list) or not at[key] or data.draw(st.booleans()):
            break
        at[key] = at = at[key].copy()
    at[key] = data.draw(json_values)
    try:
        answer = read_answer(json.dumps(whole).encode())
    except BrokenAnswer:
        return
    assert answer.fragment is None or json.loads(answer.fragment)["content"] == whole["content"]


# What a broken answer cost -------------------------------------------------------------------------------------------


def broken(raw: bytes) -> BrokenAnswer:
    with pytest.raises(BrokenAnswer) as caught:
        read_answer(raw)
    return caught.value


USED = Billed(
    model="claude-sonnet-5-5",
    usage=Usage(input=12, cache_read=50_000, cache_write=3_000, output=400),
    cost_nanousd=16_524_000,
)


@pytest.mark.parametrize(
    "fields",
    [
        {"content": None},
        {"content": ["words"]},
        {"content": [tool_use("c1"), tool_use("c1")]},
        {"content": [text("half \ud800")]},
        {"stop_reason": 7},
        {"type": "completion"},
    ],
)
def test_an_answer_that_cannot_be_used_tells_what_it_cost(fields: dict[str, Any]) -> None:
    assert broken(json.dumps(message() | fields).encode()).billed == USED


def test_an_answer_that_breaks_off_after_its_usage_tells_what_it_cost() -> None:
    members = {"usage": message()["usage"], **{name: value for name, value in message().items() if name != "usage"}}
    whole = json.dumps(members)
    at = whole.index('"content"')
    assert broken(whole[: at + 15].encode()).billed == USED
    assert broken(whole[:at].encode() + b"\xff\xfe").billed == USED
    assert broken(whole[:20].encode()).billed is None


@pytest.mark.parametrize(
    "fields",
    [
        {"usage": None},
        {"usage": {"input_tokens": 1}},
        {"usage": {"input_tokens": 1, "output_tokens": -1}},
        {"usage": {"input_tokens": 1, "output_tokens": 1, "iterations": [3]}},
        {"model": None, "content": None},
    ],
)
def test_a_bill_that_cannot_be_read_is_none(fields: dict[str, Any]) -> None:
    assert broken(json.dumps(message() | fields).encode()).billed is None


@pytest.mark.parametrize("raw", [b"", b"[]", b"7", b"<html>", b"{" * 100_000, b'{"usage":' * 100_000, b'{"a" 1}'])
def test_what_is_no_object_has_no_bill(raw: bytes) -> None:
    assert broken(raw).billed is None
