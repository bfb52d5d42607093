"""What an operator can set, and how mistakes are told."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from paceline.core.errors import UsageError
from paceline.producer.settings import ProducerSettings
from paceline.worker.settings import Settings


def test_without_variables_everything_has_its_default() -> None:
    assert Settings.from_environment({}) == Settings()
    assert Settings.from_environment({"PACELINE_CONCURRENCY": ""}) == Settings()


def test_each_field_is_read_from_its_variable() -> None:
    settings = Settings.from_environment(
        {
            "PACELINE_REDIS_URL": "redis://record:6379/1",
            "PACELINE_CONCURRENCY": "200",
            "PACELINE_CLAIM_SECONDS": "7.5",
            "SOMETHING_ELSE": "x",
        }
    )
    assert (settings.redis_url, settings.concurrency, settings.claim_seconds) == ("redis://record:6379/1", 200, 7.5)


def test_the_record_is_the_broker_unless_another_is_named() -> None:
    assert Settings(redis_url="redis://a").broker == "redis://a"
    assert Settings(redis_url="redis://a", broker_url="amqp://b").broker == "amqp://b"


def test_all_bad_values_are_told_together() -> None:
    with pytest.raises(UsageError) as told:
        Settings.from_environment(
            {
                "PACELINE_CONCURRENCY": "0",
                "PACELINE_POISON_AFTER": "some",
                "PACELINE_CLAIM_SECONDS": "-1",
                "PACELINE_SWEEP_SECONDS": "nan",
                "PACELINE_MODEL_SECONDS": "inf",
            }
        )
    for name in ("CONCURRENCY", "POISON_AFTER", "CLAIM_SECONDS", "SWEEP_SECONDS", "MODEL_SECONDS"):
        assert f"PACELINE_{name}=" in str(told.value)


def test_the_producer_reads_what_it_shares_with_the_workers_as_they_do() -> None:
    shared = {
        "PACELINE_REDIS_URL": "redis://record:6379/1",
        "PACELINE_BROKER_URL": "amqp://broker",
        "PACELINE_PREFIX": "team",
        "PACELINE_TOOLS_PATH": os.pathsep.join(("/one", "/two")),
        "PACELINE_CLAIM_SECONDS": "7.5",
        "PACELINE_RETENTION_SECONDS": "60",
        "PACELINE_DURABILITY": "FSYNC",
    }
    worker, producer = Settings.from_environment(shared), ProducerSettings.from_environment(shared)
    assert producer.tools_path == (Path("/one"), Path("/two"))
    assert {name: getattr(worker, name) for name in asdict(producer)} == asdict(producer)
    defaults = asdict(ProducerSettings()) | {"redis_url": Settings().redis_url}
    assert {name: getattr(Settings(), name) for name in defaults} == defaults


def test_what_is_wrong_with_a_workers_variables_is_told_without_a_traceback() -> None:
    command = [sys.executable, "-c", "import paceline.worker.entry"]
    for name, value, told in (
        (
            "PACELINE_GRACE_SECONDS",
            "-1",
            "error: PACELINE_GRACE_SECONDS='-1': it must be a number of seconds above 0\n",
        ),
        ("PACELINE_POOL", "gevent", "error: PACELINE_POOL='gevent': give one of threads, prefork\n"),
    ):
        done = subprocess.run(command, env={**os.environ, name: value}, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (2, told)
