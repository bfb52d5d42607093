"""What the model says, cut to size, and what a playbook sees of a request."""

from __future__ import annotations

from typing import Any

import pytest
from support.sim_wire import HELLO, assistant, body, call, post, result, text, user

from paceline.sim import Answer, Call, Playbook, PlaybookError, Request, Simulator


def ask(playbook: Any, *messages: object, **fields: object) -> dict[str, Any]:
    with Simulator(playbook) as simulator:
        reply = post(simulator.url, body(*messages, **fields))
    assert reply.status == 200, reply.text
    answer: dict[str, Any] = reply.body
    return answer


def test_a_text_longer_than_max_tokens_is_cut_and_says_so() -> None:
    message = ask(lambda request: Answer(text="x" * 100), max_tokens=10)
    assert message["content"] == [{"type": "text", "text": "x" * 35}]
    assert message["stop_reason"] == "max_tokens"
    assert message["usage"]["output_tokens"] == 10


def test_a_call_cut_at_max_tokens_has_lost_its_input() -> None:
    calls = [Call(tool="look", input={"path": "p" * 100}), Call(tool="look")]
    message = ask(lambda request: Answer(text="so", calls=calls), max_tokens=10)
    assert [block.get("input") for block in message["content"]] == [None, {}]
    assert message["stop_reason"] == "max_tokens"


def test_an_answer_declared_too_long_ends_in_the_call_it_was_writing() -> None:
    message = ask(lambda request: Answer(calls=[Call(tool="look", input={"a": 1})], output_tokens=200))
    assert message["content"][0]["input"] == {}
    assert (message["stop_reason"], message["usage"]["output_tokens"]) == ("max_tokens", 100)


def test_no_tokens_at_all_warm_the_cache_and_say_nothing() -> None:
    message = ask(lambda request: Answer(text="hi"), max_tokens=0)
    assert (message["content"], message["stop_reason"], message["usage"]["output_tokens"]) == ([], "max_tokens", 0)


def test_output_is_counted_at_three_and_a_half_characters_a_token() -> None:
    message = ask(lambda request: Answer(text="x" * 36))
    assert message["usage"]["output_tokens"] == 11


def test_a_playbook_sees_turn_run_texts_and_results() -> None:
    seen: list[Request] = []

    def answer(request: Request) -> Answer:
        seen.append(request)
        return Answer(text="hi")

    results = [result("a", [text("seen"), text("twice")]), result("b", "gone", is_error=True)]
    ask(
        answer,
        HELLO,
        assistant(text("looking"), call("a"), call("b", tool="listen")),
        user(*results, text("go on")),
        metadata={"user_id": "run-9"},
    )
    (request,) = seen
    assert (request.turn, request.run, request.first_user_text) == (2, "run-9", "hello")
    assert request.last_text == "seen\ntwice\ngone\ngo on"
    assert [(each.tool, each.text, each.is_error) for each in request.tool_results] == [
        ("look", "seen\ntwice", False),
        ("listen", "gone", True),
    ]
    assert request.messages[0] == HELLO


def test_results_split_over_two_messages_are_seen_together() -> None:
    seen: list[str] = []

    def answer(request: Request) -> Answer:
        seen.extend(each.call_id for each in request.tool_results)
        return Answer(text="hi")

    ask(answer, HELLO, assistant(call("a"), call("b")), user(result("a")), user(result("b")))
    assert seen == ["a", "b"]


def test_rules_choose_by_turn_model_error_and_number_of_results() -> None:
    playbook = Playbook.parse(r"""
rules:
  - when: {turn: {from: 2, to: 2}, tool_results: {is_error: true, text: "no (?P<what>\\w+)"}}
    answer: {text: "There is no {what}; {{what}} else?"}
  - when: {turn: {from: 2}, tool_results: [{tool: look, text: "(?P<a>\\d)"}, {tool: listen, text: "(?P<b>\\d)"}]}
    answer: {text: "{a} and {b} on turn {turn}"}
  - when: {model: haiku}
    answer: {text: small}
  - answer: {calls: [{tool: look, times: 3, input: {nth: "{i}", list: ["{i}", 5]}}]}
""")
    asked = (HELLO, assistant(call("a"), call("b", tool="listen")))
    said = ask(playbook, *asked, user(result("a", "no page", is_error=True), result("b")))
    assert said["content"][0]["text"] == "There is no page; {what} else?"
    said = ask(playbook, *asked, user(result("a", "1"), result("b", "2")))
    assert said["content"][0]["text"] == "1 and 2 on turn 2"
    assert ask(playbook, model="claude-haiku-5-5")["content"][0]["text"] == "small"
    inputs = [block["input"] for block in ask(playbook)["content"]]
    assert inputs == [{"nth": number, "list": [number, 5]} for number in "123"]


def test_an_expression_may_use_what_an_earlier_one_captured() -> None:
    playbook = Playbook.parse(r"""
rules:
  - when:
      first_user: "find (?P<what>\\S+)"
      earlier: "page (?P<page>\\d{1,3}):"
      last: "(?m)^{what}: (?P<value>.+)$"
    answer: {text: "page {page} says {value}"}
  - answer: {text: nothing}
""")
    asked = (user(text("find a.b")), assistant(call("a")))
    later = (user(result("a", "page 17: x")), assistant(call("b")))
    assert (
        ask(playbook, *asked, *later, user(result("b", "aXb: no\na.b: yes")))["content"][0]["text"]
        == "page 17 says yes"
    )
    assert ask(playbook, *asked, *later, user(result("b", "aXb: no")))["content"][0]["text"] == "nothing"


def test_an_expression_cannot_use_what_a_later_one_captures() -> None:
    with pytest.raises(PlaybookError, match=r"rule 1: when: an expression uses \{page\}, which no group"):
        Playbook.parse('rules: [{when: {first_user: "{page}", last: "(?P<page>.)"}, answer: {}}]')


def test_a_playbook_function_that_fails_is_told_to_its_author() -> None:
    def answer(request: Request) -> Answer:
        raise KeyError("service")

    with Simulator(answer) as simulator:
        reply = post(simulator.url, body())
    assert reply.status == 500
    assert "the playbook raised KeyError('service')" in reply.text
    assert simulator.journal.entries[0].reason == "the playbook raised KeyError"
