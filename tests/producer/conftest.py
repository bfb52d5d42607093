from collections.abc import Iterator

import pytest
from support.producing import MemoryFleet, memory_fleet


@pytest.fixture
def behind() -> Iterator[MemoryFleet]:
    """A fleet over the store in memory, and what is behind it."""
    with memory_fleet() as fleet:
        yield fleet
