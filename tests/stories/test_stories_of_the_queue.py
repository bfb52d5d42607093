"""What queues and brokers did to runs elsewhere, done to a real fleet. See docs/failure-stories.md."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pytest
from integration.fleet import FleetPlan, RealFleet, Script, wait_until
from redis import Redis
from stories.impatient_app import DELIVERIES_VARIABLE, VISIBILITY_S
from stories.story_tools import SHUFFLED
from support.proxy import Proxy, running_proxy

from paceline.core.agent import Agent
from paceline.core.ids import RunId
from paceline.core.ledger import AttemptLost, ModelCalled
from paceline.core.transcript import Fragment
from paceline.producer.fleet import Batch
from paceline.sim import Answer, Call, Entry, Fault, Request
from paceline.tools import Registry

WORKERS = 4
CLAIM_SECONDS = 2.0
UNACKED = "paceline:broker:unacked"
TURN_TASK, JOIN_TASK = "paceline.turn", "paceline.join"


@dataclass(slots=True)
class Stage:
    """A fleet that reaches its server by a proxy, of a broker that gives messages up after a second."""

    proxy: Proxy
    deliveries_path: Path
    script: Script = field(default=lambda request: None)
    real: RealFleet = field(init=False)

    def submit(self, batch: str, script: Script, *, runs: int = 1, agent: Agent | None = None) -> Batch:
        self.script = script
        return self.real.submit(runs, batch=batch, agent=agent)

    def agent_with(self, *tools: str) -> Agent:
        """An agent with these functions of `story_tools`."""
        registry = Registry()
        specs = tuple(registry.load(f"stories.story_tools:{name}").spec for name in tools)
        return replace(self.real.agent(), tools=specs)

    def requests(self, batch: Batch) -> list[Entry]:
        """What the model was asked for the runs of a batch."""
        of_batch = {record.run.run_id for record in batch.records()}
        return [entry for entry in self.real.simulator.journal if entry.run in of_batch]

    def deliveries(self, run_id: RunId, task: str) -> int:
        """How often a message of this task came to a worker for this run."""
        lines = self.deliveries_path.read_text().splitlines()
        return sum(json.loads(line)[:2] == [task, run_id] for line in lines)

    def all_answered(self, batch: Batch, *, timeout_s: float = 60) -> None:
        reasons = self.real.wait_ended(batch, timeout_s=timeout_s).counts.reasons
        assert reasons == {"final_answer": len(run_ids(batch))}, self.real.log_tails()

    def lost_attempts(self, batch: Batch) -> int:
        ledgers = [self.real.fleet.show(run_id).ledger for run_id in run_ids(batch)]
        return sum(isinstance(entry, AttemptLost) for ledger in ledgers for entry in ledger)

    def transcript(self, run_id: RunId) -> Sequence[Fragment]:
        return self.real.fleet.loop.run(self.real.fleet.store.transcript(run_id))

    def is_settled(self) -> bool:
        """Whether the broker holds no message, queued or delivered."""
        with Redis.from_url(self.real.url) as redis:
            queues = ("paceline.tools", "paceline.turns", "paceline.starts")
            queued = sum(int(redis.llen(f"paceline:broker:{queue}")) for queue in queues)
            return queued + sum(int(redis.hlen(key)) for key in redis.scan_iter(f"{UNACKED}*", _type="HASH")) == 0


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("queue")
    with running_proxy() as proxy:
        environment = {
            "PACELINE_REDIS_URL": f"redis://127.0.0.1:{proxy.port}/0",
            DELIVERIES_VARIABLE: str(folder / "deliveries"),
        }
        plan = FleetPlan(workers=0, claim_seconds=CLAIM_SECONDS, app="stories.impatient_app", environment=environment)
        stage = Stage(proxy, folder / "deliveries")
        stage.real = RealFleet(folder, lambda request: stage.script(request), plan)
        with stage.real as real:
            proxy.target_port = real.valkey.port
            for _ in range(WORKERS):
                real.start_worker()
            real.wait_working(WORKERS)
            yield stage


def run_ids(batch: Batch) -> list[RunId]:
    return [record.run.run_id for record in batch.records()]


def answers(delay_s: float = 0.0) -> Script:
    return lambda request: Answer(text="done", delay_s=delay_s)


def test_a_model_reply_that_takes_longer_than_the_brokers_patience_is_called_for_once(stage: Stage) -> None:
    batch = stage.submit("long reply", answers(delay_s=2.5 * VISIBILITY_S))
    (run_id,) = run_ids(batch)
    stage.all_answered(batch)
    assert stage.deliveries(run_id, TURN_TASK) > 1, "the broker gave the message up, and another worker had it"
    assert len(stage.requests(batch)) == 1
    assert len(stage.transcript(run_id)) == 2
    assert stage.lost_attempts(batch) == 0


def is_acknowledgement(sent: bytes) -> bool:
    """A message taken off those that are under way, and not put back into its queue."""
    return sent.find(b"HDEL\r\n") >= 0 and sent.find(UNACKED.encode()) >= 0 and sent.find(b"PUSH") < 0


def test_acknowledgements_that_are_lost_on_the_way_cost_no_second_call(stage: Stage) -> None:
    def asks_first(request: Request) -> Answer:
        if request.turn > 1:
            return Answer(text="done")
        return Answer(calls=[Call(tool=tool, input={"what": "x"}) for tool in ("pay", "fetch")])

    before = stage.proxy.lost
    stage.proxy.loses = is_acknowledgement
    try:
        batch = stage.submit("lost acks", asks_first, runs=4)
        stage.all_answered(batch)
        firsts = run_ids(batch)
        wait_until(lambda: any(stage.deliveries(run, TURN_TASK) > 2 for run in firsts), "messages came again")
    finally:
        stage.proxy.loses = lambda sent: False
    assert stage.proxy.lost > before
    wait_until(stage.is_settled, "every message is acknowledged in the end")
    assert len(stage.requests(batch)) == 2 * 4
    assert all(len(stage.transcript(run_id)) == 4 for run_id in firsts)
    paid = Counter(effect.key for effect in stage.real.effects() if effect.run in firsts and effect.tool == "pay")
    assert set(paid.values()) == {1}
    assert stage.lost_attempts(batch) == 0


@pytest.mark.parametrize("runs", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_turns_held_longer_than_the_brokers_patience_are_executed_once_each(stage: Stage, runs: int) -> None:
    stage.real.simulator.inject(Fault("rate_limited", retry_after=3), for_s=1.0)
    batch = stage.submit(f"held {runs}", answers(), runs=runs)
    stage.all_answered(batch)
    answered = Counter(entry.run for entry in stage.requests(batch) if entry.billed)
    assert len(answered) == answered.total() == runs
    assert stage.lost_attempts(batch) == 0


def test_a_worker_whose_connections_are_cut_while_it_idles_takes_work_at_once(stage: Stage) -> None:
    workers = stage.real.alive()
    with Redis.from_url(stage.real.url) as redis:
        for _ in range(5):
            redis.client_kill_filter(_type="normal", skipme=True)
            time.sleep(0.3)  # as long as it takes to connect anew, and be cut again
    takers: set[str] = set()
    numbers = count()

    def all_take_work() -> bool:
        batch = stage.submit(f"after the cuts {next(numbers)}", answers(), runs=8)
        stage.all_answered(batch)
        takers.update(entry.worker for run_id in run_ids(batch) for entry in called(stage, run_id))
        return len(takers) == WORKERS

    wait_until(all_take_work, "every worker takes work again", timeout_s=20)
    assert stage.real.alive() == workers


def called(stage: Stage, run_id: RunId) -> list[ModelCalled]:
    return [entry for entry in stage.real.fleet.show(run_id).ledger if isinstance(entry, ModelCalled)]


def test_a_server_that_pauses_in_the_midst_of_a_long_turn_takes_it_from_nobody(stage: Stage) -> None:
    batch = stage.submit("paused", answers(delay_s=1.25 * CLAIM_SECONDS))
    wait_until(lambda: all(record.run.owner for record in batch.records()), "the turn has begun")
    with Redis.from_url(stage.real.url) as redis:
        redis.client_pause(int(1000 * CLAIM_SECONDS / 2))
    stage.all_answered(batch)
    assert len(stage.requests(batch)) == 1
    assert stage.lost_attempts(batch) == 0


def test_a_tool_that_starts_a_celery_group_is_joined_once(stage: Stage) -> None:
    def asks_first(request: Request) -> Answer:
        if request.turn > 1:
            return Answer(text="done")
        return Answer(calls=[Call(tool="fan", input={"what": what}) for what in ("a", "b", "c")])

    batch = stage.submit("groups", asks_first, agent=stage.agent_with("fan"))
    (run_id,) = run_ids(batch)
    stage.all_answered(batch)
    notes = {f"{what}-{part}" for what in "abc" for part in range(3)}
    wait_until(lambda: notes <= {what for what in notes if stage.deliveries(RunId(what), "stories.note")}, "all came")
    assert len(stage.requests(batch)) == 2
    assert len(stage.transcript(run_id)) == 4
    assert stage.deliveries(run_id, JOIN_TASK) == 1


def test_forty_turns_over_four_workers_keep_to_one_prefix_and_to_the_cache(stage: Stage) -> None:
    def looks(request: Request) -> Answer:
        if request.turn == 40:
            return Answer(text="done")
        names = [SHUFFLED[(request.turn + place) % len(SHUFFLED)] for place in range(12)]
        return Answer(calls=[Call(tool=name, input={"what": f"{request.turn}-{at}"}) for at, name in enumerate(names)])

    agent = replace(stage.agent_with(*SHUFFLED), system="You look things up. " * 150)
    agent = replace(agent, limits=replace(agent.limits, turns=None))
    batch = stage.submit("cache", looks, agent=agent)
    (run_id,) = run_ids(batch)
    stage.all_answered(batch)
    assert len({entry.worker for entry in called(stage, run_id)}) > 2, "the run went from worker to worker"
    assert len({entry.prefix_sha256 for entry in stage.requests(batch)}) == 1
    assert stage.real.simulator.journal.grows_by_appending(run_id)
    usage = stage.real.simulator.journal.usage_totals(run_id)
    read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    assert read / (read + written + usage.input_tokens) > 0.8
