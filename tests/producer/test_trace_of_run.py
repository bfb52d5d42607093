"""A run's trace as a tree to read, and as data."""

from __future__ import annotations

from typing import Any

from paceline.core.agent import Agent
from paceline.core.ids import AgentDigest, BatchName, CallId, RunId, run_id, trace_id
from paceline.core.ledger import (
    AttemptLost,
    CallRan,
    Compacted,
    EffectInDoubt,
    EffectRuledOut,
    Ended,
    Entry,
    Held,
    ModelCalled,
    PossiblyBilled,
    Redriven,
    Source,
)
from paceline.core.lifecycle import State
from paceline.core.run import Run, Spent
from paceline.core.trace_ids import TURNS_IN_A_PART, attempt_span, call_span, chat_span, root_span, turn_span
from paceline.core.usage import Usage
from paceline.producer.fleet import RunStory
from paceline.producer.trace import trace_lines, traces_json
from paceline.store.port import RunRecord

RUN: RunId = run_id(BatchName("nightly"), "r1")
BEGAN = 1_800_000_000_000
AGENT = Agent(name="oncall", model="claude-sonnet-5-5")


def _story(*ledger: Entry, state: State = State.SUCCEEDED, turn: int = 2, attempts: int = 4) -> RunStory:
    run = Run(
        run_id=RUN,
        row_id="r1",
        agent=AgentDigest("d"),
        state=state,
        turn=turn,
        fence=9,
        attempts=attempts,
        lost_attempts=1,
        spent=Spent(working_ms=5_000),
        submitted_ms=BEGAN,
    )
    ends = [entry for entry in ledger if isinstance(entry, Ended)] if state.is_terminal else []
    reason, ended_ms = (ends[-1].reason, ends[-1].at_ms) if ends else ("", 0)
    record = RunRecord(run=run, reason=reason, ended_ms=ended_ms)
    return RunStory(record=record, batch=None, agent=AGENT, ledger=ledger, calls=(), transcript=())


def _called(turn: int, attempt: int, at_s: float, *, stop_reason: str = "tool_use") -> ModelCalled:
    return ModelCalled(
        turn=turn,
        attempt=attempt,
        at_ms=BEGAN + round(at_s * 1000),
        took_ms=1000,
        worker="w1",
        model="claude-sonnet-5-5",
        stop_reason=stop_reason,
        usage=Usage(input=40, cache_read=60, output=7),
        cost_nanousd=1_000_000,
    )


def _ran(turn: int, call: str, at_s: float, *, source: Source = Source.TOOL, is_error: bool = False) -> CallRan:
    took_ms = 500 if source is Source.TOOL else 0
    return CallRan(
        turn=turn,
        call=call,
        tool="search",
        attempt=1,
        at_ms=BEGAN + round(at_s * 1000),
        took_ms=took_ms,
        worker="w2" if took_ms else "",
        is_error=is_error,
        result_chars=81,
        source=source,
    )


THE_LEDGER: tuple[Entry, ...] = (
    AttemptLost(turn=1, attempt=1, at_ms=BEGAN + 4000, worker="w0", began_ms=BEGAN + 1000),
    PossiblyBilled(turn=1, attempt=1, at_ms=BEGAN + 4000, tokens=4100, cost_nanousd=None),
    Held(
        turn=1,
        attempt=2,
        at_ms=BEGAN + 6000,
        wait_seconds=4,
        reason="529 SECRET WORDS",
        took_ms=1000,
        trouble="throttled",
    ),
    _called(1, 3, 12),
    _ran(1, "c1", 12.5, is_error=True),
    _called(2, 4, 15, stop_reason="end_turn"),
    Ended(turn=2, at_ms=BEGAN + 16_000, reason="final_answer", attempt=4),
)


def test_a_trace_is_drawn_with_what_took_how_long_and_where_the_run_waited() -> None:
    named = {
        root_span(RUN, 0): "the root",
        attempt_span(RUN, 1, 1): "lost    ",
        attempt_span(RUN, 1, 2): "held    ",
        chat_span(RUN, 1, 2): "refused ",
        turn_span(RUN, 1): "turn one",
        chat_span(RUN, 1, 3): "chat one",
        call_span(RUN, 1, CallId("c1"), 1): "the call",
        attempt_span(RUN, 2, 4): "turn two",
        chat_span(RUN, 2, 4): "chat two",
    }
    drawn = "\n".join(trace_lines(_story(*THE_LEDGER), now_ms=0))
    for span, name in named.items():
        drawn = drawn.replace(span[:8], name)
    assert drawn == f"trace {trace_id(RUN)}{DRAWN.rstrip()}"


DRAWN = """
                                  start       took                                    span
invoke_agent oncall                0 ms     16.0 s  ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━  the root  final_answer, \
2 turns, 1 tool call, 200 tokens in (60% from cache), 14 out, $0.0020
├─ turn 1                        1.00 s     3.00 s  ··━━━━━━                          lost      ERROR \
worker_lost, attempt 1 on w0, up to 4100 tokens possibly billed
├─ turn 1                        5.00 s     1.00 s          ··━━                      held      ERROR \
throttled, attempt 2, then on hold for 4.0 s
│  └─ chat claude-sonnet-5-5     5.00 s     1.00 s            ━━                      refused   ERROR throttled
├─ turn 1                        11.0 s     1.00 s              ··········━━          turn one  attempt 3 on w1
│  ├─ chat claude-sonnet-5-5     11.0 s     1.00 s                        ━━          chat one  100 tokens in \
(60% from cache), 7 out, $0.0010, tool_use
│  └─ execute_tool search        12.0 s     500 ms                          ━         the call  ERROR \
tool_error, c1, 81 characters
└─ turn 2                        14.0 s     2.00 s                           ···━━━━  turn two  attempt 4 on w1
   └─ chat claude-sonnet-5-5     14.0 s     1.00 s                              ━━    chat two  100 tokens in \
(60% from cache), 7 out, $0.0010, end_turn
"""


def test_the_same_is_told_as_data_without_a_word_of_the_apis() -> None:
    (root,) = traces_json(_story(*THE_LEDGER), now_ms=0)
    assert (root["trace_id"], root["span_id"], root["parent_span_id"]) == (trace_id(RUN), root_span(RUN, 0), None)
    assert (root["start_ms"], root["end_ms"], root["error"]) == (BEGAN, BEGAN + 16_000, None)
    assert root["attributes"]["gen_ai.usage.input_tokens"] == 200
    lost, throttled, _, last = root["children"]
    assert (lost["error"], lost["children"]) == ("worker_lost", [])
    assert throttled["events"] == [
        {"name": "paceline.held", "at_ms": BEGAN + 6000, "attributes": {"paceline.hold_seconds": 4}}
    ]
    assert last["links"] == [{"trace_id": trace_id(RUN), "span_id": turn_span(RUN, 1)}]
    assert "SECRET" not in repr(root)


def test_a_compaction_is_told_with_the_turn_that_made_it() -> None:
    compacted = Compacted(
        turn=1,
        at_ms=BEGAN + 10_900,
        cleared=9,
        results=4,
        tokens_before=900,
        tokens_after=300,
        expected_turns=5,
        saved_nanousd=None,
        rewrite_nanousd=None,
    )
    story = _story(compacted, _called(1, 1, 12), state=State.IN_TOOLS, turn=1, attempts=1)
    lines = list(trace_lines(story, now_ms=BEGAN + 12_000))
    assert lines[3].endswith("attempt 1 on w1, 4 old results no longer sent")
    (root,) = traces_json(story, now_ms=0)
    assert root["children"][0]["children"][0]["attributes"]["gen_ai.conversation.compacted"] is True


def test_a_worker_that_was_lost_with_inline_calls_is_told_beside_the_turn_that_it_had_taken() -> None:
    lost = AttemptLost(turn=1, attempt=1, at_ms=BEGAN + 9000, worker="w1", began_ms=BEGAN + 2000)
    poison = Ended(turn=1, at_ms=BEGAN + 9000, reason="poison")
    story = _story(_called(1, 1, 2), _ran(1, "c1", 3), lost, poison, state=State.FAILED, turn=1, attempts=1)
    (root,) = traces_json(story, now_ms=0)
    taken, told = root["children"]
    assert (taken["span_id"], taken["error"], len(taken["children"])) == (turn_span(RUN, 1), None, 2)
    assert (told["span_id"], told["error"], told["children"]) == (attempt_span(RUN, 1, 1), "worker_lost", [])
    assert "without" not in "".join(trace_lines(story, now_ms=0))


def test_attempts_that_left_nothing_on_record_are_counted() -> None:
    *_, last = trace_lines(_story(*THE_LEDGER, attempts=7), now_ms=0)
    assert last == "without 3 attempts that only waited for the same again, or made no model call"


def test_a_run_that_is_not_over_has_a_root_without_an_end() -> None:
    story = _story(_called(1, 1, 12), _ran(1, "c1", 13), state=State.IN_TURN, attempts=2)
    (root,) = traces_json(story, now_ms=BEGAN + 20_000)
    assert (root["end_ms"], [child["end_ms"] for child in root["children"]]) == (None, [BEGAN + 12_000])
    lines = list(trace_lines(story, now_ms=BEGAN + 20_000))
    assert "20.0 s" in lines[2]
    assert "not over" in lines[2]
    assert len(lines) == 6


def test_doubts_and_decisions_stand_where_they_were_made() -> None:
    doubt = EffectInDoubt(
        turn=1,
        call="c1",
        tool="charge",
        attempt=1,
        at_ms=BEGAN + 3000,
        began_ms=BEGAN + 2000,
        worker="w1",
        why="SECRET",
    )
    ruled_out = EffectRuledOut(turn=1, call="c1", tool="charge", at_ms=BEGAN + 9000, source=Source.PERSON)
    story = _story(
        _called(1, 1, 2), doubt, ruled_out, _ran(1, "c1", 11, source=Source.PERSON), state=State.JOINING, turn=1
    )
    text = "\n".join(trace_lines(story, now_ms=BEGAN + 20_000))
    assert "ERROR unknown_effect, c1" in text
    assert "has not taken effect" in text
    assert "◆" in text
    assert "charge (c1), says a person" in text
    assert "c1, 81 characters, says a person" in text
    assert "SECRET" not in text


def test_a_later_life_is_drawn_below_the_root_of_the_first() -> None:
    failed = Ended(turn=1, at_ms=BEGAN + 3000, reason="model_error", attempt=1, took_ms=1000)
    again = Redriven(turn=1, at_ms=BEGAN + 9000)
    ended = Ended(turn=1, at_ms=BEGAN + 13_000, reason="final_answer", attempt=2)
    story = _story(failed, again, _called(1, 2, 12, stop_reason="end_turn"), ended, turn=1, attempts=2)
    (root,) = traces_json(story, now_ms=0)
    assert (root["error"], root["end_ms"]) == ("model_error", BEGAN + 3000)
    failing, later, taken = root["children"]
    assert (failing["error"], failing["children"][0]["name"]) == ("model_error", "chat claude-sonnet-5-5")
    assert (later["span_id"], later["error"]) == (root_span(RUN, 0, 1), None)
    assert (later["attributes"]["paceline.life"], later["events"][0]["name"]) == (1, "paceline.redriven")
    assert taken["span_id"] == attempt_span(RUN, 1, 2)
    assert "goes on after its end" in "\n".join(trace_lines(story, now_ms=0))


def test_a_very_long_run_is_drawn_in_parts() -> None:
    turns = TURNS_IN_A_PART + 1
    called = [_called(turn, turn, turn * 2, stop_reason="pause_turn") for turn in range(1, turns)]
    ended = Ended(turn=turns, at_ms=BEGAN + turns * 2000, reason="max_turns", attempt=turns)
    story = _story(*called, ended, state=State.STOPPED, turn=turns, attempts=turns)
    roots: list[dict[str, Any]] = traces_json(story, now_ms=0)
    assert [len(root["children"]) for root in roots] == [TURNS_IN_A_PART, 1]
    assert roots[1]["links"] == [{"trace_id": roots[0]["trace_id"], "span_id": roots[0]["span_id"]}]
    assert [root["error"] for root in roots] == [None, "max_turns"]
    assert sum(line.startswith("trace ") for line in trace_lines(story, now_ms=0)) == 2
