"""A tool that takes its process down takes nothing else with it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from integration.fleet import FleetPlan, RealFleet, wait_until

from paceline.core.ledger import CallRan
from paceline.core.lifecycle import State
from paceline.core.unknown_effect import OnUnknownEffect
from paceline.producer.decide import Ran
from paceline.producer.fleet import Batch
from paceline.sim import Answer, Call
from paceline.sim.request import Request
from paceline.store.port import RunRecord
from paceline.tools import Registry

DEADLY = ("crash", "crash_once", "hoard", "hang")
HARMLESS = 12
PLAN = FleetPlan(
    workers=1, pool="prefork", concurrency=4, claim_seconds=2.0, environment={"PACELINE_TOOL_MEMORY_MB": "512"}
)


def script(request: Request) -> Answer:
    """The prompt names the tool of the first turn; then the run is done."""
    if request.turn > 1:
        return Answer(text="done")
    return Answer(calls=[Call(tool=request.first_user_text, input={"what": "x"})])


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealFleet]:
    with RealFleet(tmp_path, script, PLAN) as real:
        real.wait_working(PLAN.concurrency)
        yield real


def submitted(real: RealFleet, *tools: str) -> Batch:
    deadly = tuple(Registry().load(f"integration.deadly_tools:{tool}").spec for tool in DEADLY)
    agent = real.agent(tools=("fetch",), on_unknown_effect=OnUnknownEffect.WAIT)
    rows = [{"id": f"{number}-{tool}", "prompt": tool} for number, tool in enumerate(tools)]
    return real.fleet.submit(replace(agent, tools=(*agent.tools, *deadly)), rows, batch="deadly")


def by_tool(batch: Batch) -> dict[str, RunRecord]:
    return {record.run.row_id.partition("-")[2]: record for record in batch.records()}


def is_settled(record: RunRecord) -> bool:
    return record.run.state.is_terminal or record.run.state is State.AWAITING_DECISION


def test_a_deadly_tool_takes_its_own_run_down_and_no_other(real: RealFleet) -> None:
    batch = submitted(real, *DEADLY, *["fetch"] * HARMLESS)
    wait_until(lambda: all(map(is_settled, batch.records())), "every run has come to something", timeout_s=90)
    ended = by_tool(batch)
    assert (ended["crash"].run.state, ended["crash"].reason) == (State.FAILED, "poison")
    assert (ended["hang"].run.state, ended["hang"].reason) == (State.FAILED, "poison")
    assert ended["crash_once"].run.state is State.AWAITING_DECISION
    assert ended["hoard"].answer == "done", "Python tells of memory that it does not get, and the model is told"
    assert batch.status().counts.reasons == {"poison": 2, "final_answer": HARMLESS + 1}
    wait_until(lambda: len(real.fleet.workers()) == PLAN.concurrency, "every process that died has a successor")
    real.fleet.redrive(ended["crash"].run.run_id)
    wait_until(
        lambda: by_tool(batch)["crash"].answer == "done", "the model is told that the call did not end, and goes on"
    )


def test_a_call_that_died_is_settled_by_a_person_and_its_worker_can_be_quit(
    real: RealFleet,
) -> None:
    batch = submitted(real, "crash_once")
    wait_until(lambda: all(map(is_settled, batch.records())), "a decision is awaited")
    (record,) = batch.records()
    (call,) = real.fleet.show(record.run.run_id).calls
    real.fleet.resolve(record.run.run_id, call.call.call_id, Ran("42"))
    assert real.wait_ended(batch).counts.reasons == {"final_answer": 1}
    (worker,) = real.workers
    worker.process.send_signal(signal.SIGQUIT)
    worker.process.wait(30)
    assert "AttributeError" not in worker.log.read_text()
    ran = [entry for entry in real.fleet.show(record.run.run_id).ledger if isinstance(entry, CallRan)]
    assert [entry.attempt for entry in ran] == [1], "it was not run again"
