"""Runs on hold wait in the record: no worker is busy with them, and no message goes round."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.idle import measure_idle
from integration.fleet import FleetPlan


@pytest.mark.slow
def test_runs_on_hold_send_no_messages_and_cost_no_more_commands_than_none(tmp_path: Path) -> None:
    plan = FleetPlan(workers=1, claim_seconds=3, sweep_seconds=0.5)
    report = measure_idle(tmp_path, runs=100, seconds=4, plan=plan)
    assert report.on_hold.messages == 0, report.table()
    # A sweep more or less falls into the time that is measured.
    assert report.on_hold.commands < 1.3 * report.empty.commands, report.table()
