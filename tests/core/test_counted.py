"""What happenings add to the metrics, by value."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.core import counted
from paceline.core.ids import AgentDigest, RunId
from paceline.core.ledger import AttemptLost, CallRan, Ended, Entry, ModelCalled, PossiblyBilled
from paceline.core.lifecycle import State
from paceline.core.metrics import Recovery
from paceline.core.run import ContextUsed, Run, Spent
from paceline.core.usage import Usage

MODEL = "claude-sonnet-5-5"
"""Its window has a million tokens."""
RUN = Run(
    run_id=RunId("r"),
    row_id="row",
    agent=AgentDigest("d"),
    state=State.IN_TURN,
    turn=2,
    fence=1,
    submitted_ms=1_000,
    label="oncall",
)
LOST = AttemptLost(turn=2, attempt=1, at_ms=5, worker="w")


def called(usage: Usage, *, cost: int | None = 7_000) -> ModelCalled:
    return ModelCalled(
        turn=2,
        attempt=1,
        at_ms=5,
        took_ms=1_500,
        worker="w",
        model=f"{MODEL}-20261101",
        stop_reason="end_turn",
        usage=usage,
        cost_nanousd=cost,
    )


def test_an_answer_adds_its_tokens_its_cost_and_how_long_it_took() -> None:
    entry = called(Usage(input=100, cache_read=9_000, cache_write=500, output=40))
    assert counted.written(RUN, MODEL, [entry]) == {
        f"gen_ai_client_inference_usage_input_tokens_total|{MODEL}|oncall": 9_600,
        f"gen_ai_client_inference_usage_cache_read_input_tokens_total|{MODEL}|oncall": 9_000,
        f"gen_ai_client_inference_usage_cache_write_input_tokens_total|{MODEL}|oncall": 500,
        f"gen_ai_client_inference_usage_output_tokens_total|{MODEL}|oncall": 40,
        f"agent_cost_usd_total|oncall|{MODEL}": 7_000,
        f"gen_ai_client_inference_duration_seconds|{MODEL}||2560": 1,
        f"gen_ai_client_inference_duration_seconds|{MODEL}||sum": 1_500,
    }


def test_an_answer_of_unknown_price_adds_no_cost() -> None:
    assert not [name for name in counted.written(RUN, MODEL, [called(Usage(), cost=None)]) if "cost" in name]


def test_two_answers_of_one_attempt_add_up() -> None:
    counts = counted.written(RUN, MODEL, [called(Usage(output=1)), called(Usage(output=2))])
    assert counts[f"gen_ai_client_inference_usage_output_tokens_total|{MODEL}|oncall"] == 3
    assert counts[f"gen_ai_client_inference_duration_seconds|{MODEL}||2560"] == 2


def test_a_call_without_an_answer_may_have_been_billed() -> None:
    billed = PossiblyBilled(turn=2, attempt=1, at_ms=5, tokens=9, cost_nanousd=9)
    entries: list[Entry] = [LOST, billed, Ended(turn=2, at_ms=5, reason="poison")]
    assert counted.written(RUN, MODEL, entries) == {"agent_possibly_billed_twice_total|oncall": 1}
    assert counted.unanswered(RUN, entries) == {"agent_possibly_billed_twice_total|oncall": 1}
    assert counted.unanswered(RUN, [LOST]) == {}


@pytest.mark.parametrize(
    ("before", "tokens", "crossed"),
    [
        (None, 499_999, []),
        (None, 500_000, ["0.5"]),
        (None, 910_000, ["0.5", "0.75", "0.9"]),
        (500_000, 760_000, ["0.75"]),
        (760_000, 600_000, []),
    ],
)
def test_a_threshold_is_passed_once_in_a_run(before: int | None, tokens: int, crossed: list[str]) -> None:
    used = ContextUsed(model=MODEL, millionths=before) if before else None
    counts = counted.written(replace(RUN, context_used=used), MODEL, [called(Usage(input=tokens))])
    found = [name for name in counts if name.startswith("agent_run_context_crossings_total|")]
    assert found == [f"agent_run_context_crossings_total|oncall|{MODEL}|{threshold}" for threshold in crossed]


def test_the_most_of_the_window_is_kept_when_the_context_shrinks() -> None:
    run = replace(RUN, context_used=ContextUsed(model=MODEL, millionths=760_000))
    assert counted.context_used(run, MODEL, [called(Usage(input=600_000))]) == run.context_used
    assert counted.context_used(run, MODEL, [LOST]) is None


def test_a_small_window_is_used_up_sooner() -> None:
    used = counted.context_used(RUN, "claude-haiku-4-5", [called(Usage(input=100_000))])
    assert used == ContextUsed(model="claude-haiku-4-5", millionths=500_000)


def test_calls_that_repeat_count_by_what_was_done_about_them() -> None:
    assert counted.repeated(RUN, warned=2) == {"agent_repeat_call_total|oncall|warned": 2}
    assert counted.repeated(RUN, aborted=1) == {"agent_repeat_call_total|oncall|aborted": 1}
    assert counted.repeated(RUN) == {}


@pytest.mark.parametrize(("is_error", "error_type"), [(False, ""), (True, "tool_error")])
def test_a_call_adds_how_long_its_tool_took(is_error: bool, error_type: str) -> None:
    entry = CallRan(
        turn=2, call="c1", tool="search", attempt=1, at_ms=5, took_ms=30, worker="w", is_error=is_error, result_chars=3
    )
    assert counted.call_ran("oncall", entry) == {
        f"gen_ai_execute_tool_duration_seconds|search|{error_type}|40": 1,
        f"gen_ai_execute_tool_duration_seconds|search|{error_type}|sum": 30,
    }
    assert set(counted.call_ran("other", entry)) == {
        f"gen_ai_execute_tool_duration_seconds|other|{error_type}|40",
        f"gen_ai_execute_tool_duration_seconds|other|{error_type}|sum",
    }, "however many tools there are of agents without end, they have one series"


def test_a_failed_model_call_takes_time_too() -> None:
    assert counted.model_failed(MODEL, "throttled", 12) == {
        f"gen_ai_client_inference_duration_seconds|{MODEL}|throttled|20": 1,
        f"gen_ai_client_inference_duration_seconds|{MODEL}|throttled|sum": 12,
    }


def test_an_end_of_unknown_cost_leaves_the_cost_out() -> None:
    run = replace(RUN, spent=Spent(unpriced_calls=1))
    counts = counted.ended(run, outcome=State.STOPPED, reason="max_turns", turns=3, ended_ms=4_000)
    assert counts["agent_runs_total|oncall|max_turns"] == 1
    assert counts["agent_run_duration_seconds|oncall|sum"] == 3_000
    assert not [name for name in counts if "cost" in name or "context" in name]


def test_what_the_sweeper_mends_is_counted_by_kind() -> None:
    assert counted.recovered(Recovery.TURN) == {"agent_sweeper_recoveries_total|turn": 1}
