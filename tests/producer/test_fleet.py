import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.clock import FakeClock
from support.producing import AGENT, Announced, MemoryFleet, memory_fleet
from support.runs import Driven, a_call

from paceline import producer
from paceline.core.endings import ENDINGS, MaxTurnsExceeded, Outcome, StopReason
from paceline.core.errors import InfrastructureError, RowError, UnknownBatch, UnknownRun, UsageError
from paceline.core.ids import BatchName, CallId, RunId, run_id
from paceline.core.lifecycle import State, Status
from paceline.core.tool_spec import Effect
from paceline.core.transcript import check_whole
from paceline.producer import Batch, BatchStatus, Fleet, Result
from paceline.producer.agent_file import AgentFile
from paceline.producer.decide import NotRan, Ran
from paceline.producer.redrive import SPENT
from paceline.producer.template import read_template
from paceline.store.memory import MemoryRunStore
from paceline.store.port import BatchInfo, Budget, Cancelled, TurnWrite

ROWS = [{"id": name, "prompt": f"Who owns {name}?"} for name in ("a", "b", "c")]


MANY_ROWS = [{"id": str(number), "prompt": "x"} for number in range(3000)]


def ids(batch: str, *rows: str) -> list[RunId]:
    return [run_id(BatchName(batch), row) for row in rows]


def test_each_row_becomes_a_run_and_is_announced(behind: MemoryFleet) -> None:
    batch = behind.fleet.submit(AGENT, ROWS, batch="nightly")
    assert batch.submission is not None
    assert (batch.submission.created, batch.submission.existed) == (3, 0)
    assert behind.announced.run_ids == ids("nightly", "a", "b", "c")
    assert batch.status().counts.states[State.QUEUED] == 3


def test_submitting_again_adds_what_is_missing_and_nothing_else(behind: MemoryFleet) -> None:
    behind.fleet.submit(AGENT, ROWS[:2], batch="nightly")
    again = behind.fleet.submit(AGENT, ROWS, batch="nightly").submission
    assert again is not None
    assert (again.created, again.existed, again.rows) == (1, 2, 3)
    assert behind.announced.run_ids == ids("nightly", "a", "b", "c")


def test_other_content_under_the_same_id_is_named_and_the_other_rows_are_submitted(behind: MemoryFleet) -> None:
    behind.fleet.submit(AGENT, ROWS[:1], batch="nightly")
    with pytest.raises(RowError, match=r"other content under the same id for 'a': .*the 1 other ones are submitted"):
        behind.fleet.submit(AGENT, [{"id": "a", "prompt": "Else?"}, ROWS[1]], batch="nightly")
    assert behind.announced.run_ids == ids("nightly", "a", "b")
    assert [result.id for result in behind.fleet.batch("nightly").results()] == ["a", "b"]


def test_many_conflicts_are_counted_and_the_first_ones_named(behind: MemoryFleet) -> None:
    rows = [{"id": str(n), "prompt": "x"} for n in range(30)]
    behind.fleet.submit(AGENT, rows, batch="nightly")
    with pytest.raises(RowError, match=r"'0', '1', .*'19' and 10 more"):
        behind.fleet.submit(AGENT, [row | {"prompt": "y"} for row in rows], batch="nightly")


def test_nothing_is_submitted_when_a_row_is_wrong(behind: MemoryFleet) -> None:
    with pytest.raises(RowError):
        behind.fleet.submit(AGENT, [*ROWS, {"id": "d"}], batch="nightly")
    assert behind.announced.run_ids == []
    assert behind.fleet.batches() == []


def test_more_rows_than_a_chunk_keep_their_order(behind: MemoryFleet) -> None:
    rows = [{"id": str(n), "prompt": "x"} for n in range(1201)]
    batch = behind.fleet.submit(AGENT, rows, batch="big")
    assert [result.id for result in batch.results()] == [str(n) for n in range(1201)]


def test_a_broker_that_falters_stops_no_submission_and_is_told_of_once(behind: MemoryFleet) -> None:
    behind.announced.refuses += [False, True]
    submission = behind.fleet.submit(AGENT, MANY_ROWS, batch="big").submission
    assert submission is not None
    assert (submission.created, submission.unannounced) == (3000, "refused announcement 2")
    assert behind.fleet.batch("big").status().counts.runs == 3000
    assert len(behind.announced.run_ids) == 2500


def test_a_broker_that_is_away_is_not_asked_for_each_chunk(behind: MemoryFleet) -> None:
    behind.announced.refuses += [True] * 6
    submission = behind.fleet.submit(AGENT, MANY_ROWS, batch="big").submission
    assert submission is not None
    assert (submission.created, submission.unannounced) == (3000, "refused announcement 1")
    assert (behind.announced.asked, behind.announced.run_ids) == (3, [])


class OfOneDigest(MemoryRunStore):
    """A store in which every batch's name has the digest of `one`."""

    async def open_batch(self, batch: BatchInfo) -> BatchInfo:
        return await super().open_batch(replace(batch, name=BatchName("one")))


def test_a_batch_whose_name_has_the_digest_of_another_is_refused_as_that() -> None:
    with (
        Fleet.over(OfOneDigest(FakeClock()), Announced()) as fleet,
        pytest.raises(UsageError, match="the names 'two' and 'one' have one digest"),
    ):
        fleet.submit(AGENT, ROWS, batch="two")


def test_a_budget_is_stored_with_the_batch_and_another_takes_its_place(behind: MemoryFleet) -> None:
    batch = behind.fleet.submit(AGENT, ROWS[:1], batch="nightly", budget_usd=2.5)
    assert batch.status().budget == Budget(total=2_500_000_000)
    behind.fleet.submit(AGENT, ROWS, batch="nightly", budget_usd=4)
    behind.fleet.submit(AGENT, ROWS, batch="nightly")
    assert batch.status().budget == Budget(total=4_000_000_000)
    assert all(record.run.has_budget for record in batch.records())
    plain = behind.fleet.submit(AGENT, ROWS, batch="other")
    assert plain.status().budget is None
    assert not any(record.run.has_budget for record in plain.records())


def test_a_batch_without_a_budget_gets_none_later(behind: MemoryFleet) -> None:
    behind.fleet.submit(AGENT, ROWS[:1], batch="nightly")
    with pytest.raises(UsageError, match="was submitted without a budget"):
        behind.fleet.submit(AGENT, ROWS, batch="nightly", budget_usd=1)
    assert len(list(behind.fleet.batch("nightly").records())) == 1


@pytest.mark.parametrize("usd", [0, -1, 1e-10, float("nan"), float("inf"), 1e7])
def test_a_budget_is_more_than_nothing(behind: MemoryFleet, usd: float) -> None:
    with pytest.raises(UsageError, match="is none"):
        behind.fleet.submit(AGENT, ROWS, batch="nightly", budget_usd=usd)


def test_no_budget_can_be_kept_for_a_model_of_unknown_price(behind: MemoryFleet) -> None:
    agent = replace(AGENT, model="llama-12", limits=replace(AGENT.limits, usd=None))
    with pytest.raises(UsageError, match="the price of 'llama-12' is not known"):
        behind.fleet.submit(agent, ROWS, batch="nightly", budget_usd=1)
    assert behind.fleet.batches() == []


def test_a_batch_keeps_the_agent_and_the_tenant_it_was_opened_with(behind: MemoryFleet) -> None:
    behind.fleet.submit(AGENT, ROWS, batch="nightly")
    with pytest.raises(UsageError, match="opened with another agent definition"):
        behind.fleet.submit(replace(AGENT, system="Else"), ROWS, batch="nightly")
    with pytest.raises(UsageError, match="opened with another tenant"):
        behind.fleet.submit(AGENT, ROWS, batch="nightly", tenant="other")


def test_without_a_name_the_same_command_is_the_same_batch(behind: MemoryFleet, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": "a", "prompt": "x", "service": "s"}\n')
    first = behind.fleet.submit(AGENT, path)
    assert first.name == behind.fleet.submit(AGENT, str(path)).name
    assert first.name.startswith("oncall-")
    assert len(first.name) == len("oncall-") + 12
    others = [
        behind.fleet.submit(replace(AGENT, system="Else"), path).name,
        behind.fleet.submit(AgentFile(agent=AGENT, template=read_template("{service}?")), path).name,
        behind.fleet.submit(AGENT, ROWS).name,
        behind.fleet.submit(AGENT, ROWS[:1]).name,
    ]
    assert len({first.name, *others}) == 5


def test_an_agent_file_is_loaded_with_its_prompt(behind: MemoryFleet, tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text("name: x\nmodel: claude-sonnet-5-5\nprompt: Who owns {service}?\n")
    batch = behind.fleet.submit(tmp_path / "agent.yaml", [{"id": "a", "service": "search"}], batch="b")
    story = behind.fleet.show(ids("b", "a")[0])
    assert "Who owns search?" in story.transcript[0].decode()
    assert story.batch == batch.info
    assert story.agent is not None
    assert story.agent.name == "x"


def test_results_come_in_the_order_of_the_input_whatever_ended_first(behind: MemoryFleet) -> None:
    batch = behind.fleet.submit(AGENT, ROWS, batch="nightly")
    for run in reversed(ids("nightly", "a", "c")):
        behind.finish(run)
    assert [(result.id, result.status) for result in batch.results()] == [
        ("a", Status.SUCCEEDED),
        ("b", Status.QUEUED),
        ("c", Status.SUCCEEDED),
    ]


def test_an_answer_is_returned_and_the_lack_of_one_raises_its_reason(behind: MemoryFleet) -> None:
    batch = behind.fleet.submit(AGENT, ROWS, batch="nightly")
    good, bad, _ = ids("nightly", "a", "b", "c")
    behind.finish(good)
    behind.finish(bad, Outcome(reason=StopReason.MAX_TURNS, message="no answer after 3 turns"))
    answered, stopped, waiting = batch.results()
    assert answered.answer == "Ada"
    with pytest.raises(MaxTurnsExceeded, match=f"run {bad}: no answer after 3 turns"):
        _ = stopped.answer
    with pytest.raises(ValueError, match="is queued: it has no answer yet"):
        _ = waiting.answer


def test_waiting_ends_when_every_run_is_over(behind: MemoryFleet) -> None:
    batch = behind.fleet.submit(AGENT, ROWS[:2], batch="nightly")
    seen: list[int] = []

    def finish_one(status: BatchStatus) -> None:
        seen.append(status.counts.active)
        if status.counts.active:
            behind.finish(ids("nightly", "a", "b")[len(seen) - 1])

    assert batch.wait(on_status=finish_one).is_done
    assert seen == [2, 1, 0]


def test_waiting_gives_up_at_the_timeout_and_the_batch_lives_on(behind: MemoryFleet) -> None:
    batch = behind.fleet.submit(AGENT, ROWS, batch="nightly")
    with pytest.raises(TimeoutError, match="batch 'nightly': 3 runs are not over after"):
        batch.wait(0.05)
    assert batch.status().counts.active == 3


def test_waiting_ends_when_the_record_has_lost_runs(behind: MemoryFleet) -> None:
    batch = behind.fleet.submit(AGENT, ROWS, batch="nightly")
    behind.fleet.store = MemoryRunStore(behind.clock)
    with pytest.raises(InfrastructureError, match=r"batch 'nightly': 3 of 3 runs are gone .* Submit the same rows"):
        batch.wait(5)


def test_a_batch_is_cancelled_whole(behind: MemoryFleet) -> None:
    batch = behind.fleet.submit(AGENT, ROWS, batch="nightly")
    done, running, _ = ids("nightly", "a", "b", "c")
    behind.finish(done)
    behind.fleet.loop.run(Driven(behind.store, running).begin())
    assert batch.cancel() == {Cancelled.ENDED: 1, Cancelled.REQUESTED: 1, Cancelled.CANCELLED: 1}
    assert behind.fleet.cancel(done) is Cancelled.ENDED


def test_a_decision_with_a_result_is_shown_to_the_model_bounded_and_kept_whole(behind: MemoryFleet) -> None:
    behind.fleet.submit(AGENT, ROWS[:1], batch="nightly")
    (run,) = ids("nightly", "a")
    behind.fleet.loop.run(behind.driven(run).bring_to(State.AWAITING_DECISION))
    behind.fleet.resolve(run, "c1", Ran("x" * 50_000))
    assert behind.fleet.show(run).record.run.state is State.JOINING
    whole = behind.fleet.loop.run(behind.store.whole_result(run, CallId("c1")))
    assert whole == "x" * 50_000
    results = behind.fleet.loop.run(behind.store.results(run, 1))
    assert results is not None
    assert len(results.blocks[CallId("c1")]) < 21_000


def test_where_there_is_nothing_to_decide_the_calls_in_doubt_are_named(behind: MemoryFleet) -> None:
    behind.fleet.submit(AGENT, ROWS[:1], batch="nightly")
    (run,) = ids("nightly", "a")
    behind.fleet.loop.run(behind.driven(run).bring_to(State.AWAITING_DECISION))
    with pytest.raises(
        UsageError, match=r"nothing to decide about call 'c9' of run .*, which is awaiting_decision: .*: c1"
    ):
        behind.fleet.resolve(run, "c9", NotRan())
    behind.fleet.resolve(run, "c1", NotRan())
    with pytest.raises(UsageError, match=r"which is in_tools: its calls in doubt are: none"):
        behind.fleet.resolve(run, "c1", NotRan())
    with pytest.raises(UnknownRun):
        behind.fleet.resolve("x", "c1", NotRan())


def test_a_run_that_failed_goes_on_and_one_that_did_not_is_refused(behind: MemoryFleet) -> None:
    behind.fleet.submit(AGENT, ROWS[:2], batch="nightly")
    failed, done = ids("nightly", "a", "b")
    behind.finish(failed, Outcome(reason=StopReason.MODEL_ERROR, message="400"))
    behind.finish(done)
    assert [record.run.run_id for record in behind.fleet.dead()] == [failed]
    behind.fleet.redrive(failed)
    assert behind.fleet.show(failed).record.run.state is State.TURN_DUE
    assert behind.fleet.dead() == []
    with pytest.raises(UsageError, match="is succeeded: only a run that failed or was stopped"):
        behind.fleet.redrive(done)
    with pytest.raises(UnknownRun):
        behind.fleet.redrive("x")


def test_a_batch_goes_on_with_its_failed_runs_or_with_the_stopped_ones_too(behind: MemoryFleet) -> None:
    batch = behind.fleet.submit(AGENT, ROWS, batch="nightly")
    failed, stopped, cancelled = ids("nightly", "a", "b", "c")
    behind.finish(failed, Outcome(reason=StopReason.POISON, message="3 workers"))
    behind.finish(stopped, Outcome(reason=StopReason.TOOL_ERRORS, message="no answer"))
    behind.fleet.cancel(cancelled)
    assert batch.redrive({State.FAILED}) == 1
    assert batch.redrive() == 1
    assert batch.redrive() == 0
    assert batch.status().counts.states[State.TURN_DUE] == 2


@pytest.mark.parametrize("reason", sorted(SPENT))
def test_a_run_that_has_used_up_a_limit_does_not_go_on(behind: MemoryFleet, reason: StopReason) -> None:
    batch = behind.fleet.submit(AGENT, ROWS[:1], batch="nightly")
    (run,) = ids("nightly", "a")
    behind.finish(run, Outcome(reason=reason, message="no answer"))
    assert batch.redrive() == 0
    with pytest.raises(UsageError, match=f"would only end by {reason} again.*submit as a new batch"):
        behind.fleet.redrive(run)


def test_batches_and_where_they_stand_are_readable_as_they_are(behind: MemoryFleet) -> None:
    batch = behind.fleet.submit(AGENT, ROWS, batch="nightly")
    assert repr(batch) == "<Batch 'nightly': agent 'oncall', tenant 'default'>"
    assert repr(batch.status()) == "<BatchStatus 'nightly': 3 queued>"


def test_whatever_can_go_wrong_is_caught_by_a_name_of_the_producers() -> None:
    exceptions = {ending.exception for ending in ENDINGS.values() if ending.exception}
    assert exceptions <= {getattr(producer, name) for name in producer.__all__}
    assert producer.UsageError is UsageError


def test_failed_runs_are_listed_of_one_batch_or_of_all(behind: MemoryFleet) -> None:
    for name in ("one", "two"):
        behind.fleet.submit(AGENT, ROWS[:2], batch=name)
        for run in ids(name, "a", "b"):
            behind.clock.pass_seconds(1)
            behind.finish(run, Outcome(reason=StopReason.MODEL_ERROR, message="400"))
    assert [record.run.run_id for record in behind.fleet.dead(batch="one")] == ids("one", "b", "a")
    assert [record.run.run_id for record in behind.fleet.dead(limit=3)] == [*ids("two", "b", "a"), *ids("one", "b")]


def test_a_run_of_an_agent_that_only_a_newer_version_can_read_is_shown_without_it(behind: MemoryFleet) -> None:
    newer = json.dumps(json.loads(AGENT.freeze()) | {"version": 2}).encode()
    batch = behind.fleet.submit(AGENT, ROWS[:1], batch="nightly")
    behind.fleet.loop.run(behind.store.put_agent(AGENT.digest, newer))
    assert behind.fleet.show(*ids("nightly", "a")).agent is None
    assert batch.agent() is None


def test_calls_that_a_failed_run_left_open_are_answered_truly(behind: MemoryFleet) -> None:
    behind.fleet.submit(AGENT, ROWS[:1], batch="nightly")
    (run,) = ids("nightly", "a")
    driven = behind.driven(run)

    async def fail() -> None:
        calls = [a_call("done"), a_call("begun"), a_call("waits"), a_call("paid", Effect.ONCE)]
        await driven.in_tools(*calls)
        await driven.run_call("done")
        await driven.begin_call("begun")
        await driven.doubt("paid")
        outcome = Outcome(reason=StopReason.POISON, message="3 workers")
        await behind.store.finish(await driven.now_held(), TurnWrite(), outcome)

    behind.fleet.loop.run(fail())
    behind.fleet.redrive(run)
    story = behind.fleet.show(run)
    check_whole(story.transcript)
    answers = [block["content"] for block in json.loads(story.transcript[-1])["content"]]
    assert [answer.partition(".")[0] for answer in answers] == [
        "Ada",
        "The call was begun and did not come to an end",
        "The call was not run: the run ended before it began",
        "The worker was lost while this call ran",
    ]
    assert (story.record.run.state, story.record.run.turn) == (State.TURN_DUE, 2)


def test_an_unknown_batch_names_the_nearest_one(behind: MemoryFleet) -> None:
    behind.fleet.submit(AGENT, ROWS, batch="nightly")
    with pytest.raises(UnknownBatch, match=r"did you mean 'nightly'\?"):
        behind.fleet.batch("nigthly")
    assert behind.fleet.has_batch("nightly")
    assert not behind.fleet.has_batch("nigthly")


def test_an_unknown_run_says_so(behind: MemoryFleet) -> None:
    with pytest.raises(UnknownRun, match=r"no run 'x' is on record: .* kept for 604800 s after the run's end"):
        behind.fleet.show("x")
    with pytest.raises(UnknownRun):
        behind.fleet.cancel("x")


def test_runs_of_all_batches_or_of_one(behind: MemoryFleet) -> None:
    behind.fleet.submit(AGENT, ROWS[:1], batch="one")
    behind.fleet.submit(AGENT, ROWS[1:], batch="two")
    assert len(list(behind.fleet.runs())) == 3
    assert [record.run.row_id for record in behind.fleet.runs(batch="two")] == ["b", "c"]


def test_closing_a_fleet_closes_everything() -> None:
    before = threading.active_count()
    with memory_fleet() as behind:
        assert threading.active_count() == before + 1
    assert behind.announced.is_closed
    assert threading.active_count() == before


def test_without_a_url_the_fleet_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PACELINE_REDIS_URL", raising=False)
    with pytest.raises(UsageError, match="set PACELINE_REDIS_URL"):
        Fleet()


def test_the_package_offers_its_names_and_no_others() -> None:
    import paceline.producer as producer

    assert (producer.Fleet, producer.Batch, producer.Result) == (Fleet, Batch, Result)
    with pytest.raises(AttributeError, match="has no attribute 'Flet'"):
        _ = producer.Flet


def rows_without_end() -> Iterator[dict[str, str]]:
    yield {"id": "a", "prompt": "x"}
    raise OSError("the source broke")


def test_a_source_that_breaks_submits_nothing(behind: MemoryFleet) -> None:
    with pytest.raises(OSError, match="the source broke"):
        behind.fleet.submit(AGENT, rows_without_end(), batch="nightly")
    assert behind.fleet.batches() == []
