"""`python -m chaos.idle`: what runs on hold cost while nothing happens."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from integration.fleet import FleetPlan, RealFleet, wait_until
from redis import Redis

from paceline.core.lifecycle import State
from paceline.sim import Answer, Fault
from paceline.sim.request import Request

HOLD_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a fleet costs in a minute."""

    commands: float
    """All that the server carried out, also those inside scripts."""
    messages: float
    worker_cpu_s: float
    """Of all workers together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleReport:
    """The same fleet without a run, and with so many on hold."""

    runs: int
    workers: int
    empty: Cost
    on_hold: Cost

    def table(self) -> str:
        rows = [
            ("Redis commands a minute", self.empty.commands, self.on_hold.commands),
            ("messages a minute", self.empty.messages, self.on_hold.messages),
            ("worker CPU seconds a minute", self.empty.worker_cpu_s, self.on_hold.worker_cpu_s),
        ]
        head = f"{f'{self.workers} workers':<30} {'no runs':>10} {f'{self.runs} on hold':>14}"
        return "\n".join([head, *(f"{name:<30} {empty:>10.1f} {held:>14.1f}" for name, empty, held in rows)])


def measure_idle(folder: Path, *, runs: int, seconds: float, plan: FleetPlan) -> IdleReport:
    """Measure for so many seconds before there is a run, and as long when all of them are on hold."""
    with RealFleet(folder, no_room, plan) as real:
        real.wait_working()
        time.sleep(1)  # what a worker does once, when it comes up, is no cost of being idle
        empty = _cost(real, seconds)
        batch = real.submit(runs)
        wait_until(
            lambda: batch.status().counts.states.get(State.ON_HOLD) == runs, "every run is on hold", timeout_s=120
        )
        time.sleep(1)
        return IdleReport(runs=runs, workers=plan.workers, empty=empty, on_hold=_cost(real, seconds))


def no_room(_request: Request) -> Answer:
    """The model has no room for an hour."""
    return Answer(fault=Fault("rate_limited", retry_after=HOLD_S))


def _cost(real: RealFleet, seconds: float) -> Cost:
    """What passes in these seconds, scaled to a minute. Nobody else may use the server meanwhile."""
    with Redis.from_url(real.url) as client:
        before, cpu_before = _calls(client), _cpu_s(real)
        time.sleep(seconds)
        after, cpu_after = _calls(client), _cpu_s(real)
    grew = {name: after[name] - before.get(name, 0) for name in after}
    a_minute = 60 / seconds
    return Cost(
        commands=(sum(grew.values()) - grew["cmdstat_info"]) * a_minute,  # INFO is ours
        messages=grew.get("cmdstat_lpush", 0) * a_minute,
        worker_cpu_s=(cpu_after - cpu_before) * a_minute,
    )


def _calls(client: Redis) -> Mapping[str, int]:
    return {name: figures["calls"] for name, figures in client.info("commandstats").items()}


def _cpu_s(real: RealFleet) -> float:
    return sum(_process_cpu_s(worker.process.pid) for worker in real.alive())


def _process_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = fields[11:13]  # proc(5), fields 14 and 15, in ticks of 10 ms
    return (int(user) + int(system)) / 100


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos.idle", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    plan = FleetPlan(workers=asked.workers, claim_seconds=30, sweep_seconds=5, concurrency=64)
    folder = Path(tempfile.mkdtemp(prefix="idle-"))
    print(measure_idle(folder, runs=asked.runs, seconds=asked.seconds, plan=plan).table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
