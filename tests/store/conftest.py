"""The stores that every promise of the port is held against."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from support.worlds import TwiceRedis, World, memory_world, redis_world


@pytest.fixture(params=["memory", "redis", "redis-every-command-twice"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A store, empty, and its clock."""
    if request.param == "memory":
        yield memory_world()
        return
    client = Redis if request.param == "redis" else TwiceRedis
    async with redis_world(client.from_url(request.getfixturevalue("valkey_url"))) as redis:
        yield redis
