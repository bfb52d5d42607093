"""A server that restarts, freezes, fills up, drops connections or is far away: runs wait, and nothing is doubled."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from faults.stage import CLAIM_SECONDS, RUNS, proxied_fleet, report_of, when_under_way
from integration.fleet import RealFleet
from redis import Redis
from support.proxy import Proxy

Blow = Callable[[RealFleet, Proxy], None]

# How long each fault lasts. The sleeps of this file are the faults themselves: nothing is waited for by them.
AWAY_SECONDS = 0.5
KILLS, KILL_SECONDS = 20, 0.1
CUTS, CUT_SECONDS = 10, 0.2
FROZEN_SECONDS = 2.5 * CLAIM_SECONDS
FULL_SECONDS = 1.5 * CLAIM_SECONDS
FAR_SECONDS, FAR_DELAY_SECONDS = 3.0, 0.1


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RealFleet, Proxy]]:
    with proxied_fleet(tmp_path_factory.mktemp("faults")) as fleet:
        yield fleet


def restart(real: RealFleet, proxy: Proxy) -> None:
    real.restart_valkey(away_s=AWAY_SECONDS)


def kill_clients(real: RealFleet, proxy: Proxy) -> None:
    """Twenty times in two seconds every connection is closed by the server."""
    with Redis.from_url(real.url) as redis:
        for _ in range(KILLS):
            redis.client_kill_filter(_type="normal", skipme=True)
            time.sleep(KILL_SECONDS)


def reset_connections(real: RealFleet, proxy: Proxy) -> None:
    """Ten times in two seconds every connection of a worker is cut on the way."""
    for _ in range(CUTS):
        proxy.drop_connections()
        time.sleep(CUT_SECONDS)


def freeze(real: RealFleet, proxy: Proxy) -> None:
    """The server stands still for longer than a claim lasts."""
    with Redis.from_url(real.url) as redis:
        pid = int(redis.info("server")["process_id"])
    os.kill(pid, signal.SIGSTOP)
    time.sleep(FROZEN_SECONDS)
    os.kill(pid, signal.SIGCONT)


def fill(real: RealFleet, proxy: Proxy) -> None:
    """Every write is refused for a while."""
    with Redis.from_url(real.url) as redis:
        redis.config_set("maxmemory", "1mb")
        time.sleep(FULL_SECONDS)
        redis.config_set("maxmemory", "0")


def slow_down(real: RealFleet, proxy: Proxy) -> None:
    """A server in another part of the world, for a while."""
    proxy.delay_seconds = FAR_DELAY_SECONDS
    time.sleep(FAR_SECONDS)
    proxy.delay_seconds = 0.0


@pytest.mark.parametrize("blow", [restart, kill_clients, reset_connections, freeze, fill, slow_down])
def test_runs_end_and_nothing_is_doubled(fleet: tuple[RealFleet, Proxy], blow: Blow) -> None:
    real, proxy = fleet
    workers = real.alive()
    batch = real.submit(RUNS, batch=blow.__name__)
    when_under_way(real, batch, lambda: blow(real, proxy))
    report = report_of(real, batch)
    assert report.violations == {}, report.table()
    assert report.ends == {"final_answer": RUNS}, report.table()
    # No worker died: no turn may have been taken from one.
    assert report.counted_lost == report.billed_again == report.in_doubt == 0, report.table()
    assert real.alive() == workers
