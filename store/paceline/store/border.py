"""Where redis-py's errors become ours."""

from __future__ import annotations

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
        raise InfrastructureError(f"the record in Redis could not be reached or written: {error}") from error
