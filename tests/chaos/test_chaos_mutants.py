"""The chaos run is itself tested: with a promise's keeper switched off, it must find the promise broken."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.checker import check
from chaos.driver import ChaosPlan, run_chaos
from chaos.plan import Blow, BlowKind
from integration.fleet import FleetPlan

pytestmark = pytest.mark.slow


def test_without_the_sweeper_a_kill_leaves_runs_stuck(tmp_path: Path) -> None:
    plan = ChaosPlan(
        runs=24,
        blows=[Blow(at_s=1, kind=BlowKind.KILL_WORKER)],
        fleet=FleetPlan(app="chaos.app_without_sweeper"),
        longest_model_s=1,
        still_seconds=4,
    )
    assert "runs stuck" in check(run_chaos(tmp_path, plan)).violations


def test_without_fences_a_worker_that_was_frozen_writes_what_another_one_wrote(tmp_path: Path) -> None:
    plan = ChaosPlan(
        runs=40,
        blows=[Blow(at_s=at_s, kind=BlowKind.FREEZE_WORKER) for at_s in (1, 4, 7)],
        fleet=FleetPlan(app="chaos.app_without_fences", claim_seconds=1, sweep_seconds=0.2),
        longest_model_s=2,
        still_seconds=4,
    )
    assert {"doubled appends", "totals that do not add up"} & set(check(run_chaos(tmp_path, plan)).violations)
