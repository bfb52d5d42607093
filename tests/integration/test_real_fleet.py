"""The harness, and with it the main job: runs end though workers and the server die under them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from integration.fleet import FleetPlan, RealFleet, wait_until

from paceline.sim import Answer, Call
from paceline.sim.request import Request

TURNS = 4


def busy_script(request: Request) -> Answer:
    """Three turns with two calls each, one of them of a tool with an effect, and an answer."""
    if request.turn == TURNS:
        return Answer(text="done")
    effectful = ("put", "pay", "look")[request.turn % 3]
    calls = [Call(tool=tool, input={"what": f"{request.turn}"}) for tool in ("fetch", effectful)]
    return Answer(calls=calls, delay_s=0.05)


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_runs_end_while_a_worker_is_killed_and_another_one_comes(
    tmp_path: Path, pool: Literal["threads", "prefork"]
) -> None:
    concurrency = 4 if pool == "prefork" else 16
    with RealFleet(tmp_path, busy_script, FleetPlan(pool=pool, concurrency=concurrency)) as real:
        real.wait_working()
        batch = real.submit(20)
        wait_until(lambda: len(real.simulator.journal) > 5, "runs are under way")
        real.kill(real.workers[0])
        real.start_worker()
        status = real.wait_ended(batch)
        assert status.counts.reasons == {"final_answer": 20}
        assert real.simulator.journal.rejected() == []


@pytest.mark.parametrize(
    "disturb",
    [
        pytest.param(lambda real: real.restart_valkey(), id="the server is killed and started again"),
        pytest.param(lambda real: real.terminate(real.workers[0]), id="a worker is told to stop"),
        pytest.param(lambda real: real.freeze(real.workers[0]), id="a worker is frozen"),
    ],
)
def test_runs_end_whatever_happens_to_half_of_the_fleet(tmp_path: Path, disturb: Callable[[RealFleet], object]) -> None:
    with RealFleet(tmp_path, busy_script) as real:
        real.wait_working()
        batch = real.submit(20)
        wait_until(lambda: len(real.simulator.journal) > 5, "runs are under way")
        disturb(real)
        assert real.wait_ended(batch).counts.reasons == {"final_answer": 20}
        assert {effect.run for effect in real.effects()} == {record.run.run_id for record in batch.records()}
