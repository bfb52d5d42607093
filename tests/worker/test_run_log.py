"""The log of runs: a line for each attempt, one for each end, and nothing of what was said."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from worker.box.box import play_out
from worker.box.plays import ANSWER, PLAYS

from paceline.core.ids import trace_id
from paceline.core.ledger import CallRan, ModelCalled
from paceline.core.log_lines import FIELDS, JsonLines


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields of each line about a run."""
    records = [vars(record) for record in caplog.records if record.name == "paceline.run"]
    return [{name: record[name] for name in FIELDS if name in record} for record in records]


def test_each_turn_has_one_line_and_the_end_another(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        over = play_out(PLAYS["parallel calls"])
    run, answered = over.record.run, [entry for entry in over.ledger if isinstance(entry, ModelCalled)]
    *turns, end = lines(caplog)
    assert [(line["turn"], line["attempt"], line["outcome"]) for line in turns] == [
        (number, number, "done") for number in range(1, len(answered) + 1)
    ]
    assert [line["input_tokens"] for line in turns] == [entry.usage.all_input for entry in answered]
    assert [line["output_tokens"] for line in turns] == [entry.usage.output for entry in answered]
    assert sum(line["calls"] for line in turns) == sum(isinstance(entry, CallRan) for entry in over.ledger)
    assert sum(line["cost_usd"] for line in turns) == pytest.approx(run.spent.cost_nanousd / 1e9)
    assert {line["trace_id"] for line in turns} == {trace_id(run.run_id)}
    assert (end["run_id"], end["outcome"], end["stop_reason"]) == (run.run_id, "succeeded", "final_answer")


def test_a_hold_is_told_with_what_it_is_for(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        play_out(PLAYS["holds"])
    outcomes = [line["outcome"] for line in lines(caplog)]
    assert outcomes[:2] == ["on_hold:throttled", "on_hold:retry"]


@pytest.mark.parametrize("play", PLAYS)
def test_no_line_holds_what_was_said(play: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        over = play_out(PLAYS[play])
    told = "\n".join(JsonLines().format(record) for record in caplog.records)
    assert over.record.run.run_id in told
    assert ANSWER not in told
    assert "Who is on call" not in told
