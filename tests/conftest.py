"""What every test may ask for."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import settings
from support.acl import acl_url
from support.cluster import cluster_url
from support.prometheus import promtool
from support.rabbitmq import rabbitmq_url
from support.redis_server import redis_server_url
from support.tls import tls_url
from support.valkey import valkey_url

__all__ = ["acl_url", "cluster_url", "promtool", "rabbitmq_url", "redis_server_url", "tls_url", "valkey_url"]

# An example that takes long on a busy machine proves nothing: whoever promises a time measures it.
hypothesis.settings.register_profile("paceline", deadline=None)
hypothesis.settings.load_profile("paceline")


def pytest_configure() -> None:
    """How long one example takes is no property of ours: other tests run beside it, on a machine that others use."""
    settings.register_profile("suite", deadline=None)
    settings.load_profile("suite")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, as the workers do."""
    return "asyncio"
