"""One fleet of four real workers, and everything that happens to fleets; see fleet.py for what it is made of."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest
from integration.fleet import FleetPlan, RealFleet, Script, wait_until
from redis import Redis
from support.ports import free_ports
from support.scraping import Page, scraped

from paceline.core.agent import Agent, Limits
from paceline.core.ids import RunId
from paceline.core.ledger import AttemptLost, Held, PossiblyBilled
from paceline.core.lifecycle import State
from paceline.core.tool_spec import Effect, ToolSpec
from paceline.core.unknown_effect import OnUnknownEffect
from paceline.producer.children import start_child, stop_children
from paceline.producer.cli import run_command
from paceline.producer.fleet import Batch
from paceline.sim import Answer, Call, Entry, Fault, Request

WORKERS, SLOTS = 4, 16
PLAN = FleetPlan(workers=WORKERS, concurrency=SLOTS)
SOON_SECONDS = PLAN.claim_seconds + PLAN.sweep_seconds + 2
STARTS = "paceline:broker:paceline.starts"
_TESTS_FOLDER = Path(__file__).parent.parent


@dataclass(slots=True)
class Stage:
    """The fleet, and what its model says at present."""

    folder: Path
    script: Script = field(default=lambda request: None)
    real: RealFleet = field(init=False)

    @property
    def late_tools(self) -> Path:
        """A folder that the workers look for tools in."""
        return self.folder / "late"

    @contextmanager
    def playing(self, script: Script) -> Iterator[RealFleet]:
        """The fleet, complete, with a model of this script. When the block fails, the workers' logs are told."""
        self.script = script
        for _ in range(WORKERS - len(self.real.alive())):
            self.real.start_worker()
        self.real.wait_working()
        try:
            yield self.real
        except BaseException as error:
            error.add_note(self.real.log_tails())
            raise


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("fleet"))
    stage.late_tools.mkdir()
    tools = {"PACELINE_TOOLS_PATH": os.pathsep.join(map(str, (_TESTS_FOLDER, stage.late_tools)))}
    plan = FleetPlan(workers=WORKERS, concurrency=SLOTS, environment=tools)
    stage.real = RealFleet(stage.folder, lambda request: stage.script(request), plan)
    with stage.real:
        yield stage


def turns(count: int, *tools: str, delay_s: float = 0.0) -> Script:
    """So many turns: calls of these tools in each but the last."""

    def script(request: Request) -> Answer:
        if request.turn == count:
            return Answer(text="done", delay_s=delay_s)
        calls = [Call(tool=tool, input={"what": f"{request.turn}-{place}"}) for place, tool in enumerate(tools)]
        return Answer(calls=calls, delay_s=delay_s)

    return script


def telling(real: RealFleet) -> Agent:
    """An agent whose model is told of a call that may have taken effect: its runs wait for nobody."""
    return replace(real.agent(), on_unknown_effect=OnUnknownEffect.TELL)


def run_ids(batch: Batch) -> list[RunId]:
    return [record.run.run_id for record in batch.records()]


def requests(real: RealFleet, batch: Batch) -> list[Entry]:
    """What the model was asked for the runs of a batch, in the order in which it came."""
    of_batch = set(run_ids(batch))
    return sorted((e for e in real.simulator.journal if e.run in of_batch), key=lambda entry: entry.time)


def lost(real: RealFleet, batch: Batch) -> list[AttemptLost]:
    ledgers = [real.fleet.show(run_id).ledger for run_id in run_ids(batch)]
    return [entry for ledger in ledgers for entry in ledger if isinstance(entry, AttemptLost)]


def check_one_request_a_turn(real: RealFleet, batch: Batch, *, count: int) -> None:
    """Every run asked once for each of its turns, with all it had said before, and its results in id order."""
    asked = requests(real, batch)
    for run_id in run_ids(batch):
        of_run = [entry for entry in asked if entry.run == run_id]
        assert [entry.turn for entry in of_run] == list(range(1, count + 1))
        assert all(later.tool_result_ids == earlier.tool_use_ids for earlier, later in pairwise(of_run))
        assert real.simulator.journal.grows_by_appending(run_id)
    assert real.simulator.journal.rejected() == []


def check_nothing_paid_twice(real: RealFleet) -> None:
    paid = [effect.key for effect in real.effects() if effect.tool == "pay"]
    assert len(paid) == len(set(paid))


def all_answered(real: RealFleet, batch: Batch) -> None:
    assert real.wait_ended(batch).counts.reasons == {"final_answer": len(run_ids(batch))}


def test_every_row_has_one_result_and_every_turn_one_request(stage: Stage) -> None:
    with stage.playing(turns(4, "fetch", "pay", "put")) as real:
        batch = real.submit(200, batch="plain")
        all_answered(real, batch)
        results = list(batch.results())
        assert [result.id for result in results] == [str(number) for number in range(200)]
        assert {(result.status, result.answer, result.turns, result.tool_calls) for result in results} == {
            ("succeeded", "done", 4, 9)
        }
        check_one_request_a_turn(real, batch, count=4)
        check_nothing_paid_twice(real)


def test_chords_leave_nothing_in_the_broker(stage: Stage) -> None:
    with stage.playing(turns(6, "fetch", "fetch")) as real, Redis.from_url(real.url) as redis:
        before = len(redis.pubsub_channels())
        all_answered(real, real.submit(40, batch="chords"))
        assert len(redis.pubsub_channels()) == before == 0
        assert [key for key in redis.scan_iter("*") if not key.startswith(b"paceline:")] == []


def test_a_killed_worker_costs_only_the_calls_it_had_in_flight(stage: Stage) -> None:
    with stage.playing(turns(4, "fetch", "pay", delay_s=0.2)) as real:
        batch = real.submit(60, batch="killed", agent=telling(real))
        wait_until(lambda: len(requests(real, batch)) > 60, "runs are under way")
        victim = real.alive()[0]
        incarnations = real.incarnations(victim)
        real.kill(victim)
        killed_at = time.time()
        all_answered(real, batch)
        given_up = [entry for entry in lost(real, batch) if entry.worker in incarnations]
        extra = len(requests(real, batch)) - 4 * 60
        assert 0 <= extra <= len(given_up) <= SLOTS
        assert all(entry.at_ms / 1000 < killed_at + SOON_SECONDS for entry in given_up)
        assert real.simulator.journal.rejected() == []
        check_nothing_paid_twice(real)


def test_a_worker_that_is_told_to_stop_leaves_nothing_half_done(stage: Stage) -> None:
    with stage.playing(turns(4, "fetch", "pay", delay_s=0.2)) as real:
        batch = real.submit(60, batch="stopped")
        wait_until(lambda: len(requests(real, batch)) > 30, "runs are under way")
        assert real.terminate(real.alive()[0]) == 0
        all_answered(real, batch)
        assert lost(real, batch) == []
        check_one_request_a_turn(real, batch, count=4)


def test_a_worker_without_time_gives_back_what_it_has(stage: Stage) -> None:
    """Longer calls than the grace: they are given back, and nobody waits for a claim to run out."""
    with stage.playing(turns(1, delay_s=PLAN.grace_seconds + 2)) as real:
        batch = real.submit(30, batch="no time")
        wait_until(lambda: sum(w.in_flight for w in real.fleet.workers()) == 30, "every run is in its turn")
        victim = real.alive()[0]
        incarnations = real.incarnations(victim)
        assert real.terminate(victim) == 0
        stopped_at = time.time()
        assert all(entry.at_ms / 1000 <= stopped_at for entry in lost(real, batch))
        wait_until(
            lambda: all(record.run.owner not in incarnations for record in batch.records()), "its turns are taken"
        )
        assert time.time() < stopped_at + PLAN.claim_seconds
        batch.cancel()
        wait_until(lambda: batch.status().is_done, "what is left of the batch is cancelled")


def test_lost_messages_are_sent_again(stage: Stage) -> None:
    with stage.playing(turns(2, "fetch", delay_s=0.4)) as real, Redis.from_url(real.url) as redis:
        batch = real.submit(120, batch="lost")
        assert redis.llen(STARTS) > 10, "there is a backlog"
        redis.delete(STARTS)
        all_answered(real, batch)
        check_one_request_a_turn(real, batch, count=2)


def test_messages_that_come_twice_do_nothing(stage: Stage) -> None:
    with stage.playing(turns(2, "fetch", "pay", delay_s=0.3)) as real, Redis.from_url(real.url) as redis:
        batch = real.submit(120, batch="doubled")
        waiting: Sequence[bytes] = redis.lrange(STARTS, 0, -1)
        assert len(waiting) > 10, "there is a backlog"
        redis.lpush(STARTS, *waiting)
        redis.rpush(STARTS, *waiting)
        all_answered(real, batch)
        check_one_request_a_turn(real, batch, count=2)
        check_nothing_paid_twice(real)


def test_the_workers_outlive_a_server_that_is_killed_and_comes_back(stage: Stage) -> None:
    with stage.playing(turns(4, "fetch", "pay", "look", delay_s=0.1)) as real:
        batch = real.submit(60, batch="server", agent=telling(real))
        wait_until(lambda: len(requests(real, batch)) > 60, "runs are under way")
        workers = real.alive()
        real.restart_valkey(away_s=0.5)
        all_answered(real, batch)
        assert real.alive() == workers
        assert real.simulator.journal.rejected() == []
        check_nothing_paid_twice(real)


def said(real: RealFleet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *command: str) -> str:
    """What a command of an operator's prints."""
    monkeypatch.setenv("PACELINE_REDIS_URL", real.url)
    capsys.readouterr()
    run_command(command)
    return capsys.readouterr().out


def test_runs_wait_for_tools_that_no_worker_can_import(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    late = ToolSpec(
        name="ask",
        path="late_tools:ask",
        description="Ask.",
        input_schema={"type": "object", "properties": {}},
        effect=Effect.READS,
    )
    agent = Agent(name="late", model="claude-sonnet-5-5", tools=(late,), limits=Limits(usd=None))

    def script(request: Request) -> Answer:
        return Answer(text="done") if request.turn == 2 else Answer(calls=[Call(tool="ask")])

    with stage.playing(script) as real:
        batch = real.submit(5, batch="late tools", agent=agent)
        wait_until(lambda: {r.run.state for r in batch.records()} == {State.ON_HOLD}, "the runs wait")
        assert all("late_tools" in record.run.hold_reason for record in batch.records())
        wait_until(lambda: any("late_tools" in " ".join(w.problems) for w in real.fleet.workers()), "a worker says so")
        assert requests(real, batch) == []
        status = said(real, capsys, monkeypatch, "status", "late tools")
        assert "waiting: 5 on hold: " in status
        assert " of 4 workers say: " in status
        assert "late_tools:ask" in status
        doctor = said(real, capsys, monkeypatch, "doctor")
        assert re.search(r"^warn  worker \S+: .*late_tools:ask", doctor, re.MULTILINE)
        (stage.late_tools / "late_tools.py").write_text(
            "from paceline.tools import tool\n\n\n"
            '@tool(effect="reads")\ndef ask() -> str:\n    """Ask."""\n    return "asked"\n'
        )
        all_answered(real, batch)


def test_a_cancelled_run_closes_its_connection_and_makes_no_further_call(stage: Stage) -> None:
    with stage.playing(turns(2, "fetch")) as real:
        real.simulator.inject(Fault("never_answers", seconds=60), times=3)
        batch = real.submit(3, batch="cancelled")
        wait_until(lambda: {r.run.state for r in batch.records()} == {State.IN_TURN}, "the model is being called")
        batch.cancel()
        wait_until(lambda: batch.status().is_done, "the runs are cancelled", timeout_s=SOON_SECONDS)
        assert batch.status().counts.reasons == {"cancelled": 3}
        wait_until(lambda: len(requests(real, batch)) == 3, "the connections are closed")
        assert [entry.delivered for entry in requests(real, batch)] == [False] * 3


def test_runs_that_find_no_room_wait_and_lose_nothing(stage: Stage) -> None:
    with stage.playing(turns(3, "fetch", delay_s=0.1)) as real:
        real.simulator.inject(Fault("rate_limited", retry_after=2), for_s=1.0)
        batch = real.submit(40, batch="storm")
        all_answered(real, batch)
        refused = [entry for entry in requests(real, batch) if entry.status == 429]
        assert 0 < len(refused) <= 40
        ledgers = [real.fleet.show(run_id).ledger for run_id in run_ids(batch)]
        assert all(any(isinstance(entry, Held) for entry in ledger) for ledger in ledgers)
        assert lost(real, batch) == []
        assert len(requests(real, batch)) == len(refused) + 3 * 40


def test_what_was_begun_is_finished_before_more_is_begun(stage: Stage) -> None:
    with stage.playing(turns(3, "fetch", delay_s=0.1)) as real:
        batch = real.submit(200, batch="order")
        all_answered(real, batch)
        under_way = most = 0
        for entry in requests(real, batch):
            under_way += entry.turn == 1
            most = max(most, under_way)
            under_way -= entry.turn == 3
        assert most <= 1.5 * WORKERS * SLOTS


@contextmanager
def exporting(stage: Stage) -> Iterator[str]:
    """The address of an exporter of the fleet."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "paceline.producer.cli", "exporter", "--port", str(port), "--every", "0.2"]
    environment = {**os.environ, "PACELINE_REDIS_URL": stage.real.url}
    exporter = start_child("exporter", command, environment=environment, log=stage.folder / "exporter.log")
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stop_children([exporter], grace_seconds=10)


def told(url: str, agent: str) -> Page | None:
    """The metrics, once there are any of this agent and none of its runs is active."""
    try:
        page = scraped(url)
    except OSError:
        return None
    active = page.of("agent_active_runs", agent=agent)
    return page if active and not any(active.values()) else None


def test_the_metrics_add_up_exactly_whoever_was_killed(stage: Stage) -> None:
    with stage.playing(turns(3, "fetch", "look", delay_s=0.1)) as real, exporting(stage) as url:
        agent = replace(telling(real), name="measured")
        batch = real.submit(60, batch="measured", agent=agent)
        wait_until(lambda: len(requests(real, batch)) > 40, "runs are under way")
        real.kill(real.alive()[0])
        all_answered(real, batch)
        wait_until(lambda: told(url, "measured") is not None, "the exporter has seen the end")
        page, counts = scraped(url), batch.status().counts
        runs = page.of("agent_runs_total", agent="measured")
        assert {dict(labels)["stop_reason"]: value for labels, value in runs.items() if value} == {"final_answer": 60}
        by_model = {"gen_ai_request_model": agent.model, "gen_ai_agent_name": "measured"}
        tokens = "gen_ai_client_inference_usage_{}_tokens_total"
        assert page.value(tokens.format("input"), **by_model) == counts.spent.usage.all_input
        assert page.value(tokens.format("cache_read_input"), **by_model) == counts.spent.usage.cache_read
        assert page.value(tokens.format("output"), **by_model) == counts.spent.usage.output
        cost_usd = page.value("agent_cost_usd_total", agent="measured", model=agent.model)
        assert cost_usd == pytest.approx(counts.spent.cost_nanousd / 1e9)
        assert page.value("agent_run_cost_usd_sum", agent="measured") == pytest.approx(cost_usd)
        assert page.value("agent_run_turns_sum", agent="measured", outcome="succeeded") == counts.turns == 180
        assert page.value("gen_ai_invoke_agent_tool_calls_sum", gen_ai_agent_name="measured") == counts.spent.tool_calls
        ledgers = [real.fleet.show(run_id).ledger for run_id in run_ids(batch)]
        maybe = sum(isinstance(entry, PossiblyBilled) for ledger in ledgers for entry in ledger)
        assert page.value("agent_possibly_billed_twice_total", agent="measured") == maybe
        assert page.value("agent_queue_depth", queue="paceline.turns") == 0
        assert page.value("agent_workers") >= 3


def test_nothing_is_left_in_the_record_for_ever(stage: Stage) -> None:
    with stage.playing(turns(2, "fetch", "look")) as real, Redis.from_url(real.url) as redis:
        all_answered(real, real.submit(5, batch="traces"))
        lasting = {key for key in redis.scan_iter("*") if redis.ttl(key) == -1}
        assert {key for key in lasting if not key.startswith(b"paceline:broker:")} == set()
        assert all(not redis.llen(key) for key in lasting if redis.type(key) == b"list")
