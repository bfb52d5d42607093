"""A RabbitMQ of the test session, where one is installed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kombu.connection import Connection

from .ports import free_ports
from .waiting import wait_until

_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Debian's own start script: the one on PATH changes user and folders."""


@pytest.fixture(scope="session")
def rabbitmq_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker on free ports of loopback, with its own folder."""
    if not _SERVER.exists():
        pytest.skip("RabbitMQ is not installed: `make rabbitmq` installs it where apt-get can")
    folder = tmp_path_factory.mktemp("rabbitmq")
    port, between_nodes, mapper = free_ports(3)
    (folder / "plugins").write_text("[].")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"test{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(between_nodes),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [_SERVER], env=environment, stdout=output, stderr=output, start_new_session=True, cwd=folder
        )
    url = f"amqp://guest:guest@127.0.0.1:{port}//"
    try:
        wait_until(lambda: _answers(url), "RabbitMQ answers", timeout_s=40)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        wait_until(lambda: _has_stopped_mapper(mapper), "the mapper of ports, a daemon of its own, is gone")


def _has_stopped_mapper(port: int) -> bool:
    # It refuses while it believes that a node lives.
    stopped = subprocess.run(["epmd", "-port", str(port), "-kill"], check=False, capture_output=True, text=True)
    return "Killed" in stopped.stdout + stopped.stderr or "Cannot connect" in stopped.stdout + stopped.stderr


def _answers(url: str) -> bool:
    try:
        with Connection(url, connect_timeout=1) as connection:  # type: ignore[no-untyped-call]  # kombu is untyped
            connection.connect()
            return True
    except OSError:
        return False
