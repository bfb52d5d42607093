"""Runs in the box that do not come to an answer by themselves, and what ends them."""

from __future__ import annotations

import json

from worker.box.box import Over, play_out
from worker.box.promises import check_promises

from paceline.core.transcript import Fragment
from paceline.worker.scripted_model import ModelRequest, Reply, asks


def results(over: Over) -> list[str]:
    """The texts of all results, in order."""
    return [block["content"] for message in over.transcript for block in _results_in(message)]


def _results_in(message: Fragment) -> list[dict[str, str]]:
    return [block for block in json.loads(message)["content"] if block["type"] == "tool_result"]


def test_a_run_that_repeats_a_call_is_told_so_and_then_stopped() -> None:
    def again(request: ModelRequest, seen: int) -> Reply:
        return asks((f"c{request.turn}", "charge", {}))

    over = play_out(again)
    check_promises(over)
    assert (over.record.reason, over.record.error_class) == ("repeat_calls", "loop")
    assert len(over.charges) == 2
    assert "3 times in a row" in results(over)[2]
    assert len(results(over)) == 3


def test_a_run_whose_calls_all_fail_is_stopped_before_the_next_call() -> None:
    def misses(request: ModelRequest, seen: int) -> Reply:
        return asks((f"c{request.turn}", f"no_such_tool_{request.turn}", {}))

    over = play_out(misses)
    check_promises(over)
    assert (over.record.reason, over.record.error_class) == ("tool_errors", "tool")
    assert len(over.requests) == 3
