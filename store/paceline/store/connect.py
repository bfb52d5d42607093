"""From a URL to the record, and what is asked of a server before runs are trusted to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qs, urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.sentinel import Sentinel
from redis.exceptions import AuthenticationError, RedisError

from paceline.core.errors import InfrastructureError, UsageError

from .record import RedisRunStore

_SOCKET_OPTIONS: dict[str, Any] = {
    "socket_timeout": 10.0,  # a command on a connection that is dead without a word must fail, not hang
    "socket_connect_timeout": 5.0,
    "socket_keepalive": True,
    "health_check_interval": 25,
}
_CONNECTIONS = 48
"""Scripts take a fraction of a millisecond: a few dozen connections serve hundreds of turns in flight."""


def connect(
    url: str,
    *,
    prefix: str = "paceline",
    claim_seconds: float = 30.0,
    retention_seconds: float = 7 * 86_400.0,
) -> RedisRunStore:
    """The record at `url` (redis, rediss, unix, or `sentinel://host:port,host:port/db?service=name`).

    Nothing is sent yet. UsageError for a URL that cannot be one.
    """
    client = _sentinel(url) if url.startswith("sentinel://") else _direct(url)
    return RedisRunStore(client, prefix=prefix, claim_seconds=claim_seconds, retention_seconds=retention_seconds)


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    parts = urlsplit(url)
    if not parts.password:
        return url
    return url.replace(f":{parts.password}@", ":***@", 1)


def _direct(url: str) -> Redis:
    options = {k: v for k, v in _SOCKET_OPTIONS.items() if not (url.startswith("unix") and k == "socket_keepalive")}
    try:
        pool = BlockingConnectionPool.from_url(url, max_connections=_CONNECTIONS, timeout=20, **options)
    except ValueError as error:
        raise UsageError(
            f"{without_password(url)!r} is not a Redis URL ({error}); it looks like redis://host:6379/0"
        ) from error
    return Redis.from_pool(pool)


def _sentinel(url: str) -> Redis:
    parts = urlsplit(url)
    hosts = parts.netloc.rpartition("@")[2].split(",")
    service = parse_qs(parts.query).get("service", ["mymaster"])[0]
    addresses = [(host.rpartition(":")[0] or host, int(host.rpartition(":")[2] or 26379)) for host in hosts]
    options: dict[str, Any] = {**_SOCKET_OPTIONS, "username": parts.username, "password": parts.password}
    # redis-py leaves its Sentinel untyped.
    sentinel: Any = Sentinel(addresses, socket_timeout=_SOCKET_OPTIONS["socket_connect_timeout"])  # type: ignore[no-untyped-call]
    primary: Redis = sentinel.master_for(service, db=int(parts.path.strip("/") or 0), **options)
    return primary


class Severity(StrEnum):
    """Whether a problem of the server forbids its use."""

    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProblem:
    """Something about the server that would lose runs; `fix` says what to do."""

    severity: Severity
    what: str
    fix: str


async def check_server(store: RedisRunStore, *, url: str = "") -> list[ServerProblem]:
    """What is wrong with the server behind the record. InfrastructureError if it cannot be asked at all."""
    where = f" at {without_password(url)}" if url else ""
    try:
        info = await store.redis.info()
        policy = await _setting(store.redis, "maxmemory-policy")
    except AuthenticationError as error:
        raise InfrastructureError(
            f"Redis{where} refuses the login ({error}); set user and password in PACELINE_REDIS_URL"
        ) from error
    except (RedisError, OSError) as error:
        raise InfrastructureError(
            f"Redis{where} cannot be reached ({error}); is it running, and is PACELINE_REDIS_URL right?"
        ) from error
    return [*_version(info), *_eviction(info, policy), *_role(info), *_persistence(info), *_memory(info)]


async def _setting(redis: Redis, name: str) -> str | None:
    try:
        return str((await redis.config_get(name)).get(name) or "") or None
    except RedisError:
        return None  # managed servers forbid CONFIG; INFO tells the policy too


def _version(info: dict[str, Any]) -> list[ServerProblem]:
    version = str(info.get("valkey_version") or info.get("redis_version") or "0")
    if int(version.split(".")[0]) >= 7:
        return []
    what = f"the server is version {version}; paceline is tested on Redis 7 and newer and on Valkey 8 and newer"
    return [ServerProblem(severity=Severity.WARN, what=what, fix="upgrade the server")]


def _eviction(info: dict[str, Any], policy: str | None) -> list[ServerProblem]:
    policy = policy or str(info.get("maxmemory_policy") or "noeviction")
    if policy == "noeviction":
        return []
    return [
        ServerProblem(
            severity=Severity.FAIL,
            what=f"maxmemory-policy is {policy}: the server may throw away runs when memory is short",
            fix="CONFIG SET maxmemory-policy noeviction (and in redis.conf)",
        )
    ]


def _role(info: dict[str, Any]) -> list[ServerProblem]:
    if info.get("role") != "slave":
        return []
    return [
        ServerProblem(
            severity=Severity.FAIL,
            what="the server is a read-only replica",
            fix="point PACELINE_REDIS_URL at the primary",
        )
    ]


def _persistence(info: dict[str, Any]) -> list[ServerProblem]:
    if info.get("aof_enabled"):
        return []
    return [
        ServerProblem(
            severity=Severity.WARN,
            what="the append-only file is off: a restart of the server loses every run since its last snapshot",
            fix="CONFIG SET appendonly yes (and in redis.conf)",
        )
    ]


def _memory(info: dict[str, Any]) -> list[ServerProblem]:
    most, used = int(info.get("maxmemory") or 0), int(info.get("used_memory") or 0)
    if not most or used < 0.8 * most:
        return []
    return [
        ServerProblem(
            severity=Severity.WARN,
            what=f"{used / most:.0%} of maxmemory is used; at 100% no run can go on",
            fix="raise maxmemory, or shorten PACELINE_RETENTION_SECONDS",
        )
    ]
