from collections.abc import Iterator
from pathlib import Path

import pytest
from transport.harness import Broker, running_broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path / "valkey") as running:
        yield running
