"""A short chaos run: everything goes wrong for a minute, and every promise holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.__main__ import FAULTS, MEDDLING
from chaos.checker import check
from chaos.driver import ChaosPlan, run_chaos
from chaos.plan import drawn_blows
from integration.fleet import FleetPlan

CLAIM_S = 3.0
PATIENT = {"PACELINE_POISON_AFTER": "10"}
"""A third of this fleet dies every few seconds: a run that lost three workers in a row has done nothing bad."""


@pytest.mark.timeout(300)  # a minute and a half, and more where the machine is busy
def test_no_run_is_lost_stuck_or_doubled_whatever_dies(tmp_path: Path) -> None:
    plan = ChaosPlan(
        runs=150,
        blows=drawn_blows(1, seconds=60, pause_s=2.5),
        fleet=FleetPlan(workers=3, concurrency=8, claim_seconds=CLAIM_S, app="chaos.meddled_app", environment=PATIENT),
        meddling=MEDDLING,
        faults=FAULTS,
        longest_model_s=2,
    )
    report = check(run_chaos(tmp_path, plan))
    assert report.violations == {}, report.table()
    assert report.ends == {"final_answer": 150}, report.table()
    assert report.recovery.claims > 0
    # A worker is given up for dead after a claim; the turn it held may meet one more fault, and wait for a slot.
    assert report.recovery.p99_s < 35, report.table()
