"""Processes that died elsewhere and took a chord or a queue with them. See docs/failure-stories.md."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from integration.fleet import FleetPlan, RealFleet, Script, wait_until

from paceline.core.ids import Incarnation
from paceline.core.ledger import AttemptLost, CallRan
from paceline.core.lifecycle import State
from paceline.producer.fleet import Batch
from paceline.sim import Answer, Call, Request
from paceline.tools import Registry

PLAN = FleetPlan(pool="prefork", workers=2, concurrency=2, claim_seconds=4.0)
SOON_SECONDS = PLAN.claim_seconds + PLAN.sweep_seconds + 4  # what is left of it is for a busy machine
RUNS = 8


@dataclass(slots=True)
class Stage:
    """A forked fleet, and what its model says at present."""

    script: Script = field(default=lambda request: None)
    real: RealFleet = field(init=False)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage()
    stage.real = RealFleet(tmp_path_factory.mktemp("forked"), lambda request: stage.script(request), PLAN)
    with stage.real:
        stage.real.wait_working(PLAN.workers * PLAN.concurrency)
        yield stage


def eight_calls(request: Request) -> Answer:
    """The fifth of them takes its process down, the first time."""
    if request.turn > 1:
        return Answer(text="done")
    tools = ["fetch"] * 4 + ["die_once"] + ["fetch"] * 3
    return Answer(calls=[Call(tool=tool, input={"what": f"{place}"}) for place, tool in enumerate(tools)])


def test_a_process_that_dies_in_one_of_eight_calls_is_joined_once_with_all_results_in_order(stage: Stage) -> None:
    stage.script, real = eight_calls, stage.real
    deadly = Registry().load("stories.story_tools:die_once").spec
    agent = real.agent(tools=("fetch",))
    batch = real.submit(1, batch="eight calls", agent=replace(agent, tools=(*agent.tools, deadly)))
    assert real.wait_ended(batch).counts.reasons == {"final_answer": 1}
    (run_id,) = [record.run.run_id for record in batch.records()]
    asked, results = [
        json.loads(part)["content"] for part in real.fleet.loop.run(real.fleet.store.transcript(run_id))[1:3]
    ]
    assert [block["tool_use_id"] for block in results] == [block["id"] for block in asked]
    assert [block["content"] for block in results] == [f"fetch {at}" if at != 4 else "survived" for at in range(8)]
    ledger = real.fleet.show(run_id).ledger
    assert len([entry for entry in real.simulator.journal if entry.run == run_id]) == 2, ledger
    ran = Counter(entry.call for entry in ledger if isinstance(entry, CallRan))
    assert set(ran.values()) == {1}


def test_the_turns_of_a_worker_whose_main_process_is_killed_are_taken_within_a_claim(stage: Stage) -> None:
    stage.script, real = (lambda request: Answer(text="done", delay_s=1.0)), stage.real
    batch = real.submit(RUNS, batch="main process")
    victim = real.workers[0]
    owners = real.incarnations(victim)
    wait_until(lambda: held_by(batch, owners) == PLAN.concurrency, "the worker has all the turns it can have")
    os.kill(victim.process.pid, signal.SIGKILL)
    victim.process.wait()
    killed_at = time.time()
    assert real.wait_ended(batch).counts.reasons == {"final_answer": RUNS}
    ledgers = [real.fleet.show(record.run.run_id).ledger for record in batch.records()]
    lost = [entry for ledger in ledgers for entry in ledger if isinstance(entry, AttemptLost)]
    assert {entry.worker for entry in lost} <= {*owners}
    assert all(entry.at_ms / 1000 < killed_at + SOON_SECONDS for entry in lost)


def held_by(batch: Batch, owners: list[Incarnation]) -> int:
    return sum(record.run.state is State.IN_TURN and record.run.owner in owners for record in batch.records())
