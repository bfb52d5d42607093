"""The rules of a transcript that can be sent, each broken by hand; and what makes messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.wire import text, thinking, tool_use

from paceline.core.errors import InvalidTranscript
from paceline.core.ids import CallId
from paceline.core.transcript import (
    Fragment,
    assistant_content,
    check_next,
    check_sendable,
    check_whole,
    dump,
    result_block,
    results_message,
    text_of,
    user_blocks,
    user_text,
)

QUESTION = user_text("Who is on call?")


def assistant(*blocks: dict[str, Any]) -> Fragment:
    return assistant_content(json.dumps(blocks).encode())


def result(call: str, content: object = "Ada") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": content}


ASKED = assistant(text("I look."), tool_use("c1"), tool_use("c2"))
ANSWERED = user_blocks([result("c1"), result("c2")])
SERVER_CALL = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}

LEGAL = {
    "a question": [QUESTION],
    "an answer and more": [QUESTION, assistant(text("Ada.")), user_text("And tomorrow?")],
    "calls and their results": [QUESTION, ASKED, ANSWERED],
    "text after the results": [QUESTION, ASKED, user_blocks([result("c1"), result("c2"), text("Quickly.")])],
    "two users in a row": [QUESTION, ASKED, ANSWERED, user_text("Go on.")],
    "thinking first": [QUESTION, assistant(thinking(), tool_use("c1")), user_blocks([result("c1")])],
    "a pause": [QUESTION, assistant(text("Searching."), SERVER_CALL)],
    "a pause and what came then": [QUESTION, assistant(SERVER_CALL), assistant(text("Ada.")), user_text("Thanks.")],
}


@pytest.mark.parametrize("fragments", LEGAL.values(), ids=LEGAL)
def test_what_the_api_accepts_can_be_sent(fragments: list[Fragment]) -> None:
    check_whole(fragments)
    check_sendable(fragments)


ILLEGAL = {
    "a call without its result": (ASKED, user_blocks([result("c1")])),
    "results out of order": (ASKED, user_blocks([result("c2"), result("c1")])),
    "a result twice": (ASKED, user_blocks([result("c1"), result("c1"), result("c2")])),
    "a result that nobody asked for": (ASKED, user_blocks([result("c1"), result("c2"), result("c3")])),
    "a result after nothing": (QUESTION, user_blocks([result("c1")])),
    "a result at the beginning": (None, user_blocks([result("c1")])),
    "text before the results": (ASKED, user_blocks([text("Here:"), result("c1"), result("c2")])),
    "text between the results": (ASKED, user_blocks([result("c1"), text("and"), result("c2")])),
    "calls not answered": (ASKED, user_text("Never mind.")),
    "calls passed over": (ASKED, assistant(text("Never mind."))),
    "an assistant first": (None, assistant(text("Hello."))),
    "text after a call": (QUESTION, assistant(tool_use("c1"), text("Done."))),
    "a server's result after a call": (QUESTION, assistant(tool_use("c1"), {"type": "web_search_tool_result"})),
    "a result by the assistant": (QUESTION, assistant(result("c1"))),
    "a call by the user": (QUESTION, user_blocks([text("Hi"), tool_use("c1")])),
    "an id twice": (QUESTION, assistant(tool_use("c1"), tool_use("c1"))),
    "an id with a dot": (QUESTION, assistant(tool_use("c.1"))),
    "an id that is no text": (QUESTION, assistant(tool_use("c1") | {"id": 7})),
    "an empty id": (QUESTION, assistant(tool_use(""))),
    "an input that is no object": (QUESTION, assistant(tool_use("c1") | {"input": "q"})),
    "no content": (QUESTION, assistant()),
    "content that is a text": (QUESTION, Fragment(b'{"role":"user","content":"Hi"}')),
    "an empty text": (QUESTION, user_text("")),
    "a blank text": (QUESTION, assistant(text(" \n\t"))),
    "another role": (QUESTION, Fragment(dump({"role": "tool", "content": [text("Hi")]}))),
}


@pytest.mark.parametrize(("previous", "following"), ILLEGAL.values(), ids=ILLEGAL)
def test_what_the_api_refuses_is_refused_before(previous: Fragment | None, following: Fragment) -> None:
    with pytest.raises(InvalidTranscript):
        check_next(previous, following)
    before = [] if previous is None else [QUESTION, previous] if previous != QUESTION else [QUESTION]
    with pytest.raises(InvalidTranscript):
        check_whole([*before, following])
    with pytest.raises(InvalidTranscript):
        check_sendable([*before, following])


def test_a_call_id_is_used_once_in_a_whole_transcript() -> None:
    first = [QUESTION, assistant(tool_use("c1")), user_blocks([result("c1")])]
    check_whole([*first, assistant(tool_use("c2")), user_blocks([result("c2")])])
    with pytest.raises(InvalidTranscript, match="twice"):
        check_whole([*first, assistant(tool_use("c1")), user_blocks([result("c1")])])


@pytest.mark.parametrize(
    ("fragments", "why"),
    [
        ([], "nothing to send"),
        ([QUESTION, assistant(text("Ada."))], "ends with an assistant message"),
        ([QUESTION, ASKED], "ends with an assistant message"),
        ([QUESTION, assistant(SERVER_CALL, tool_use("c1"))], "ends with an assistant message"),
    ],
)
def test_a_transcript_that_waits_for_us_is_not_sent(fragments: list[Fragment], why: str) -> None:
    with pytest.raises(InvalidTranscript, match=why):
        check_sendable(fragments)


# Making messages -----------------------------------------------------------------------------------------------------


@given(st.permutations(["z", "a", "m", "b"]))
def test_results_stand_in_the_order_of_the_calls_whatever_order_they_came_in(came: list[str]) -> None:
    calls = [CallId(call) for call in ("z", "a", "m", "b")]
    blocks = {CallId(call): result_block(CallId(call), call.upper(), is_error=False) for call in came}
    message = results_message(calls, blocks)
    check_next(assistant(*map(tool_use, calls)), message)
    assert [block["content"] for block in json.loads(message)["content"]] == ["Z", "A", "M", "B"]


def test_a_result_keeps_its_bytes() -> None:
    odd = b'{ "type":"tool_result","tool_use_id":"c1","content":"\\u00e9" }'
    assert results_message([CallId("c1")], {CallId("c1"): odd}) == b'{"role":"user","content":[' + odd + b"]}"


def test_a_turn_with_a_result_missing_names_the_call() -> None:
    with pytest.raises(InvalidTranscript, match="no result for c2"):
        results_message([CallId("c1"), CallId("c2")], {CallId("c1"): b"{}"})


def test_an_error_says_so_and_a_result_does_not() -> None:
    assert json.loads(result_block(CallId("c1"), "no such page", is_error=True)) == {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": "no such page",
        "is_error": True,
    }
    assert "is_error" not in json.loads(result_block(CallId("c1"), [text("Ada")], is_error=False))


@pytest.mark.parametrize(
    ("had", "sent"),
    [
        ("Ada ☃ 😀", "Ada ☃ 😀"),
        ("half \ud83d of one", "half \ufffd of one"),
        ("\udc00", "\ufffd"),
        ("\ud83d\ude00 in two halves", "😀 in two halves"),
        ("ends \ud83d", "ends \ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd😀"),
    ],
)
def test_each_half_of_a_character_becomes_one_replacement_character(had: str, sent: str) -> None:
    assert json.loads(dump({"text": had})) == {"text": sent}


@given(st.text(st.characters()))
def test_every_text_can_be_sent(anything: str) -> None:
    sent = json.loads(user_text(anything).decode())["content"][0]["text"]
    assert len(sent) <= len(anything)
    assert sent.encode().decode() == sent


def test_all_text_of_a_message_is_read_and_nothing_else() -> None:
    message = json.loads(assistant(thinking(), text("Ada "), tool_use("c1"), text("Lovelace")))
    assert text_of(message) == "Ada Lovelace"
