"""Workers that are told to end while the record, the broker or both do not answer: they end, and their runs go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from integration.fleet import FleetPlan, RealFleet
from support.proxy import Proxy, running_proxy
from support.waiting import wait_until

from paceline.producer.children import Child
from paceline.sim import Answer, Request
from paceline.worker.process import LEAVING_SECONDS

GRACE_SECONDS, CLAIM_SECONDS = 0.5, 3.0
BUSY_MACHINE_SECONDS = 4.0
"""Beyond what a worker promises: for the end of an interpreter, on a machine that has other things to do."""
CONCURRENCY, RUNS = 2, 30
"""More runs than all workers have room for: each has something to lose."""


@dataclass(slots=True)
class Model:
    """Takes longer than a worker has that is told to end, until it is told not to."""

    seconds: float = 12.0

    def __call__(self, request: Request) -> Answer:
        return Answer(text="done", delay_s=self.seconds)


def freeze(way: Proxy) -> None:
    way.is_frozen = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """What becomes of a worker's ways to the record and to the broker."""

    pool: str
    to_record: Callable[[Proxy], None] | None = None
    to_broker: Callable[[Proxy], None] | None = None


BLOWS: Mapping[str, Blow] = {
    "nothing happens": Blow(pool="threads"),
    "the record is gone": Blow(pool="threads", to_record=Proxy.go_away),
    "the record is frozen": Blow(pool="threads", to_record=freeze),
    "the broker is gone": Blow(pool="threads", to_broker=Proxy.go_away),
    "the broker is frozen": Blow(pool="threads", to_broker=freeze),
    "children, and everything is gone": Blow(pool="prefork", to_record=Proxy.go_away, to_broker=Proxy.go_away),
    "children, and everything is frozen": Blow(pool="prefork", to_record=freeze, to_broker=freeze),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A worker with ways of its own to record and broker."""

    child: Child
    record: Proxy
    broker: Proxy
    blow: Blow

    def strike(self) -> None:
        if self.blow.to_record:
            self.blow.to_record(self.record)
        if self.blow.to_broker:
            self.blow.to_broker(self.broker)


def start_worker(real: RealFleet, stack: ExitStack, blow: Blow) -> Struck:
    record, broker = (stack.enter_context(running_proxy(real.valkey.port)) for _ in range(2))
    environment = {
        "PACELINE_REDIS_URL": f"redis://127.0.0.1:{record.port}/0",
        "PACELINE_BROKER_URL": f"redis://127.0.0.1:{broker.port}/0",
        "PACELINE_POOL": blow.pool,
    }
    return Struck(child=real.start_worker(environment), record=record, broker=broker, blow=blow)


def seconds_until_ended(worker: Child, began: float) -> float:
    worker.process.wait(60)
    return time.monotonic() - began


def test_a_worker_ends_whatever_does_not_answer_it_and_its_runs_go_on(tmp_path: Path) -> None:
    model = Model()
    plan = FleetPlan(workers=0, concurrency=CONCURRENCY, claim_seconds=CLAIM_SECONDS, grace_seconds=GRACE_SECONDS)
    with RealFleet(tmp_path, model, plan) as real, ExitStack() as stack:
        workers = {name: start_worker(real, stack, blow) for name, blow in BLOWS.items()}
        processes = sum(CONCURRENCY if blow.pool == "prefork" else 1 for blow in BLOWS.values())
        real.wait_working(processes)
        batch = real.submit(RUNS)
        wait_until(lambda: all(worker.in_flight for worker in real.fleet.workers()), "all workers are busy")
        model.seconds = 0.0
        for worker in workers.values():
            worker.strike()
        began = time.monotonic()
        for worker in workers.values():
            worker.child.process.terminate()
        took = {name: seconds_until_ended(worker.child, began) for name, worker in workers.items()}
        at_most = GRACE_SECONDS + LEAVING_SECONDS + BUSY_MACHINE_SECONDS
        assert {name for name, seconds in took.items() if seconds > at_most} == set(), took
        assert took["nothing happens"] < GRACE_SECONDS + LEAVING_SECONDS, "it ended by itself, not by its alarm"
        real.start_worker()
        assert real.wait_ended(batch, timeout_s=30).counts.reasons == {"final_answer": RUNS}
