"""The official client drives a whole agent loop against a playbook."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx2
import pytest

from paceline.sim import Answer, Call, Playbook, PlaybookError, Request, Simulator

ONCALL = r"""
rules:
  - name: look for the service
    when: {turn: 1, first_user: 'owns (?P<service>\w+)\?'}
    answer:
      text: Looking.
      calls: [{tool: search_wiki, input: {query: "{service} on-call"}}]
  - name: read the page found
    when:
      first_user: 'owns (?P<service>\w+)\?'
      tool_results: {tool: search_wiki, text: 'path: (?P<path>\S+)'}
    answer:
      calls:
        - {tool: get_page, input: {path: "{path}"}}
        - {tool: get_page, input: {path: "{path}/rotation"}}
  - name: say it
    when: {tool_results: {tool: get_page, text: 'rotation: (?P<rotation>\w+)'}}
    answer: {text: "It is {rotation}."}
"""
TOOLS: list[Any] = [
    {"name": "search_wiki", "input_schema": {"type": "object"}},
    {"name": "get_page", "input_schema": {"type": "object"}},
]


def client_of(simulator: Simulator) -> anthropic.Anthropic:
    timeout = httpx2.Timeout(10)
    return anthropic.Anthropic(api_key="key", base_url=simulator.url, max_retries=0, timeout=timeout)


def run_tool(name: str, given: dict[str, Any]) -> str:
    if name == "search_wiki":
        return "path: teams/payments"
    return "rotation: falcon" if given["path"].endswith("/rotation") else "owned by payments"


def play(simulator: Simulator, question: str, run: str) -> str:
    messages: list[Any] = [{"role": "user", "content": question}]
    with client_of(simulator) as client:
        while True:
            message = client.messages.create(
                model="claude-sonnet-5-5",
                max_tokens=1024,
                messages=messages,
                tools=TOOLS,
                metadata={"user_id": run},
            )
            messages.append({"role": "assistant", "content": [block.to_dict() for block in message.content]})
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                return "".join(block.text for block in message.content if block.type == "text")
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": run_tool(call.name, call.input)}
                for call in calls
            ]
            messages.append({"role": "user", "content": results})


def test_a_playbook_leads_an_agent_through_search_and_pages_to_its_answer() -> None:
    with Simulator(Playbook.parse(ONCALL)) as simulator:
        assert play(simulator, "Who owns checkout?", "run-1") == "It is falcon."
    first, second, third = simulator.journal.entries
    assert [entry.turn for entry in simulator.journal] == [1, 2, 3]
    assert second.tool_result_ids == first.tool_use_ids
    assert third.tool_result_ids == second.tool_use_ids
    assert third.stop_reason == "end_turn"
    assert simulator.journal.rejected() == []
    assert simulator.journal.grows_by_appending("run-1")


def test_equal_conversations_get_equal_answers() -> None:
    with Simulator(Playbook.parse(ONCALL)) as simulator:
        play(simulator, "Who owns checkout?", "run-1")
        play(simulator, "Who owns checkout?", "run-2")
    runs = simulator.journal.by_run()
    ids = [[entry.tool_use_ids for entry in runs[run]] for run in ("run-1", "run-2")]
    assert ids[0] == ids[1]


def test_a_function_can_be_the_playbook() -> None:
    def answer(request: Request) -> Answer:
        if request.turn == 1:
            return Answer(calls=[Call(tool="get_page", input={"path": "a/rotation"})])
        return Answer(text=f"{request.tool_results[0].tool} said {request.last_text}")

    with Simulator(answer) as simulator:
        assert play(simulator, "Who?", "run") == "get_page said rotation: falcon"


def test_a_request_without_a_rule_is_refused_in_plain_words() -> None:
    with Simulator(Playbook.parse(ONCALL)) as simulator, pytest.raises(anthropic.BadRequestError) as caught:
        play(simulator, "Hello", "run")
    assert "no rule of the playbook matches this request (turn 1" in caught.value.message
    assert simulator.journal.rejected()[0].rule == 0


def test_mistakes_in_a_playbook_name_the_rule_and_the_fix() -> None:
    text = """
rules:
  - name: first
    when: {trun: 1, last: '('}
    answer: {text: "{who} is it"}
  - answer: {text: "{who} is it"}
"""
    with pytest.raises(PlaybookError) as caught:
        Playbook.parse(text, name="p.yaml")
    assert "rule 1 (first): when.trun: unknown field; did you mean `turn`?" in str(caught.value)
    assert "rule 1 (first): when.last: not a regular expression" in str(caught.value)
    assert "rule 2: the answer uses {who}, which no group before it fills" in str(caught.value)
