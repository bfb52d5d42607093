"""A Redis server of the test session, where one is installed: the embedded one is a Valkey."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as NotYet

from .ports import free_ports
from .waiting import wait_until


@pytest.fixture(scope="session")
def redis_server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a `redis-server`. Tests share it: each keeps to a prefix of its own."""
    if (binary := shutil.which("redis-server")) is None:
        pytest.skip("redis-server is not on PATH: `make redis-server` installs it where apt-get can")
    (port,) = free_ports(1)
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=tmp_path_factory.mktemp("redis"))
    try:
        with Redis(port=port) as client:
            wait_until(lambda: _answers(client), "the server answers")
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.kill()
        process.wait()


def _answers(client: Redis) -> bool:
    try:
        return bool(client.ping())
    except NotYet:
        return False
