"""Whoever restarts workers by `paceline-probe` restarts those that stand still, and no others."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

import pytest
from integration.fleet import FleetPlan, RealFleet, wait_until

from paceline.producer.fleet import Batch
from paceline.sim import Answer, Call
from paceline.sim.request import Request
from paceline.tools import Registry

Pool = Literal["threads", "prefork"]

PROBE = Path(__file__).parents[2] / "worker" / "paceline-probe"
CONCURRENCY = 3
NO_TOOL = "none"
PATIENCE_SECONDS = 0.45
STALE_SECONDS = 1.2
"""What the probe allows: several times the pause between two touches."""


class WatchedFleet(RealFleet):
    """One worker with a health file."""

    def __init__(self, folder: Path, pool: Pool) -> None:
        self.health_file = folder / "alive"
        health = {
            "PACELINE_HEALTH_FILE": str(self.health_file),
            "PACELINE_HEALTH_SECONDS": str(PATIENCE_SECONDS),
        }
        plan = FleetPlan(
            workers=1, pool=pool, concurrency=CONCURRENCY, app="integration.sleepy_app", environment=health
        )
        super().__init__(folder, script, plan)

    @property
    def processes(self) -> int:
        """How many of its processes carry out tasks."""
        return CONCURRENCY if self.plan.pool == "prefork" else 1

    def calls_in_flight(self) -> int:
        return sum(report.in_flight for report in self.fleet.workers())

    def is_well(self) -> bool:
        """What the probe says."""
        environment = {**os.environ, "PACELINE_HEALTH_FILE": str(self.health_file)}
        probe = subprocess.run([PROBE, str(STALE_SECONDS)], env=environment, stderr=subprocess.DEVNULL, check=False)
        return probe.returncode == 0

    def wait_well(self) -> None:
        wait_until(self.is_well, "the probe says that the worker is well")

    def wait_stale(self) -> None:
        wait_until(lambda: not self.is_well(), "the probe says that the worker stands still")

    def stays_well(self, seconds: float) -> bool:
        """Whether the probe found no fault for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not self.is_well():
                return False
            time.sleep(0.1)
        return True


def script(request: Request) -> Answer:
    """The prompt names the tool that the first turn calls, if any; then the run is done."""
    tool = request.first_user_text
    if request.turn > 1 or tool == NO_TOOL:
        return Answer(text="done")
    return Answer(calls=[Call(tool=tool, input={"what": "x"} | ({"seconds": 2.0} if tool == "fetch" else {}))])


@pytest.fixture(scope="module", params=["threads", "prefork"])
def watched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedFleet]:
    watched = WatchedFleet(tmp_path_factory.mktemp("watched"), cast(Pool, request.param))
    with watched:
        watched.wait_working(watched.processes)
        watched.wait_ended(
            submit(watched, NO_TOOL, batch="first")
        )  # so Celery is connected: its loop is watched from now on
        yield watched


def submit(watched: WatchedFleet, *tools: str, batch: str) -> Batch:
    still = Registry().load("integration.deadly_tools:stand_still").spec
    agent = watched.agent(tools=("fetch",))
    rows = [{"id": str(number), "prompt": tool} for number, tool in enumerate(tools)]
    return watched.fleet.submit(replace(agent, tools=(*agent.tools, still)), rows, batch=batch)


def test_a_worker_that_takes_no_messages_is_not_well_until_it_does_again(watched: WatchedFleet) -> None:
    watched.workers[0].process.send_signal(signal.SIGRTMIN)
    watched.wait_stale()
    watched.wait_well()
    assert "Celery's loop stands still" in watched.log_tails(lines=500)


@pytest.mark.parametrize("watched", ["threads"], indirect=True)  # a forked process holds up nothing but its own call
def test_a_worker_whose_tasks_cannot_go_on_is_not_well_until_they_can(watched: WatchedFleet) -> None:
    submit(watched, "stand_still", batch="still")
    watched.wait_stale()
    watched.wait_well()
    assert "in stand_still" in watched.log_tails(lines=500)


def test_a_worker_whose_broker_is_away_is_well(watched: WatchedFleet) -> None:
    watched.valkey.terminate()
    assert watched.stays_well(2 * STALE_SECONDS)
    watched.restart_valkey()


def test_a_worker_that_is_busy_and_then_told_to_end_is_well_until_it_did(watched: WatchedFleet) -> None:
    submit(watched, *["fetch"] * CONCURRENCY, batch="ending")
    wait_until(lambda: watched.calls_in_flight() == CONCURRENCY, "every slot is taken")
    worker = watched.workers[0]
    worker.process.terminate()
    assert watched.stays_well(STALE_SECONDS)
    assert worker.process.wait(watched.plan.grace_seconds + 5) == 0
