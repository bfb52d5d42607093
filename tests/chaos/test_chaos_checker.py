"""The checker, on evidence that was planted: it finds each thing that must not be, and nothing where all is well."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from chaos.checker import check, percentile, seconds_to_move
from chaos.evidence import Evidence, HeldClaim, Kill, RunEvidence
from chaos.plan import BlowKind, drawn_blows
from chaos.report import Report
from integration.effect_tools import Effect

from paceline.core.ids import AgentDigest, BatchName, CallId, RunId, idempotency_key, run_id
from paceline.core.ledger import AttemptLost, CallRan, Ended, ModelCalled
from paceline.core.lifecycle import State
from paceline.core.run import Run, Spent
from paceline.core.transcript import Fragment, assistant_content, result_block, results_message, user_text
from paceline.core.usage import Usage
from paceline.sim.journal import Entry as Request
from paceline.store.port import BatchCounts, RunRecord

RUN = run_id(BatchName("batch"), "0")
OTHER = run_id(BatchName("batch"), "1")
CALL = CallId("toolu_1")
SPENT = Spent(usage=Usage(input=10, output=5), tool_calls=1)
LEDGER = (
    ModelCalled(turn=1, attempt=1, at_ms=1_000, took_ms=1, worker="w", model="m", stop_reason="s", usage=SPENT.usage),
    CallRan(
        turn=1, call=CALL, tool="pay", attempt=1, at_ms=2_000, took_ms=1, worker="w", is_error=False, result_chars=2
    ),
    Ended(turn=2, at_ms=3_000, reason="final_answer"),
)
ASKED = assistant_content(b'[{"type":"tool_use","id":"toolu_1","name":"pay","input":{}}]')
ANSWERED = results_message([CALL], {CALL: result_block(CALL, "ok", is_error=False)})
DONE = assistant_content(b'[{"type":"text","text":"done"}]')
TRANSCRIPT = (user_text("run 0"), ASKED, ANSWERED, DONE)


def a_run(run: RunId = RUN, state: State = State.SUCCEEDED, **other: Any) -> RunEvidence:
    record = RunRecord(
        run=Run(run_id=run, row_id="0", agent=AgentDigest("a"), state=state, turn=2, fence=4, spent=SPENT),
        reason="final_answer" if state.is_terminal else "",
    )
    return replace(RunEvidence(record=record, ledger=LEDGER, transcript=TRANSCRIPT), **other)


def a_request(turn: int = 1, *, verdict: Any = "accepted", time: float = 0.5) -> Request:
    billed = verdict == "accepted"
    return Request(time=time, request_id="r", verdict=verdict, status=200, run=RUN, turn=turn, billed=billed)


def an_effect(key: str = idempotency_key(RUN, 1, CALL)) -> Effect:
    return Effect(tool="pay", key=key, run=RUN, turn=1, call=CALL, attempt=1, at=1.5)


SOUND = Evidence(
    submitted=(RUN,),
    runs={RUN: a_run()},
    counts=BatchCounts(states={State.SUCCEEDED: 1}, reasons={"final_answer": 1}, turns=2, spent=SPENT),
    requests=[a_request(1), a_request(2)],
    effects=[an_effect()],
)


def found(**planted: Any) -> Report:
    return check(replace(SOUND, **planted))


def with_transcript(*fragments: Fragment) -> Report:
    return found(runs={RUN: a_run(transcript=fragments)})


def test_where_all_is_well_nothing_is_found() -> None:
    report = check(SOUND)
    assert report.violations == {}
    assert (report.runs, report.ended, report.billed_again) == (1, 1, 0)


def test_a_run_that_is_not_on_record_is_lost() -> None:
    assert found(submitted=(RUN, OTHER)).violations == {"runs lost": (OTHER,)}


def test_a_run_that_has_not_ended_is_stuck() -> None:
    counts = replace(SOUND.counts, states={State.JOINING: 1})
    assert found(runs={RUN: a_run(state=State.JOINING)}, counts=counts).violations == {"runs stuck": (RUN,)}


@pytest.mark.parametrize(
    "fragments",
    [
        pytest.param((user_text("a"), ASKED, ASKED, ANSWERED, DONE), id="an assistant message twice in a row"),
        pytest.param((user_text("a"), ASKED, ANSWERED, ANSWERED, DONE), id="results twice in a row"),
        pytest.param((user_text("a"), ASKED, ANSWERED, ASKED, ANSWERED, DONE), id="a turn that comes again"),
        pytest.param((user_text("a"), ASKED, ANSWERED, DONE, DONE), id="two answers"),
    ],
)
def test_what_was_appended_twice_is_found(fragments: tuple[Fragment, ...]) -> None:
    assert with_transcript(*fragments).violations == {"doubled appends": (RUN,)}


def test_an_effect_that_may_come_once_and_came_twice_is_found() -> None:
    assert found(effects=[an_effect(), an_effect()]).violations == {
        "silent double effects": (f"{RUN} call {CALL}: 2 times",)
    }


def test_an_effect_may_come_twice_where_the_tool_says_so() -> None:
    put = replace(an_effect(), tool="put")
    assert found(effects=[put, put]).violations == {}


@pytest.mark.parametrize("effects", [[], [an_effect("another key")]], ids=["no effect", "another key"])
def test_an_effect_that_is_on_record_and_did_not_happen_is_found(effects: list[Effect]) -> None:
    assert found(effects=effects).violations == {
        "effects on record that were not": (f"{RUN} turn 1 call {CALL} (pay)",)
    }


def test_a_refused_request_is_found() -> None:
    refused = replace(a_request(verdict="refused"), reason="messages: ...")
    assert found(requests=[refused]).violations == {"rejected requests": (f"{RUN} turn 1: messages: ...",)}


def test_totals_that_are_not_those_of_the_ledger_are_found() -> None:
    assert set(found(runs={RUN: a_run(ledger=LEDGER[:1])}).violations) == {"totals that do not add up"}


def test_totals_of_a_batch_that_are_not_those_of_its_runs_are_found() -> None:
    counts = replace(SOUND.counts, states={State.SUCCEEDED: 2}, spent=SPENT + SPENT)
    assert len(found(counts=counts).violations["totals that do not add up"]) == 2


def test_a_model_call_that_was_billed_again_is_counted_and_is_no_violation() -> None:
    report = found(requests=[a_request(1), a_request(1), a_request(2), a_request(2, verdict="fault")])
    assert report.billed_again == 1
    assert report.violations == {}


def test_a_turn_moves_with_its_next_model_call_and_not_with_the_notice_that_it_was_lost() -> None:
    lost = AttemptLost(turn=1, attempt=1, at_ms=600, worker="w")
    run = a_run(ledger=(lost, LEDGER[0]))
    assert seconds_to_move(HeldClaim(run=RUN), 0.5, run, [0.2, 0.75]) == 0.25
    assert seconds_to_move(HeldClaim(run=RUN), 0.5, run, []) == 0.5


def test_a_call_moves_with_its_own_effect_or_result_and_not_with_those_of_others() -> None:
    held = HeldClaim(run=RUN, call=CALL)
    kill = Kill(at=0.5, held=(held,))
    assert seconds_to_move(held, 0.5, a_run(), []) == 1.5
    assert found(kills=[kill], requests=[a_request(time=0.75)]).recovery.max_s == 1.0
    assert found(kills=[kill], effects=[replace(an_effect(), call="another")]).recovery.max_s == 1.5


def test_what_never_moved_again_took_for_ever() -> None:
    report = found(kills=[Kill(at=9.0, held=(HeldClaim(run=RUN),))])
    assert report.recovery.max_s == math.inf


def test_a_percentile_is_a_value_that_was_seen() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.99) == 4.0
    assert percentile([], 0.5) == 0.0


def test_the_blows_of_a_seed_are_always_the_same_and_of_every_kind() -> None:
    blows = drawn_blows(7, seconds=60, pause_s=4)
    assert blows == drawn_blows(7, seconds=60, pause_s=4)
    assert blows != drawn_blows(8, seconds=60, pause_s=4)
    assert {blow.kind for blow in blows} == set(BlowKind)


def test_a_report_says_what_was_broken_where_people_and_machines_read_it() -> None:
    report = found(submitted=(RUN, OTHER))
    assert f"BROKEN: runs lost                  {OTHER}" in report.table()
    assert f'"lost": ["{OTHER}"]' in report.to_json()
