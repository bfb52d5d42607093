"""A fleet whose way to its server can be slow and cut, and what must hold whatever happens to the two."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from chaos.checker import check
from chaos.evidence import collect
from chaos.report import Report
from chaos.settling import settle
from integration.fleet import FleetPlan, RealFleet
from support.proxy import Proxy, running_proxy
from support.waiting import wait_until

from paceline.core.lifecycle import State
from paceline.producer.fleet import Batch, BatchStatus
from paceline.sim import Answer, Call, Request

CLAIM_SECONDS = 2.0
WORKERS, RUNS, TURNS = 2, 16, 4


def script(request: Request) -> Answer:
    """Three turns with a call that must not be repeated and one that only reads, and an answer."""
    if request.turn == TURNS:
        return Answer(text="done", delay_s=0.1)
    calls = [Call(tool=tool, input={"what": f"{request.turn}"}) for tool in ("pay", "fetch")]
    return Answer(calls=calls, delay_s=0.1)


@contextmanager
def proxied_fleet(folder: Path) -> Iterator[tuple[RealFleet, Proxy]]:
    """Two workers at work that reach record and broker by a proxy, and the proxy. The producer goes straight."""
    with running_proxy() as proxy:
        way = {"PACELINE_REDIS_URL": f"redis://127.0.0.1:{proxy.port}/0"}
        plan = FleetPlan(workers=0, claim_seconds=CLAIM_SECONDS, environment=way)
        with RealFleet(folder, script, plan) as real:
            proxy.target_port = real.valkey.port
            for _ in range(WORKERS):
                real.start_worker()
            real.wait_working(WORKERS)
            yield real, proxy


def report_of(real: RealFleet, batch: Batch) -> Report:
    """What a batch shows, once it is over."""
    began = time.monotonic()
    batch.wait(40, on_status=lambda status: _decide(real, batch, status))
    submitted = [record.run.run_id for record in batch.records()]
    evidence = collect(real, batch, submitted, kills=(), blows={}, seconds=time.monotonic() - began)
    own = [request for request in evidence.requests if request.run in evidence.runs]
    return check(replace(evidence, requests=own))


def _decide(real: RealFleet, batch: Batch, status: BatchStatus) -> None:
    """Play the person who is asked about calls that may have taken effect."""
    if status.counts.states.get(State.AWAITING_DECISION):
        settle(real, batch, is_quiet=not any(worker.in_flight for worker in real.fleet.workers()))


def when_under_way(real: RealFleet, batch: Batch, then: Callable[[], object]) -> None:
    """Do this in the midst of a batch."""
    asked = len(real.simulator.journal)
    wait_until(lambda: len(real.simulator.journal) > asked + RUNS, f"{batch.name} is under way")
    then()
