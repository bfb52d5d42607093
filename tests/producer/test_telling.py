from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from support.producing import AGENT, MemoryFleet
from support.runs import A_WRITE, a_call, model_called

from paceline.core.endings import Outcome, StopReason
from paceline.core.ids import AgentDigest, BatchName, CallId, Incarnation, RunId, idempotency_key, run_id
from paceline.core.ledger import AttemptLost, CallRan, Compacted, Held
from paceline.core.lifecycle import State
from paceline.core.run import Run, Spent
from paceline.core.tool_spec import Effect
from paceline.core.usage import Usage
from paceline.producer import story as stories
from paceline.producer.commands.printing import table_lines
from paceline.producer.decide import Decision, NotRan, Ran
from paceline.producer.fleet import BatchStatus, has_state, known_states
from paceline.producer.progress import (
    Start,
    budget_json,
    budget_text,
    count_text,
    dollars,
    duration,
    progress_of,
    status_json,
)
from paceline.producer.report import WHAT_TO_DO, report_rows, this_time, totals
from paceline.producer.stillness import Stillness
from paceline.producer.waiting import why_runs_wait
from paceline.store.port import Asked, BatchCounts, BatchInfo, Budget, RunRecord, TurnWrite, WorkerReport

INFO = BatchInfo(name=BatchName("nightly"), tenant="t", agent=AgentDigest("d"), agent_name="oncall")
WORKER = WorkerReport(incarnation=Incarnation("w"), host="h", pid=1, started_ms=0, concurrency=4, in_flight=0)
USED = Spent(usage=Usage(input=10, cache_read=30, output=5), cost_nanousd=2_500_000_000, tool_calls=3)


def a_status(
    states: Mapping[State, int], reasons: Mapping[str, int] | None = None, *, spent: Spent = USED
) -> BatchStatus:
    counted = Counter(dict.fromkeys(State, 0)) + Counter(states)
    return BatchStatus(info=INFO, counts=BatchCounts(states=counted, reasons=reasons or {}, turns=7, spent=spent))


def a_held(reason: str, until_ms: int) -> RunRecord:
    name = run_id(BatchName("nightly"), f"{reason}{until_ms}")
    run = Run(run_id=name, row_id="r", agent=AgentDigest("d"), state=State.ON_HOLD, turn=1, fence=1)
    return RunRecord(run=replace(run, hold_reason=reason, hold_until_ms=until_ms))


def test_progress_is_one_line() -> None:
    status = a_status({State.SUCCEEDED: 4, State.IN_TURN: 2, State.ON_HOLD: 1, State.QUEUED: 3})
    line = progress_of(status, Start(at_seconds=100.0, done=1), 130.0).line()
    assert line == "4/10 rows, 2 running, 1 on hold, 7 turns, 45 tokens, $2.5000, 75% cached, about 1 min 0 s left"


def test_what_is_left_is_not_guessed_before_anything_is_done() -> None:
    progress = progress_of(
        a_status({State.QUEUED: 3}, spent=Spent(unpriced_calls=1)), Start(at_seconds=0, done=0), 10.0
    )
    assert progress.eta_seconds is None
    assert progress.line() == "0/3 rows, 0 running, 7 turns, 0 tokens, cost unknown, - cached"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.44, "0.4 s"), (12.3, "12 s"), (185, "3 min 5 s"), (7800, "2 h 10 min")]
)
def test_durations_are_told_as_people_do(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_counts_and_dollars_are_told_as_people_do() -> None:
    assert [count_text(n) for n in (9_999, 12_345, 4_560_000)] == ["9999", "12.3k", "4.56M"]
    assert [dollars(usd) for usd in (0.00012, 1234.5)] == ["$0.0001", "$1,234.50"]


def test_a_status_is_plain_data_too() -> None:
    data = status_json(a_status({State.SUCCEEDED: 1, State.QUEUED: 1}, {"final_answer": 1}))
    assert (data["batch"], data["rows"], data["active"]) == ("nightly", 2, 1)
    assert data["states"] == {"succeeded": 1, "queued": 1}
    assert (data["cost_usd"], data["cache_share"]) == (2.5, 0.75)


def test_the_report_has_successes_first_then_the_most_frequent_and_what_to_do() -> None:
    status = a_status({State.SUCCEEDED: 1}, {"max_turns": 2, "model_error": 5, "final_answer": 1})
    rows = report_rows(status)
    assert [(row[1], row[2]) for row in rows] == [("final_answer", 1), ("model_error", 5), ("max_turns", 2)]
    assert "limits.turns" in rows[2][3]
    assert totals(status) == "1 row, 7 turns, 3 tool calls, 40 tokens in (75% from cache), 5 out, $2.5000"


def test_there_is_something_to_do_about_every_ending() -> None:
    assert set(WHAT_TO_DO) == set(StopReason)


def test_a_batch_without_workers_says_so() -> None:
    reasons = why_runs_wait(a_status({State.QUEUED: 1}), [], [], now_ms=0)
    assert reasons == ["no worker is alive: start some with `paceline worker`"]
    reasons = why_runs_wait(a_status({State.QUEUED: 1}), [], [], now_ms=0, get_workers="run it again")
    assert reasons == ["no worker is alive: run it again"]


def test_holds_are_counted_by_reason_with_the_first_moment() -> None:
    records = [a_held("the API has no room.", 5_000), a_held("the API has no room.", 9_000), a_held("retry", 0)]
    reasons = why_runs_wait(a_status({State.ON_HOLD: 3}), [WORKER], records, now_ms=2_000)
    assert reasons == [
        "2 on hold: the API has no room; the first goes on in 3.0 s",
        "1 on hold: retry; the first goes on now",
    ]


def test_problems_of_workers_and_a_full_fleet_are_told() -> None:
    worker = replace(WORKER, in_flight=4, problems=("the key is refused",))
    reasons = why_runs_wait(a_status({State.QUEUED: 9}), [worker], [], now_ms=0)
    assert reasons == [
        "1 of 1 worker says: the key is refused",
        "9 wait for a free worker: all 4 slots of 1 worker are taken",
    ]


def test_a_problem_with_an_agent_is_told_for_the_batches_of_that_agent_alone() -> None:
    own, other = f"agent {INFO.agent}: no tool", "agent 77: no tool either"
    worker = replace(WORKER, problems=(own, other, "the key is refused"))
    reasons = why_runs_wait(a_status({State.QUEUED: 1}), [worker], [], now_ms=0)
    assert reasons == [f"1 of 1 worker says: {own}", "1 of 1 worker says: the key is refused"]


def test_a_batch_that_is_over_waits_for_nothing() -> None:
    assert why_runs_wait(a_status({State.SUCCEEDED: 1}), [], [], now_ms=0) == []


def told(behind: MemoryFleet, run: RunId) -> str:
    story = behind.fleet.show(run)
    return "\n".join([stories.headline(story), *stories.timeline(story)])


def submitted(behind: MemoryFleet) -> RunId:
    behind.fleet.submit(AGENT, [{"id": "r1", "prompt": "Who?"}], batch="nightly")
    return run_id(BatchName("nightly"), "r1")


def test_a_success_is_told_in_a_sentence_and_its_turns(behind: MemoryFleet) -> None:
    run = submitted(behind)
    behind.finish(run)
    text = told(behind, run)
    assert text.startswith(
        "Row 'r1' of batch nightly by agent oncall succeeded: the model gave its answer in turn 1.\n"
    )
    assert "model claude-sonnet-5-5 answered in 0.2 s: 123 tokens in (16% from cache), 40 out, $0.0000" in text
    assert "ended: final_answer" in text


def test_a_failure_is_told_with_its_reason_and_what_to_do(behind: MemoryFleet) -> None:
    run = submitted(behind)
    behind.finish(run, Outcome(reason=StopReason.MAX_TURNS, message="no answer after 1 turns"))
    headline = stories.headline(behind.fleet.show(run))
    assert "was stopped (max_turns): no answer after 1 turns. What to do: raise limits.turns" in headline


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (State.QUEUED, "it waits for a worker to begin it, in turn 1."),
        (State.IN_TURN, "it is waiting for the model, in turn 1."),
        (State.TURN_DUE, "it waits for a worker to take its next turn, in turn 2."),
        (State.ON_HOLD, "it is on hold, in turn 1. On hold until 08:00:10Z: busy."),
        (State.JOINING, "it has its tools' results and is about to go on, in turn 1."),
    ],
)
def test_a_run_that_is_not_over_says_what_it_is_at(behind: MemoryFleet, state: State, words: str) -> None:
    run = submitted(behind)
    behind.fleet.loop.run(behind.driven(run).bring_to(state))
    assert stories.headline(behind.fleet.show(run)).endswith(f"is not over: {words}")


def test_a_hold_that_the_api_tells_in_sentences_ends_in_one_full_stop(behind: MemoryFleet) -> None:
    run = submitted(behind)
    driven = behind.driven(run)

    async def hold() -> None:
        await driven.begin()
        await behind.store.hold(driven.held, A_WRITE, seconds=20, reason="429. Try later.")

    behind.fleet.loop.run(hold())
    assert stories.headline(behind.fleet.show(run)).endswith(": 429. Try later.")


def test_a_cancelled_run_is_told_as_that_and_no_more(behind: MemoryFleet) -> None:
    run = submitted(behind)
    behind.fleet.cancel(run)
    assert stories.headline(behind.fleet.show(run)).endswith("was cancelled.")


def test_open_calls_are_told_as_they_stand(behind: MemoryFleet) -> None:
    run = submitted(behind)
    driven = behind.driven(run)
    behind.fleet.loop.run(driven.in_tools(a_call("c1"), a_call("c2")))
    behind.fleet.loop.run(driven.begin_call("c1"))
    text = told(behind, run)
    assert "tool search is running on worker-2" in text
    assert "tool search waits for a worker" in text


def test_holds_and_lost_attempts_are_part_of_the_story(behind: MemoryFleet) -> None:
    run = submitted(behind)
    driven = behind.driven(run)

    async def happen() -> None:
        await driven.begin()
        held = Held(turn=1, attempt=1, at_ms=0, wait_seconds=20, reason="the API has no room")
        lost = AttemptLost(turn=1, attempt=1, at_ms=0, worker="w1")
        await behind.store.hold(driven.held, replace(A_WRITE, ledger=(held, lost)), seconds=20, reason="busy")

    behind.fleet.loop.run(happen())
    text = told(behind, run)
    assert "on hold for 20 s: the API has no room" in text
    assert "attempt 1 was lost with worker w1: its model call may have been billed" in text


def in_doubt(behind: MemoryFleet) -> RunId:
    run = submitted(behind)
    driven = behind.driven(run)
    behind.fleet.loop.run(driven.bring_to(State.AWAITING_DECISION))
    return run


def test_a_run_that_awaits_a_decision_says_what_is_known_and_how_to_settle_it(behind: MemoryFleet) -> None:
    run = in_doubt(behind)
    headline = stories.headline(behind.fleet.show(run))
    key = idempotency_key(run, 1, CallId("c1"))
    assert headline.endswith(
        "is not over: it awaits a decision about a tool call, in turn 1. search began at 08:00:00Z on worker worker-2, "
        f"which was lost: it may have taken effect or not (call c1, idempotency key {key}). Find out, then: "
        f"paceline resolve {run} c1 --ran | --not-ran | --result FILE."
    )
    assert stories.story_json(behind.fleet.show(run), with_transcript=False)["in_doubt"][0]["idempotency_key"] == key


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (NotRan(), "a person decided: tool search has not taken effect, it may run (c1)"),
        (Ran(), "a person decided: tool search has taken effect (c1)"),
    ],
)
def test_doubts_and_decisions_are_part_of_the_story(behind: MemoryFleet, decision: Decision, words: str) -> None:
    run = in_doubt(behind)
    assert "now       tool search awaits a decision" in told(behind, run)
    behind.fleet.resolve(run, "c1", decision)
    text = told(behind, run)
    assert "tool search may have taken effect or not, since 08:00:00Z on worker worker-2: its worker was lost" in text
    assert words in text


def test_a_tool_that_is_asked_is_told_as_that(behind: MemoryFleet) -> None:
    run = submitted(behind)
    driven = behind.driven(run)

    async def happen() -> None:
        await driven.in_tools(a_call("c1", Effect.ONCE))
        await driven.doubt("c1", Asked.TOOL)
        await driven.begin_call("c1")

    behind.fleet.loop.run(happen())
    assert "tool search is asked what it did on worker-2" in told(behind, run)


def test_runs_that_await_a_decision_are_counted_and_say_where_to_look() -> None:
    status = a_status({State.SUCCEEDED: 1, State.AWAITING_DECISION: 2})
    assert ", 0 running, 2 awaiting a decision, " in progress_of(status, Start(at_seconds=0, done=0), 1.0).line()
    reasons = why_runs_wait(status, [WORKER], [], now_ms=0)
    assert len(reasons) == 1
    assert reasons[0].startswith("2 await a decision")
    assert "paceline runs --batch nightly --state awaiting_decision" in reasons[0]


def test_the_messages_are_told_only_when_asked_for(behind: MemoryFleet) -> None:
    run = submitted(behind)
    behind.finish(run)
    story = behind.fleet.show(run)
    quiet = stories.story_json(story, with_transcript=False)
    assert "transcript" not in quiet
    assert quiet["result"]["answer"] is None
    loud = stories.story_json(story, with_transcript=True)
    assert loud["transcript"][0]["content"][0]["text"] == "Who?"
    assert loud["result"]["answer"] == "Ada"
    assert list(stories.messages(story.transcript)) == ["[1] user", "    Who?"]


def test_calls_and_results_are_readable_in_the_transcript(behind: MemoryFleet) -> None:
    run = submitted(behind)
    driven = behind.driven(run)
    behind.fleet.loop.run(driven.in_tools(a_call("c1")))
    lines = list(stories.messages(behind.fleet.show(run).transcript))
    assert lines[-1] == "    -> search({})  c1"


def test_the_totals_end_with_the_trace(behind: MemoryFleet) -> None:
    run = submitted(behind)
    behind.finish(run)
    names = [name for name, _ in stories.totals(behind.fleet.show(run))]
    assert names[0] == "run"
    assert names[-1] == "trace id"
    assert "from submission to end" in names


def test_states_and_statuses_are_both_known() -> None:
    record = a_held("busy", 1)
    assert has_state(record, "on_hold")
    assert has_state(record, "running")
    assert not has_state(record, "queued")
    assert {"on_hold", "running", "failed"} <= set(known_states())


def test_a_table_aligns_numbers_to_the_right_and_cuts_nothing() -> None:
    assert table_lines(("name", "rows"), [("a-long-name-that-stays-whole", 5), ("b", 12345)]) == [
        "name                            rows",
        "a-long-name-that-stays-whole       5",
        "b                              12345",
    ]
    assert table_lines(("name", "rows"), []) == ["name   rows"]


def test_a_cell_without_a_number_changes_nothing_of_its_column() -> None:
    assert table_lines(("row", "cost"), [("17", "$0.1000"), ("4", "cost unknown")]) == [
        "row           cost",
        "17         $0.1000",
        "4     cost unknown",
    ]


def test_a_limit_asks_for_a_new_batch_and_what_can_be_mended_for_a_retry() -> None:
    rows = report_rows(a_status({State.STOPPED: 1, State.FAILED: 1}, {"max_turns": 1, "model_error": 1}))
    todo = {reason: words for _, reason, _, words in rows}
    assert "raise limits.turns and submit as a new batch" in todo["max_turns"]
    assert "retry" not in todo["max_turns"]
    assert todo["model_error"].endswith("paceline retry nightly")


def test_a_story_points_to_its_own_transcript(behind: MemoryFleet) -> None:
    run = submitted(behind)
    driven = behind.driven(run)

    async def fail() -> None:
        await driven.begin()
        ran = CallRan(
            turn=1,
            attempt=1,
            at_ms=0,
            took_ms=3,
            worker="w",
            call="c1",
            tool="search",
            is_error=True,
            result_chars=9,
        )
        await behind.store.finish(
            driven.held, TurnWrite(ledger=(ran,)), Outcome(reason=StopReason.TOOL_ERRORS, message="3 turns")
        )

    behind.fleet.loop.run(fail())
    text = told(behind, run)
    assert "RUN" not in text
    assert f"What to do: see what the tools said: paceline show {run} --transcript." in text
    assert f"what the failed tools said: paceline show {run} --transcript" in text


def test_what_the_api_cleared_itself_is_told_with_the_call() -> None:
    told = stories.told(replace(model_called(), cleared_tokens=12_345))
    assert told.endswith(", stop reason tool_use, 12.3k tokens cleared by the API")


def test_a_compaction_is_told_with_both_sides_of_its_arithmetic() -> None:
    made = Compacted(
        turn=31,
        at_ms=0,
        cleared=57,
        results=27,
        tokens_before=130_000,
        tokens_after=30_000,
        expected_turns=30,
        saved_nanousd=300_000_000,
        rewrite_nanousd=35_000_000,
    )
    done = "27 old tool results cleared from what is sent: about 130.0k tokens become 30.0k; "
    sides = "over 30 turns to come that saves $0.3000, the cache written anew costs $0.0350"
    assert stories.told(made) == done + sides
    unpriced = replace(made, saved_nanousd=None, rewrite_nanousd=None)
    assert stories.told(unpriced) == f"{done}what that saves is unknown, as the model's price is"


def test_what_a_command_added_to_a_batch_is_told_apart() -> None:
    before = a_status({State.SUCCEEDED: 1, State.QUEUED: 2}).counts
    spent = replace(USED, tool_calls=4, cost_nanousd=3_000_000_000)
    after = replace(a_status({State.SUCCEEDED: 3}, spent=spent).counts, turns=8)
    assert this_time(before, after) == "2 rows ended, 1 turn, 1 tool call, $0.5000"


def test_a_batch_that_stands_still_is_told_of_once_in_a_while() -> None:
    seconds = [0.0]
    stillness = Stillness(after_seconds=10, clock=lambda: seconds[0])
    still, moved = a_status({State.QUEUED: 2}), a_status({State.QUEUED: 1, State.SUCCEEDED: 1})
    told_at = []
    for seconds[0], status in ((0, still), (9, still), (10, still), (11, still), (20, moved), (29, moved), (31, moved)):
        if stillness.is_to_be_told(status):
            told_at.append(seconds[0])
    assert told_at == [10, 31]
    seconds[0] = 100
    assert not stillness.is_to_be_told(a_status({State.SUCCEEDED: 2}))


def test_a_budget_is_told_with_what_is_spent_and_what_is_reserved() -> None:
    budget = Budget(total=10_000_000_000, spent=2_500_000_000, held=4_000_000_000)
    assert budget_text(budget) == "budget $10.0000: $2.5000 spent, $1.5000 reserved for calls under way"
    assert budget_json(budget) == {"usd": 10.0, "spent_usd": 2.5, "reserved_usd": 1.5}


def test_what_may_have_been_billed_is_told_apart_from_the_cost() -> None:
    spent = replace(USED, possibly_billed_tokens=12_345, possibly_billed_nanousd=60_000_000)
    told = totals(a_status({State.SUCCEEDED: 1}, spent=spent))
    assert told.endswith("$2.5000 (and up to $0.0600 and 12.3k tokens possibly billed)")
    unpriced = replace(USED, possibly_billed_tokens=900)
    assert totals(a_status({State.SUCCEEDED: 1}, spent=unpriced)).endswith("(and up to 900 tokens possibly billed)")
