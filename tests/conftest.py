"""What every test may ask for."""

from __future__ import annotations

import pytest
from support.valkey import valkey_url

__all__ = ["valkey_url"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, as the workers do."""
    return "asyncio"
