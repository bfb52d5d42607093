"""What comes out of redis-py is ours, and what it keeps to itself is found."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from paceline.store.border import border

pytestmark = pytest.mark.anyio


async def test_a_cancellation_that_redis_py_lost_is_found_again() -> None:
    async def command() -> None:
        with border(), suppress(asyncio.CancelledError):  # as `asyncio.wait_for` did before Python 3.12
            await asyncio.sleep(60)
        raise AssertionError("it went on")

    task = asyncio.ensure_future(command())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
