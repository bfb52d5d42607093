"""RabbitMQ carries the messages, Redis has the record: nothing assumes that they are one."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from faults.stage import CLAIM_SECONDS, RUNS, report_of, script, when_under_way
from integration.fleet import FleetPlan, RealFleet
from redis import Redis

from paceline.producer.fleet import Fleet
from paceline.producer.settings import ProducerSettings


@pytest.mark.slow
def test_runs_end_though_a_worker_is_killed(tmp_path: Path, rabbitmq_url: str) -> None:
    plan = FleetPlan(workers=2, claim_seconds=CLAIM_SECONDS, environment={"PACELINE_BROKER_URL": rabbitmq_url})
    with RealFleet(tmp_path, script, plan) as real, ExitStack() as stack:
        way = {**plan.environment, "PACELINE_REDIS_URL": real.url}
        real.fleet = stack.enter_context(Fleet(settings=ProducerSettings.from_environment(way)))
        real.wait_working()
        batch = real.submit(RUNS)
        when_under_way(real, batch, lambda: real.kill(real.workers[0]))
        report = report_of(real, batch)
        assert report.violations == {}, report.table()
        assert report.ended == RUNS
        with Redis.from_url(real.url) as redis:
            assert list(redis.scan_iter("paceline:broker:*")) == []
