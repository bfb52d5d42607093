"""Where redis-py's errors become ours, and a cancellation that it lost is found again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from redis.exceptions import RedisClusterException, RedisError, ResponseError

from paceline.core.errors import Bug, InfrastructureError


@contextmanager
def border() -> Iterator[None]:
    """InfrastructureError for what a server or the way to it is to blame for; Bug for what our own script is."""
    try:
        yield
    except ResponseError as error:
        # No server is to blame for a fault in a script, and no retry will help; unless it lacked a right.
        if type(error) is ResponseError and "script: " in str(error) and "ACL failure" not in str(error):
            raise Bug(f"a script of the record failed: {error}") from error
        raise InfrastructureError(f"Redis refused a command of the record: {error}") from error
    except (RedisError, RedisClusterException) as error:
        raise InfrastructureError(f"the record in Redis could not be reached or written: {plain(error)}") from error
    _heed_cancellation()


def plain(error: Exception) -> str:
    """What an error of redis-py says, in words: of sentinels that know no primary it adds how it would ask each."""
    return str(error).partition(" : <")[0]


def _heed_cancellation() -> None:
    # redis-py sends with `asyncio.wait_for`. Before Python 3.12 that swallows a cancellation which comes as it is done.
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
