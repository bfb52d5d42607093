import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.runs import SPENT

from paceline.core.endings import ENDINGS, StopReason
from paceline.core.errors import InfrastructureError, NewerVersion, UsageError
from paceline.core.ids import AgentDigest, BatchName, run_id, trace_id
from paceline.core.lifecycle import State, Status
from paceline.core.run import Run, Spent
from paceline.producer.result import Result, result_of
from paceline.producer.results_file import write_results
from paceline.store.port import RunRecord

RUN = Run(
    run_id=run_id(BatchName("b"), "r1"),
    row_id="r1",
    agent=AgentDigest("d"),
    state=State.SUCCEEDED,
    turn=3,
    fence=4,
    attempts=4,
    spent=replace(SPENT, tool_calls=2),
)
SUCCESS = RunRecord(run=RUN, reason="final_answer", answer="Ada", ended_ms=5)


def a_result(reason: StopReason = StopReason.FINAL_ANSWER) -> Result:
    ending = ENDINGS[reason]
    blames = ending.error_class or ""
    return result_of(RunRecord(run=replace(RUN, state=State(ending.status)), reason=reason, error_class=blames))


def test_a_stop_reason_of_a_newer_version_is_refused_as_that() -> None:
    with pytest.raises(NewerVersion, match=f"run {RUN.run_id} ended by 'reason_of_tomorrow', which only a newer"):
        result_of(replace(SUCCESS, reason="reason_of_tomorrow"))


def test_a_result_has_exactly_the_fields_that_are_promised() -> None:
    assert result_of(SUCCESS).to_json() == {
        "id": "r1",
        "run_id": RUN.run_id,
        "status": "succeeded",
        "stop_reason": "final_answer",
        "answer": "Ada",
        "output": None,
        "error": None,
        "turns": 3,
        "tool_calls": 2,
        "usage": {"input_tokens": 100, "cache_read_tokens": 20, "cache_write_tokens": 3, "output_tokens": 40},
        "cost_usd": 0.000007,
        "working_seconds": 0.25,
        "attempts": 4,
        "trace_id": trace_id(RUN.run_id),
    }


def test_an_error_names_its_class_and_message() -> None:
    record = RunRecord(
        run=replace(RUN, state=State.STOPPED), reason="max_turns", error_class="budget", message="no answer"
    )
    assert result_of(record).to_json()["error"] == {"class": "budget", "message": "no answer"}


def test_a_run_that_did_not_succeed_has_no_answer_whatever_is_on_record() -> None:
    record = RunRecord(run=replace(RUN, state=State.STOPPED), reason="max_turns", answer="half of one")
    assert result_of(record).answer_or_none is None


def test_a_cost_that_is_not_known_is_null_and_never_0() -> None:
    unpriced = RunRecord(run=replace(RUN, spent=Spent(unpriced_calls=1, cost_nanousd=7)), reason="final_answer")
    assert result_of(unpriced).cost_usd is None


@pytest.mark.parametrize("reason", list(StopReason))
def test_every_ending_has_a_result_and_all_but_success_raise_their_exception(reason: StopReason) -> None:
    result = a_result(reason)
    exception = ENDINGS[reason].exception
    if exception is None:
        assert result.status is Status.SUCCEEDED
    else:
        with pytest.raises(exception):
            _ = result.answer


def test_a_turn_that_got_no_answer_is_not_counted() -> None:
    assert a_result(StopReason.FINAL_ANSWER).turns == 3
    assert a_result(StopReason.MAX_TURNS).turns == 2


def test_an_answer_counts_whatever_became_of_its_turn() -> None:
    ended_in_tools = RunRecord(run=replace(RUN, state=State.CANCELLED), reason="cancelled", turns=3)
    assert result_of(ended_in_tools).turns == 3, "as the batch and the metrics count it"


def test_results_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("before")

    def results() -> Iterator[Result]:
        yield a_result()
        raise InfrastructureError("Redis is away")

    with pytest.raises(InfrastructureError):
        write_results(path, results())
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_results_are_lines_of_json_in_a_file_others_may_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "out.jsonl"
    assert write_results(path, [a_result(), a_result()]) == 2
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == ["r1", "r1"]
    assert path.stat().st_mode & 0o044 == 0o044


def test_a_place_that_cannot_be_written_is_the_callers_to_mend(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        write_results(tmp_path / "file" / "out.jsonl", [])


def test_what_a_run_handed_in_is_its_output_and_its_answer_the_text_of_it() -> None:
    result = result_of(replace(SUCCESS, reason="finish_tool", answer='{"who": "Ada"}'))
    assert (result.output, result.answer, result.turns) == ({"who": "Ada"}, '{"who": "Ada"}', 3)
    assert result_of(SUCCESS).output is None
