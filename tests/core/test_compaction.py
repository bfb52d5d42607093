"""What is cleared from what is sent, when, and what it is worth; by values, and for any transcript."""

from __future__ import annotations

import doctest
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.wire import body, text

from paceline.core import compaction as module
from paceline.core.agent import Agent, Limits
from paceline.core.answer import read_answer
from paceline.core.compaction import (
    KEPT_RESULTS,
    Compaction,
    clear_results,
    compacted,
    compaction_due,
    may_clear,
    sent_fragments,
)
from paceline.core.endings import StopReason
from paceline.core.ids import AgentDigest, CallId, RunId
from paceline.core.lifecycle import State
from paceline.core.next_call import NextCall, next_call
from paceline.core.request_fields import RequestFields
from paceline.core.run import Overflow, Run, Spent, Streaks
from paceline.core.step import (
    CallModel,
    FailureKind,
    Finish,
    GoOn,
    ModelAnswered,
    ModelCallFailed,
    TurnBegun,
    next_step,
)
from paceline.core.tool_spec import ToolSpec
from paceline.core.transcript import (
    Fragment,
    assistant_content,
    check_sendable,
    check_whole,
    result_block,
    result_text,
    results_message,
    user_blocks,
    user_text,
    weight,
)
from paceline.core.usage import Usage

SEARCH = ToolSpec(name="search", path="t:search", description="Search.", input_schema={"type": "object"})
READ = replace(SEARCH, name="read_result", path="paceline.tools:read_result")
AGENT = Agent(
    name="a", model="claude-haiku-4-5", tools=(SEARCH, READ), limits=Limits(turns=None, tokens=None, usd=None)
)
"""Sees 200,000 tokens, for $1 in, $1.25 written to the cache and $0.10 read from it."""
WINDOW = 200_000
RUN = Run(run_id=RunId("a-1"), row_id="r", agent=AgentDigest("5f"), state=State.IN_TURN, turn=31, fence=1, attempts=1)
SAYS_NO_ROOM = read_answer(body(text("Half of"), stop_reason="model_context_window_exceeded"))
PAGE = "What there is to know of it. " * 180
"""Five kilobytes."""
NOTE = json.dumps('[This result was cleared to make room: read_result(call_id="c0_0") returns it.]')[1:-1]


def thinking(text: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": signature}


def asked(*ids: str, before: Sequence[dict[str, Any]] = ()) -> Fragment:
    calls = [{"type": "tool_use", "id": id_, "name": "search", "input": {"q": id_}} for id_ in ids]
    return assistant_content(json.dumps([*before, *calls], ensure_ascii=False).encode())


def answered(*ids: str, content: object = PAGE, is_error: bool = False) -> Fragment:
    calls = [CallId(id_) for id_ in ids]
    return results_message(calls, {call: result_block(call, content, is_error=is_error) for call in calls})


def conversation(turns: int, calls: int = 1, content: object = PAGE) -> list[Fragment]:
    """A question, and so many turns of so many calls, each answered with a page."""
    fragments = [user_text("Who is on call?")]
    for turn in range(turns):
        ids = [f"c{turn}_{place}" for place in range(calls)]
        fragments += [asked(*ids), answered(*ids, content=content)]
    return fragments


def results_of(fragments: Sequence[Fragment]) -> list[object]:
    messages = [json.loads(fragment) for fragment in fragments]
    return [block["content"] for message in messages for block in message["content"] if block["type"] == "tool_result"]


def due(fragments: Sequence[Fragment], *, tokens: int, agent: Agent = AGENT, run: Run = RUN) -> Compaction | None:
    return compaction_due(agent, replace(run, context_tokens=tokens), fragments, tokens=tokens, max_tokens=4096)


def sure(compaction: Compaction | None) -> Compaction:
    assert compaction is not None
    return compaction


# What is sent --------------------------------------------------------------------------------------------------------


def test_the_worked_examples_are_true() -> None:
    result = doctest.testmod(module)
    assert (result.attempted, result.failed) == (7, 0)


def test_a_cleared_result_says_how_to_get_it_back_and_can_be_got_back() -> None:
    fragments = [user_text("Who?"), asked("c1", "c2"), answered("c1", "c2")]
    sent = sent_fragments(AGENT, fragments, 3)
    assert results_of(sent) == [
        f'[This result was cleared to make room: read_result(call_id="{call}") returns it.]' for call in ("c1", "c2")
    ]
    assert result_text(fragments, CallId("c2")) == PAGE
    assert result_text(fragments, CallId("c3")) is None
    without = replace(AGENT, tools=(SEARCH,))
    assert results_of(sent_fragments(without, fragments, 3))[0] == "[This result was cleared to make room.]"


def test_what_is_shorter_than_the_note_stays() -> None:
    short = answered("c1", content="Ada")
    assert clear_results(short, readable=True) is short


def test_an_error_stays_an_error() -> None:
    cleared = json.loads(clear_results(answered("c1", is_error=True), readable=True))
    assert cleared["content"][0]["is_error"] is True
    assert PAGE not in str(cleared)


def test_what_is_no_result_is_never_touched() -> None:
    own = user_blocks([{"type": "text", "text": '"tool_result" is a word of ' + PAGE}])
    said = asked("c1", before=[thinking("", "sig==")])
    assert clear_results(own, readable=True) is own
    assert clear_results(said, readable=True) is said


def test_an_image_is_cleared_as_a_text_is() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 90_000}}
    message = answered("c1", content=[{"type": "text", "text": "A chart."}, image])
    assert len(clear_results(message, readable=True)) < 300
    assert result_text([message], CallId("c1")) == "A chart.\n\n(image)"
    assert weight(message) == len(message) - 75_000, "as much as an image can be worth, and no more"


# When ----------------------------------------------------------------------------------------------------------------


def test_nothing_is_due_below_the_mark() -> None:
    assert due(conversation(40), tokens=120_000) is None
    assert due(conversation(40), tokens=120_001) is not None


def test_both_numbers_of_a_decision_are_told() -> None:
    fragments = conversation(40)
    compaction = sure(due(fragments, tokens=125_000))
    assert (compaction.cleared, compaction.results, compaction.expected_turns) == (75, 37, 30)
    longer_ids = 27
    cleared_bytes = 37 * (len(PAGE) - len(NOTE)) - longer_ids
    assert compaction.cleared_tokens == cleared_bytes // 4, "four bytes a token, no more"
    saved = 30 * compaction.cleared_tokens * 100
    assert (compaction.worth.saved_nanousd, saved) == (saved, 142_587_000), "$0.10 a million, in each turn"
    head = len(AGENT.head) + weight(fragments[0]) + weight(fragments[1])
    kept = 125_000 * head // (len(AGENT.head) + sum(map(weight, fragments)))
    assert compaction.worth.rewrite_nanousd == (compaction.tokens_after - kept) * 1_250 == 96_511_250
    assert compaction.worth.pays


def test_the_latest_results_are_kept() -> None:
    fragments = conversation(40)
    compaction = sure(due(fragments, tokens=125_000))
    sent = results_of(sent_fragments(AGENT, fragments, compaction.cleared))
    assert [result == PAGE for result in sent] == [False] * 37 + [True] * KEPT_RESULTS
    many = conversation(5, calls=12)
    sent = results_of(sent_fragments(AGENT, many, sure(due(many, tokens=125_000)).cleared))
    assert [result == PAGE for result in sent] == [False] * 48 + [True] * 12, "what the model has not seen yet"


def test_a_compaction_that_does_not_pay_is_not_made() -> None:
    fragments = conversation(40)
    soon_over = replace(AGENT, limits=replace(AGENT.limits, turns=40))
    assert due(fragments, tokens=125_000, agent=soon_over) is None, "10 turns to go"
    assert due(fragments, tokens=125_000, agent=replace(soon_over, limits=replace(AGENT.limits, turns=60))) is not None


def test_tokens_that_are_left_bound_the_turns_that_are_expected() -> None:
    """At 125,000 tokens sent, of which 77,471 are left."""
    fragments, spent = conversation(40), Spent(usage=Usage(input=400_000))
    for left, turns in ((77_471 * 28, 28), (77_471 * 28 - 1, 27), (10**9, 30)):
        agent = replace(AGENT, limits=replace(AGENT.limits, tokens=400_000 + left))
        assert sure(due(fragments, tokens=125_000, agent=agent, run=replace(RUN, spent=spent))).expected_turns == turns
    poor = replace(AGENT, limits=replace(AGENT.limits, tokens=600_000))
    assert due(fragments, tokens=125_000, agent=poor, run=replace(RUN, spent=spent)) is None, "for two turns more"


def test_one_that_makes_little_room_is_not_made() -> None:
    fragments = conversation(12)
    assert due(fragments, tokens=125_000, run=replace(RUN, turn=10_000)) is None


def test_it_is_made_at_any_price_where_the_call_would_not_fit() -> None:
    dear = replace(AGENT, limits=replace(AGENT.limits, turns=31))
    fits = compaction_due(dear, RUN, conversation(12), tokens=WINDOW - 4096, max_tokens=4096)
    too_long = compaction_due(dear, RUN, conversation(12), tokens=WINDOW - 4095, max_tokens=4096)
    assert fits is None
    assert sure(too_long).worth.pays is False


def test_it_is_made_at_any_price_where_the_api_said_that_there_is_no_room() -> None:
    told = replace(RUN, streaks=Streaks(overflow=Overflow.TOLD))
    assert due(conversation(12), tokens=1_000, run=told) is not None
    assert due(conversation(2), tokens=1_000, run=told) is None, "there is nothing to clear"


def test_an_unknown_price_is_decided_by_the_usual_ratios_and_told_as_unknown() -> None:
    local = replace(AGENT, model="llama-12", compact_at=0.1)
    worth = sure(due(conversation(200), tokens=125_000, agent=local)).worth
    assert (worth.saved_nanousd, worth.rewrite_nanousd, worth.pays) == (None, None, True)


@pytest.mark.parametrize(
    ("model", "body", "may"),
    [
        ("claude-haiku-4-5", {}, True),
        ("claude-opus-4-8", {"thinking": {"type": "adaptive"}}, True),
        ("claude-sonnet-5-5", {}, False),
        ("claude-sonnet-5-5", {"thinking": {"type": "disabled"}}, True),
        ("claude-fable-5-2", {}, False),
        ("claude-fable-5", {}, True),
        (
            "claude-opus-5-5",
            {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}},
            True,
        ),
        ("claude-haiku-4-5", {"context_management": {"edits": []}}, False),
    ],
)
def test_nothing_is_edited_that_thinking_is_bound_to_or_that_the_api_edits(
    model: str, body: dict[str, Any], may: bool
) -> None:
    agent = replace(AGENT, model=model, passed_through=RequestFields(body=body))
    assert may_clear(agent) is may
    told = replace(RUN, streaks=Streaks(overflow=Overflow.TOLD))
    assert (due(conversation(40), tokens=125_000, agent=agent, run=told) is not None) is may
    assert not may_clear(replace(agent, compact_at=None))


# In the loop ---------------------------------------------------------------------------------------------------------


def begun(run: Run, fragments: Sequence[Fragment]) -> tuple[object, NextCall]:
    call = next_call(AGENT, run, fragments)
    return next_step(AGENT, run, TurnBegun(call=call, now_ms=0)), call


def overflowed(run: Run) -> object:
    answer = SAYS_NO_ROOM
    return next_step(AGENT, run, ModelAnswered(answer=answer))


def test_a_turn_begins_with_a_compaction_and_the_call() -> None:
    step, call = begun(replace(RUN, context_tokens=125_000), conversation(40))
    assert isinstance(step, CallModel)
    made, new_tokens = sure(call.compaction), len(conversation(40)[-1]) // 3
    assert (made.tokens_before, call.at_worst.tokens) == (125_000 + new_tokens, made.tokens_after + 4096)
    run = compacted(replace(RUN, context_tokens=125_000), made)
    assert (run.cleared, run.context_tokens) == (75, 77_471)
    assert begun(run, conversation(40))[1].compaction is None, "once is enough"


def test_the_window_is_a_limit_of_what_is_left_after_a_compaction() -> None:
    run = replace(RUN, context_tokens=WINDOW - 2_000)
    assert isinstance(begun(run, conversation(40))[0], CallModel)
    step, _ = begun(run, [*conversation(2), user_text("Go on.")])
    assert isinstance(step, Finish)
    assert step.outcome.reason is StopReason.CONTEXT_WINDOW
    assert step.outcome.message == (
        "the next call could take 203883 tokens, past the 200000 that claude-haiku-4-5 sees at once"
    )


def test_where_the_api_says_that_there_is_no_room_it_is_made_once() -> None:
    run = replace(RUN, context_tokens=1_000)
    again = overflowed(run)
    assert again == GoOn(append=(), advance=False, streaks=Streaks(overflow=Overflow.TOLD))
    told = replace(run, streaks=Streaks(overflow=Overflow.TOLD))
    step, call = begun(told, conversation(40))
    assert isinstance(step, CallModel)
    made = compacted(told, sure(call.compaction))
    assert isinstance(begun(made, conversation(40))[0], CallModel), "a call that failed is made again"
    for over in (overflowed(made), begun(told, conversation(2))[0]):
        assert isinstance(over, Finish)
        assert over.outcome.reason is StopReason.CONTEXT_WINDOW


def test_a_request_that_is_refused_as_too_long_is_made_again_with_room() -> None:
    refused = ModelCallFailed(kind=FailureKind.REFUSED, message="prompt is too long", chance=0.0, is_too_long=True)
    told = replace(RUN, streaks=Streaks(overflow=Overflow.TOLD))
    assert next_step(AGENT, RUN, refused) == GoOn(append=(), advance=False, streaks=told.streaks)
    made = replace(RUN, streaks=Streaks(overflow=Overflow.MADE_ROOM))
    for agent, run in ((AGENT, made), (replace(AGENT, compact_at=None), RUN)):
        over = next_step(agent, run, refused)
        assert isinstance(over, Finish)
        assert (over.outcome.reason, over.outcome.message) == (StopReason.CONTEXT_WINDOW, "prompt is too long")


# Stories -------------------------------------------------------------------------------------------------------------


def test_a_boundary_between_a_call_and_its_result_breaks_no_pair() -> None:
    """60 messages, of which the 20 last would begin with a result whose call is cut off."""
    fragments = [user_text("Go."), *conversation(29)[1:], asked("last"), answered("last")][:60]
    assert len(fragments) == 60
    assert json.loads(fragments[40])["content"][0]["type"] == "tool_result"
    told = replace(RUN, streaks=Streaks(overflow=Overflow.TOLD))
    for cleared in (40, 41, sure(due(fragments, tokens=150_000, run=told)).cleared):
        sent = sent_fragments(AGENT, fragments, cleared)
        check_whole(sent)
        assert len(sent) == 60


def test_signed_thinking_is_sent_byte_for_byte_after_a_compaction() -> None:
    """Two signed blocks around tool calls, one with an empty text and a signature, in a form that is not ours."""
    raw = (
        b'[ {"signature":"EqQBCg==", "thinking":"", "type":"thinking"},'
        b'{"type": "thinking","thinking":"\\u00e9 caf\xc3\xa9","signature":"x/+="}, '
        b'{"type":"tool_use","id":"c_1","name":"search","input":{"b":1.0, "a":[]}}]'
    )
    said = assistant_content(raw)
    fragments = [user_text("Who?"), said, answered("c_1"), *conversation(10)[1:]]
    told = replace(RUN, streaks=Streaks(overflow=Overflow.TOLD))
    sent = sent_fragments(AGENT, fragments, sure(due(fragments, tokens=50_000, run=told)).cleared)
    assert sent[1] == said
    assert raw in AGENT.request(sent, max_tokens=9, user_id="u")
    assert results_of(sent)[0] != PAGE


# Whatever the transcript ---------------------------------------------------------------------------------------------

contents: st.SearchStrategy[object] = st.one_of(
    st.text(max_size=200),
    st.just([]),
    st.lists(st.text(min_size=1, max_size=80).map(lambda said: {"type": "text", "text": said}), min_size=1, max_size=3),
)
turns = st.lists(
    st.tuples(st.lists(contents, min_size=1, max_size=4), st.booleans(), st.booleans()), min_size=1, max_size=12
)


def of_turns(drawn: Sequence[tuple[Sequence[object], bool, bool]]) -> list[Fragment]:
    fragments = [user_text("Who?")]
    for number, (results, thinks, cut) in enumerate(drawn):
        ids = [CallId(f"c{number}_{place}") for place in range(len(results))]
        blocks = {id_: result_block(id_, content, is_error=cut) for id_, content in zip(ids, results, strict=True)}
        before = [thinking("", f"sig{number}==")] if thinks else []
        fragments += [asked(*ids, before=before), results_message(ids, blocks)]
        if cut:
            fragments += [assistant_content(b'[{"type":"text","text":"I \xe2\x98\x83"}]'), user_text("Go on.")]
    return fragments


@settings(max_examples=150)
@given(drawn=turns, places=st.lists(st.integers(0, 50), max_size=5), readable=st.booleans())
def test_whatever_is_cleared_the_transcript_can_be_sent(drawn: Any, places: list[int], readable: bool) -> None:
    fragments = of_turns(drawn)
    agent = AGENT if readable else replace(AGENT, tools=())
    for cleared in places:
        sent = sent_fragments(agent, fragments, cleared)
        check_whole(sent)
        assert sent == sent_fragments(agent, fragments, cleared), "the same on every worker"
        assert sent[cleared:] == fragments[cleared:]
        assert sent_fragments(agent, sent, cleared) == sent, "cleared is cleared"
        for stored, now in zip(fragments, sent, strict=True):
            assert now == stored or (len(now) < len(stored) and stored.startswith(b'{"role":"user"'))


@settings(max_examples=100)
@given(drawn=turns, compact_at=st.sampled_from([0.0005, 0.002, 0.01]), ratio=st.integers(2, 6))
def test_between_two_compactions_what_is_sent_only_grows(drawn: Any, compact_at: float, ratio: int) -> None:
    fragments, run = of_turns(drawn), replace(RUN, turn=1)
    agent = replace(AGENT, compact_at=compact_at)
    before, cleared = b"", 0
    for length in range(1, len(fragments) + 1):
        if json.loads(fragments[length - 1])["role"] != "user":
            continue
        tokens = sum(map(len, sent_fragments(agent, fragments[:length], run.cleared))) // ratio
        run = replace(run, turn=run.turn + 1, context_tokens=tokens)
        made = compaction_due(agent, run, fragments[:length], tokens=tokens, max_tokens=100)
        run = compacted(run, made) if made else run
        sent = sent_fragments(agent, fragments[:length], run.cleared)
        check_sendable(sent)
        assert not made or 0 <= made.tokens_after < made.tokens_before
        request = b",".join(sent)
        assert made or request.startswith(before), "history is only ever added to"
        assert run.cleared >= cleared, "what is cleared stays so"
        before, cleared = request, run.cleared


def test_a_long_run_compacts_now_and_then_and_never_each_turn() -> None:
    fragments, run, made_at = conversation(0), replace(RUN, turn=1), []
    for turn in range(1, 161):
        fragments += [asked(f"c{turn}"), answered(f"c{turn}")]
        tokens = (len(AGENT.head) + sum(map(weight, sent_fragments(AGENT, fragments, run.cleared)))) // 3
        run = replace(run, turn=turn, context_tokens=tokens)
        compaction = compaction_due(AGENT, run, fragments, tokens=tokens, max_tokens=4096)
        if compaction:
            made_at.append(turn)
            run = compacted(run, compaction)
        assert tokens < 125_000
    assert 2 <= len(made_at) <= 4
    assert min(after - before for before, after in pairwise(made_at)) >= 20
