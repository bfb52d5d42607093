"""Every worker is told to end and replaced while runs are under way, as by a deployment: no run waits for a timeout."""

from __future__ import annotations

import zlib
from collections import Counter
from pathlib import Path
from typing import Literal

import pytest
from chaos.evidence import held_by
from faults.stage import report_of
from integration.fleet import FleetPlan, RealFleet
from support.waiting import wait_until

from paceline.core.ledger import AttemptLost
from paceline.producer.children import Child
from paceline.producer.fleet import Batch
from paceline.sim import Answer, Call, Request

CLAIM_SECONDS = 300.0
"""Whatever waits for a claim to run out, or for a lost message to be missed, waits beyond the test."""
GRACE_SECONDS, LONGEST_CALL_SECONDS = 0.3, 1.0
"""Many a call is cut, and many a one is not."""
TURNS = 4


def script(request: Request) -> Answer:
    """Calls of every kind, and an answer; each takes a time of its own, the same at each try."""
    share = zlib.crc32(f"{request.run} {request.turn}".encode()) / 2**32
    tools = {1: ("fetch", "look"), 2: ("pay", "put"), 3: ("look",)}.get(request.turn, ())
    calls = [Call(tool=tool, input={"what": f"{request.turn}"}) for tool in tools]
    return Answer(text="" if calls else "done", calls=calls, delay_s=share * LONGEST_CALL_SECONDS)


def replace(real: RealFleet, worker: Child, batch: Batch) -> None:
    """As a deployment does: the old one ends, and another works before the next one's turn."""
    working, names = len(real.fleet.workers()), real.incarnations(worker)
    assert real.terminate(worker) == 0
    assert held_by(real, batch, names) == (), "what it had is anybody's"
    real.start_worker()
    wait_until(lambda: len(real.fleet.workers()) == working, "another works in its place", timeout_s=30)


@pytest.mark.parametrize(
    ("pool", "workers", "concurrency", "runs"),
    [
        ("threads", 3, 8, 60),
        ("prefork", 2, 2, 16),
        pytest.param("threads", 4, 16, 500, marks=[pytest.mark.slow, pytest.mark.timeout(400)]),
    ],
)
def test_a_rolling_restart_costs_each_run_one_attempt_a_worker_at_most(
    tmp_path: Path, pool: Literal["threads", "prefork"], workers: int, concurrency: int, runs: int
) -> None:
    plan = FleetPlan(
        pool=pool,
        workers=workers,
        concurrency=concurrency,
        claim_seconds=CLAIM_SECONDS,
        grace_seconds=GRACE_SECONDS,
    )
    with RealFleet(tmp_path, script, plan) as real:
        real.wait_working(workers * (concurrency if pool == "prefork" else 1))
        batch = real.submit(runs)
        for worker in real.alive():
            replace(real, worker, batch)
        real.wait_ended(batch, timeout_s=CLAIM_SECONDS / 2)
        report = report_of(real, batch)
        assert report.violations == {}, report.table()
        assert report.ends == {"final_answer": runs}, report.table()
        assert report.billed_again <= report.counted_lost, report.table()
        lost = [
            (record.run.run_id, entry.worker)
            for record in batch.records()
            for entry in real.fleet.show(record.run.run_id).ledger
            if isinstance(entry, AttemptLost)
        ]
        assert lost, "some calls were cut"
        assert max(Counter(lost).values()) == 1
