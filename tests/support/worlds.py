"""A store and the time it lives in: the same tests drive the store in memory and the one in Redis."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from paceline.store.memory import MemoryRunStore
from paceline.store.port import RunStore
from paceline.store.record import RedisRunStore

from .clock import FakeClock


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A store and its clock. `age_keys` brings every time to live in the server nearer by so many milliseconds."""

    store: RunStore
    clock: FakeClock
    age_keys: Callable[[int], Awaitable[None]]

    async def let_pass(self, seconds: float) -> None:
        """Let time pass, for the store's clock and for the server's keys alike."""
        self.clock.pass_seconds(seconds)
        await self.age_keys(round(seconds * 1000))


def memory_world() -> World:
    """A world in this process."""

    async def nothing(by_ms: int) -> None:
        """Here the clock is all there is."""

    clock = FakeClock()
    return World(store=MemoryRunStore(clock), clock=clock, age_keys=nothing)


@asynccontextmanager
async def redis_world(client: Redis) -> AsyncIterator[World]:
    """A world under a prefix of its own in a real server. The client is given back with the store."""
    clock = FakeClock()
    store = RedisRunStore(client, prefix=f"test-{uuid.uuid4().hex[:8]}", clock=clock)

    async def age(by_ms: int) -> None:
        async for key in client.scan_iter(match=f"{store.keys.prefix}:*"):
            left_ms = await client.pttl(key)
            if left_ms >= 0:
                await client.pexpire(key, left_ms - by_ms)

    try:
        yield World(store=store, clock=clock, age_keys=age)
    finally:
        await store.aclose()


class TwicePipeline(Pipeline):
    """A pipeline that is sent twice, as after a lost reply; the second replies count."""

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        once = len(self.command_stack)
        self.command_stack = [*self.command_stack, *self.command_stack]
        return (await super().execute(raise_on_error))[once:]


class TwiceRedis(Redis):
    """A client whose every command is carried out twice, as after a lost reply; the second reply counts."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        # redis-py leaves this method untyped.
        await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        return TwicePipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
