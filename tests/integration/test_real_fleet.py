"""The harness itself, with the pool that forks: the worker that dies is a parent with its children."""

from __future__ import annotations

from pathlib import Path

from integration.fleet import FleetPlan, RealFleet, wait_until

from paceline.core.lifecycle import State
from paceline.sim import Answer, Call
from paceline.sim.request import Request

RUNS = 12
TURNS = 4


def busy_script(request: Request) -> Answer:
    """Three turns with two calls each, one of them of a tool with an effect, and an answer."""
    if request.turn == TURNS:
        return Answer(text="done")
    effectful = ("put", "put", "look")[request.turn % 3]
    calls = [Call(tool=tool, input={"what": f"{request.turn}"}) for tool in ("fetch", effectful)]
    return Answer(calls=calls, delay_s=0.05)


def test_runs_end_though_a_worker_dies_with_all_its_children(tmp_path: Path) -> None:
    with RealFleet(tmp_path, busy_script, FleetPlan(pool="prefork", concurrency=2, claim_seconds=2)) as real:
        real.wait_working(4)
        batch = real.submit(RUNS)
        wait_until(lambda: len(real.simulator.journal) > 5, "runs are under way")
        assert len(real.incarnations(real.workers[0])) == 2
        real.kill(real.workers[0])
        assert real.wait_ended(batch).counts.reasons == {"final_answer": RUNS}
        assert {effect.run for effect in real.effects()} == {record.run.run_id for record in batch.records()}


def test_a_forked_worker_without_time_gives_back_what_it_has(tmp_path: Path) -> None:
    plan = FleetPlan(pool="prefork", concurrency=2, workers=1, claim_seconds=300, grace_seconds=0.5)
    with RealFleet(tmp_path, lambda _: Answer(text="done", delay_s=4), plan) as real:
        real.wait_working(2)
        batch = real.submit(2)
        wait_until(lambda: batch.status().counts.states[State.IN_TURN] == 2, "both runs are in their turn")
        assert real.terminate(real.workers[0]) == 0
        assert [record.run.state for record in batch.records()] == [State.TURN_DUE, State.TURN_DUE]
        real.start_worker()
        assert real.wait_ended(batch).counts.reasons == {"final_answer": 2}
