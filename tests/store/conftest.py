"""The stores that the promises of the port are held against."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from support.worlds import TwiceRedis, World, memory_world, redis_world

from paceline.store.connect import connect

_URLS = {"redis": "acl_url", "cluster": "cluster_url", "redis-7": "redis_server_url"}
"""For each kind of server, the fixture that knows its address. What needs no more rights than are documented is shown
by the way."""
_ALWAYS = ("memory", "redis", "redis-every-command-twice")
_EVERYWHERE = ("test_store_contract",)
"""What is held against every kind of server; all else is about the scripts, which are the same everywhere."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # A module may have a world of its own.
    if "world" in metafunc.fixturenames and not hasattr(metafunc.module, "world"):
        everywhere = metafunc.module.__name__.rpartition(".")[2] in _EVERYWHERE
        kinds = [*_ALWAYS, *(kind for kind in _URLS if everywhere and kind not in _ALWAYS)]
        metafunc.parametrize("world", kinds, indirect=True)


@pytest.fixture
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A store, empty, and its clock."""
    if request.param == "memory":
        yield memory_world()
        return
    async with redis_world(_client(request)) as redis:
        yield redis


def _client(request: pytest.FixtureRequest) -> Redis:
    if request.param == "redis-every-command-twice":
        return TwiceRedis.from_url(request.getfixturevalue("valkey_url"))
    return connect(request.getfixturevalue(_URLS[request.param])).redis
