"""Summaries that the API makes itself: kept byte for byte, sent back, counted, and gone on from."""

from __future__ import annotations

import json
from typing import Any

import pytest
from core.test_cache_breakpoint import QUESTION, marked
from core.test_cache_breakpoint import turn as blocks_of_turn
from support.wire import USAGE, body, text

from paceline.core.agent import Agent
from paceline.core.answer import Answer, read_answer
from paceline.core.errors import InvalidTranscript
from paceline.core.ids import AgentDigest, RunId
from paceline.core.lifecycle import State
from paceline.core.next_call import next_call
from paceline.core.request_fields import RequestFields, broken_rules
from paceline.core.run import Run, Streaks
from paceline.core.step import Finish, GoOn, Hold, ModelAnswered, next_step, said_so_far
from paceline.core.transcript import (
    GO_ON_AFTER_CUT,
    Fragment,
    assistant_content,
    check_sendable,
    check_whole,
    user_text,
)
from paceline.core.usage import Usage

AGENT = Agent(name="a", model="claude-opus-5-5")
RUN = Run(run_id=RunId("a-1"), row_id="r", agent=AgentDigest("5f"), state=State.IN_TURN, turn=2, fence=1, attempts=1)
SUMMARY: dict[str, Any] = {
    "type": "compaction",
    "content": "They look for who is on call.",
    "encrypted_content": "b3BhcXVl",
    "signature": "c2lnbmVk",
}
SUMMED_UP = assistant_content(json.dumps([SUMMARY]).encode())
COUNTED = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
COMPACTION = {"type": "compaction", "input_tokens": 150_000, "output_tokens": 900, **COUNTED}
PAUSED = {**USAGE, **COUNTED, "input_tokens": 0, "output_tokens": 0, "iterations": [COMPACTION]}


def turn(calls: int, number: int = 1) -> list[Fragment]:
    return [Fragment(message) for message in blocks_of_turn(calls, number)]


def paused(usage: Any = PAUSED) -> Answer:
    return read_answer(body(SUMMARY, stop_reason="compaction", usage=usage))


def test_a_pause_after_a_compaction_is_sent_back_as_it_is_and_gone_on_from() -> None:
    step = next_step(AGENT, RUN, ModelAnswered(answer=paused()))
    assert step == GoOn(append=(SUMMED_UP,), advance=True, streaks=Streaks(pauses=1))
    check_whole([QUESTION, *turn(1), SUMMED_UP, *turn(1, 2)])
    check_sendable([QUESTION, SUMMED_UP])


def test_pauses_without_end_or_without_a_summary_are_not_gone_on_from() -> None:
    over = next_step(AGENT, Run(**{**_fields(RUN), "streaks": Streaks(pauses=10)}), ModelAnswered(answer=paused()))
    assert isinstance(over, Finish)
    odd = read_answer(body(text("So far."), stop_reason="compaction"))
    assert isinstance(next_step(AGENT, RUN, ModelAnswered(answer=odd)), Hold)
    with pytest.raises(InvalidTranscript):
        check_sendable([user_text("Who?"), assistant_content(b'[{"type":"text","text":"a \\"compaction\\""}]')])


def _fields(run: Run) -> dict[str, Any]:
    return {name: getattr(run, name) for name in run.__slots__}


def test_an_answer_in_pieces_is_given_whole_across_a_summary() -> None:
    pieces = [user_text("Who?"), assistant_content(b'[{"type":"text","text":"Ada "}]'), user_text(GO_ON_AFTER_CUT)]
    assert said_so_far([*pieces, SUMMED_UP]) == said_so_far(pieces) == "Ada "


def test_what_a_summary_used_counts_and_is_no_part_of_the_conversation() -> None:
    assert (paused().usage, paused().context_tokens) == (Usage(input=150_000, output=900), 0)
    message = {"type": "message", "input_tokens": 1_200, "output_tokens": 300, **COUNTED}
    answered = read_answer(
        body(SUMMARY, text("Ada."), usage={**USAGE, **message, "type": None, "iterations": [COMPACTION, message]})
    )
    assert answered.usage == Usage(input=151_200, output=1_200)
    assert answered.context_tokens == 1_500
    assert (answered.text, answered.fragment) == (
        "Ada.",
        assistant_content(json.dumps([SUMMARY, text("Ada.")]).encode()),
    )


def test_of_several_steps_the_last_one_tells_how_long_the_conversation_is() -> None:
    steps = [{"type": "message", "input_tokens": tokens, "output_tokens": 10, **COUNTED} for tokens in (100, 120)]
    answered = read_answer(body(text("Ada."), usage={"input_tokens": 220, "output_tokens": 20, "iterations": steps}))
    assert (answered.usage.total, answered.context_tokens) == (240, 130)


def test_what_the_api_cleared_is_told_by_the_answer() -> None:
    edits = [{"type": "clear_tool_uses_20250919", "cleared_input_tokens": 5_000}, {"cleared_input_tokens": None}, {}]
    told = read_answer(body(text("Ada."), context_management={"applied_edits": edits}))
    assert told.cleared_tokens == 5_000
    assert read_answer(body(text("Ada."), context_management=None)).cleared_tokens == 0


def test_after_a_summary_only_what_stands_behind_it_is_counted() -> None:
    long_ago = [user_text("x" * 300_000), *turn(1)]
    known = next_call(AGENT, RUN, [*long_ago, SUMMED_UP]).at_worst.tokens
    assert known == (len(AGENT.head) + len(SUMMED_UP)) // 3 + AGENT.max_tokens


def test_no_breakpoint_stands_before_a_summary() -> None:
    assert marked([QUESTION, *turn(12)]) == [0]
    summed_up = assistant_content(json.dumps([SUMMARY, *json.loads(turn(12)[0])["content"]]).encode())
    assert marked([QUESTION, summed_up, turn(12)[1]]) == []


def test_an_agent_may_pause_after_a_compaction() -> None:
    edit = {"type": "compact_20260112", "pause_after_compaction": True}
    fields = RequestFields(body={"context_management": {"edits": [edit]}}, betas=("compact-2026-01-12",))
    assert list(broken_rules(fields, model=AGENT.model, max_tokens=4096)) == []
