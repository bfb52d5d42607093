"""A server that starts again with nothing: what is gone is told, and the fleet goes on with what comes next."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from faults.stage import RUNS
from integration.fleet import FleetPlan, RealFleet

from paceline.core.errors import InfrastructureError
from paceline.sim import Answer, Request


@dataclass(slots=True)
class Model:
    """Takes its time at first, so that the server can be struck before the batch is over."""

    seconds: float = 4.0

    def __call__(self, request: Request) -> Answer:
        return Answer(text="done", delay_s=self.seconds)


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def real(tmp_path: Path, model: Model) -> Iterator[RealFleet]:
    with RealFleet(tmp_path, model, FleetPlan(workers=1, claim_seconds=2)) as real:
        real.wait_working()
        yield real


def restart_with_nothing(real: RealFleet) -> None:
    real.valkey.terminate()
    shutil.rmtree(real.valkey.data_dir / "appendonlydir")
    real.valkey.start()


def test_runs_that_a_server_forgot_are_told_and_can_be_submitted_again(real: RealFleet, model: Model) -> None:
    batch = real.submit(RUNS)
    command = [sys.executable, "-m", "paceline.producer.cli", "wait", batch.name]
    environment = {"PACELINE_REDIS_URL": real.url, "PATH": "", "PYTHONPATH": ":".join(sys.path)}
    waiting = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert waiting.stdout is not None
    assert "running" in waiting.stdout.readline(), "it has seen the runs"
    restart_with_nothing(real)
    model.seconds = 0.0
    with pytest.raises(InfrastructureError, match=f"{RUNS} of {RUNS} runs are gone from the record"):
        batch.wait(20)
    told, _ = waiting.communicate(timeout=20)
    assert (waiting.returncode, f"{RUNS} of {RUNS} runs are gone" in " ".join(told.split())) == (3, True), told
    again = real.submit(RUNS)
    assert again.submission is not None
    assert again.submission.created == RUNS
    assert real.wait_ended(again).counts.reasons == {"final_answer": RUNS}
