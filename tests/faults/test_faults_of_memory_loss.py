"""A server that starts again with nothing: what is gone is told, and the fleet goes on with what comes next."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.stage import RUNS, script, when_under_way
from integration.fleet import FleetPlan, RealFleet

from paceline.core.errors import InfrastructureError


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealFleet]:
    with RealFleet(tmp_path, script, FleetPlan(workers=1, claim_seconds=2)) as real:
        real.wait_working()
        yield real


def restart_with_nothing(real: RealFleet) -> None:
    real.valkey.terminate()
    shutil.rmtree(real.valkey.data_dir / "appendonlydir")
    real.valkey.start()


def test_runs_that_a_server_forgot_are_told_and_can_be_submitted_again(real: RealFleet) -> None:
    batch = real.submit(RUNS)
    command = [sys.executable, "-m", "paceline.producer.cli", "wait", batch.name]
    environment = {"PACELINE_REDIS_URL": real.url, "PATH": "", "PYTHONPATH": ":".join(sys.path)}
    waiting = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    when_under_way(real, batch, lambda: time.sleep(1))
    assert batch.status().counts.runs == RUNS
    restart_with_nothing(real)
    with pytest.raises(InfrastructureError, match=f"{RUNS} of {RUNS} runs are gone from the record"):
        batch.wait(20)
    told, _ = waiting.communicate(timeout=20)
    assert (waiting.returncode, f"{RUNS} of {RUNS} runs are gone" in " ".join(told.split())) == (3, True), told
    again = real.submit(RUNS)
    assert again.submission is not None
    assert again.submission.created == RUNS
    assert real.wait_ended(again).counts.reasons == {"final_answer": RUNS}
