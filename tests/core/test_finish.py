"""Ending by the `finish` tool: what fits is the output, what does not is sent back, words are reminded once."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.wire import body, text, tool_use

from paceline.core.agent import Agent, Limits
from paceline.core.answer import read_answer
from paceline.core.endings import StopReason
from paceline.core.finish import NOT_RUN, REMINDER, misfits, schema_problem
from paceline.core.ids import AgentDigest, CallId, RunId
from paceline.core.lifecycle import State
from paceline.core.run import Run, Streaks
from paceline.core.step import Finish, GoOn, ModelAnswered, OpenCalls, Step, next_step
from paceline.core.transcript import check_whole, user_text

SCHEMA = {"type": "object", "properties": {"rotation": {"type": "string"}}, "required": ["rotation"]}
AGENT = Agent(name="a", model="claude-sonnet-5-5", finish=SCHEMA)
RUN = Run(run_id=RunId("a-1"), row_id="r", agent=AgentDigest("5f0c"), state=State.IN_TURN, turn=2, fence=3)


def after(
    *blocks: dict[str, object], stop_reason: str = "tool_use", streaks: Streaks | None = None, agent: Agent = AGENT
) -> Step:
    answer = read_answer(body(*blocks, stop_reason=stop_reason))
    return next_step(agent, replace(RUN, streaks=streaks or Streaks()), ModelAnswered(answer=answer))


def test_what_fits_the_schema_is_the_output_and_leaves_a_transcript_that_can_be_sent() -> None:
    step = after(text("Done."), tool_use("s1"), tool_use("f1", "finish", rotation="web"), tool_use("s2"))
    assert isinstance(step, Finish)
    assert (step.outcome.reason, step.outcome.answer) == (StopReason.FINISH_TOOL, '{"rotation": "web"}')
    check_whole([user_text("Who?"), *step.append])
    results = json.loads(step.append[1])["content"]
    assert [result["content"] for result in results] == [NOT_RUN, "Accepted.", NOT_RUN]


def test_what_does_not_fit_is_sent_back_with_what_is_wrong_and_nothing_beside_it_runs() -> None:
    step = after(tool_use("f1", "finish", rotation=3), tool_use("s1"))
    assert isinstance(step, OpenCalls)
    assert step.answered[CallId("s1")] == NOT_RUN
    assert "at $.rotation: 3 is not of type 'string'" in step.answered[CallId("f1")]


def test_a_model_that_never_hands_in_what_fits_is_stopped_and_no_content_is_told() -> None:
    step = after(tool_use("f1", "finish", rotation=3), streaks=Streaks(error_turns=2))
    assert isinstance(step, Finish)
    assert (step.outcome.reason, step.append) == (StopReason.INVALID_OUTPUT, ())
    assert "3" not in step.outcome.message
    patient = replace(AGENT, limits=Limits(error_turns=None))
    assert isinstance(after(tool_use("f1", "finish"), streaks=Streaks(error_turns=9), agent=patient), OpenCalls)


@pytest.mark.parametrize("stop_reason", ["end_turn", "stop_sequence"])
def test_words_are_reminded_of_finish_once_and_then_stop_the_run(stop_reason: str) -> None:
    first = after(text("It is web."), stop_reason=stop_reason)
    assert isinstance(first, GoOn)
    assert first.append[1] == user_text(REMINDER)
    assert first.streaks == Streaks(reminders=1)
    second = after(text("It is web."), stop_reason=stop_reason, streaks=first.streaks)
    assert isinstance(second, Finish)
    assert (second.outcome.reason, second.outcome.answer) == (StopReason.INVALID_OUTPUT, None)


def test_without_a_finish_schema_finish_is_a_tool_like_any_other() -> None:
    step = after(tool_use("f1", "finish", rotation=3), agent=replace(AGENT, finish=None))
    assert isinstance(step, OpenCalls)
    assert step.answered == {}


def test_finish_is_the_last_of_the_tools_and_part_of_what_is_frozen() -> None:
    head = json.loads(AGENT.head + b"]}")
    assert [(tool["name"], tool["input_schema"]) for tool in head["tools"]] == [("finish", SCHEMA)]
    assert head["tools"][-1]["cache_control"] == {"type": "ephemeral"}
    assert Agent.thaw(AGENT.freeze()) == AGENT
    assert AGENT.digest != replace(AGENT, finish=None).digest
    assert list(AGENT.tool_names) == ["finish"]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "object"}, ""),
        ({"properties": {}}, "expected a JSON Schema with `type: object` at its top"),
        ({"type": "object", "oneOf": []}, "the API takes none of anyOf, oneOf, allOf at the top of a schema"),
        ({"type": "object", "properties": 3}, "not JSON Schema: at $.properties: 3 is not of type 'object'"),
    ],
)
def test_a_schema_that_the_api_would_refuse_is_named(schema: dict[str, object], problem: str) -> None:
    assert schema_problem(schema).startswith(problem)
    assert bool(schema_problem(schema)) is bool(problem)


def test_only_a_few_short_points_are_told_of_a_huge_misfit() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "string"}}
    told = misfits(schema, json.dumps({f"k{n}": list(range(1000)) for n in range(50)}))
    assert len(told) == 5
    assert max(map(len, told)) <= 300
