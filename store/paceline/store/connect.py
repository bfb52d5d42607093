"""From a URL to the record, and what is asked of a server before runs are trusted to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import AuthenticationError, RedisClusterException, RedisError

from paceline.core.errors import InfrastructureError, UsageError
from paceline.core.shown_address import why_not_an_address, without_password

from .border import plain
from .durability import Durability
from .durable import DurableRunStore
from .primaries import infos
from .record import RedisRunStore

_SOCKET_OPTIONS: dict[str, Any] = {
    "socket_timeout": 10.0,  # a command on a connection that is dead without a word must fail, not hang
    "socket_connect_timeout": 5.0,
    "socket_keepalive": True,
    "health_check_interval": 25,
    # A server that restarts, or drops its connections, is waited for: every command may be carried out twice.
    "retry": Retry(ExponentialWithJitterBackoff(base=0.02, cap=1.0), 8),
}
_CHECK_SECONDS = 15.0
_CONNECTIONS = 48
"""Scripts take a fraction of a millisecond: a few dozen connections serve hundreds of turns in flight."""
_WAITING_CONNECTIONS = 512
"""A write that waits for a disk or a replica keeps its connection for as long; and a cluster's client does not queue
for a free connection, it refuses."""
_KNOWN_FORMS = (
    "give redis://host:6379/0, rediss://host:6379/0 (with TLS), unix:///path/to/socket?db=0, "
    "sentinel://host:26379,host:26379/0?service=name, redis+cluster://host:6379,host:6379 or rediss+cluster://..."
)
_CLUSTER_SCHEMES = {"redis+cluster": "redis", "rediss+cluster": "rediss"}
_SCHEMES = ("redis", "rediss", "unix", "sentinel", *_CLUSTER_SCHEMES)


def connect(
    url: str,
    *,
    prefix: str = "paceline",
    claim_seconds: float = 30.0,
    retention_seconds: float = 7 * 86_400.0,
    durability: Durability = Durability.FAST,
) -> RedisRunStore:
    """The record at `url`.

    redis, rediss, unix; `sentinel://host:port,host:port/db?service=name`; `redis+cluster://host:port,host:port` (with
    TLS `rediss+cluster://`), which needs no more than one node that answers. Options follow a `?`, as redis-py names
    them: `rediss://host/0?ssl_ca_certs=/etc/ca.pem`. Nothing is sent yet. UsageError for a URL that cannot be one.
    """
    connections = _CONNECTIONS if durability is Durability.FAST else _WAITING_CONNECTIONS
    try:
        client = _client(url, connections)
    except ValueError:
        # Not from the error: it may quote what must not be shown.
        raise UsageError(_not_an_address(url, connections)) from None
    options: dict[str, Any] = {
        "prefix": prefix,
        "claim_seconds": claim_seconds,
        "retention_seconds": retention_seconds,
    }
    if durability is Durability.FAST:
        return RedisRunStore(client, **options)
    return DurableRunStore(client, durability=durability, **options)


def _not_an_address(url: str, connections: int) -> str:
    # Of a scheme that it does not know, redis-py would tell those that it knows, which are not all of ours.
    is_known = url.partition("://")[0] in _SCHEMES
    why = why_not_an_address(url, lambda read: _client(read, connections)) if is_known else ""
    told = f" ({why})" if why else ""
    return f"{without_password(url)!r} is not a Redis URL{told}: {_KNOWN_FORMS}"


def _client(url: str, connections: int) -> Redis:
    match url.partition("://")[0]:
        case "sentinel":
            return _sentinel(url)
        case scheme if scheme in _CLUSTER_SCHEMES:
            return _cluster(url)
        case _:
            return _direct(url, connections)


def _direct(url: str, connections: int) -> Redis:
    options = {k: v for k, v in _SOCKET_OPTIONS.items() if not (url.startswith("unix") and k == "socket_keepalive")}
    return Redis.from_pool(BlockingConnectionPool.from_url(url, max_connections=connections, timeout=20, **options))


def _cluster(url: str) -> Redis:
    scheme, _, rest = url.partition("://")
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    first, *others = hosts.split(",")
    options = dict(parse_url(f"{_CLUSTER_SCHEMES[scheme]}://{login}{at}{first}{rest.partition(hosts)[2]}"))
    if options.pop("connection_class", None) is SSLConnection:
        options["ssl"] = True
    nodes = [ClusterNode(*_address(host, 6379)) for host in others]
    merged: dict[str, Any] = {**_SOCKET_OPTIONS, "max_connections": _WAITING_CONNECTIONS, **options}
    # The commands used here are the same on both clients; redis-py has no type for what they share.
    return cast("Redis", RedisCluster(startup_nodes=nodes, **merged))


def _address(host: str, default_port: int) -> tuple[str, int]:
    name, _, port = host.rpartition(":")
    return (name, int(port)) if name else (host, default_port)


def _sentinel(url: str) -> Redis:
    parts = urlsplit(url)
    hosts = parts.netloc.rpartition("@")[2].split(",")
    service = parse_qs(parts.query).get("service", ["mymaster"])[0]
    addresses = [_address(host, 26379) for host in hosts]
    options: dict[str, Any] = {**_SOCKET_OPTIONS, "username": parts.username, "password": parts.password}
    # redis-py leaves its Sentinel untyped.
    sentinel: Any = Sentinel(addresses, socket_timeout=_SOCKET_OPTIONS["socket_connect_timeout"])  # type: ignore[no-untyped-call]
    database = int(parts.path.strip("/") or 0)
    primary: Redis = sentinel.master_for(service, redis_class=_Watched, db=database, **options)
    return primary


class _Watched(Redis):
    """A client of whichever server the sentinels call primary. It gives their connections back with its own."""

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await super().aclose(close_connection_pool)
        pool = cast("SentinelConnectionPool", self.connection_pool)
        for sentinel in pool.sentinel_manager.sentinels:
            await sentinel.aclose()


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


async def check_server(
    store: RedisRunStore, *, url: str = "", within_seconds: float = _CHECK_SECONDS
) -> list[ServerProblem]:
    """What is wrong with the servers behind the record. InfrastructureError if they cannot be asked at all."""
    where = f" at {without_password(url)}" if url else ""
    try:
        # Somebody waits for the answer, and not as long as a worker, which bears with a server that restarts.
        async with asyncio.timeout(within_seconds):
            found = await infos(store.redis)
            policy = await _setting(store.redis, "maxmemory-policy")
    except AuthenticationError as error:
        raise InfrastructureError(
            f"Redis{where} refuses the login ({error}); set user and password in PACELINE_REDIS_URL"
        ) from error
    except TimeoutError as error:
        raise InfrastructureError(
            f"Redis{where} has not answered for {within_seconds:g} s; is it running and well, and is "
            "PACELINE_REDIS_URL right (rediss:// only where the port speaks TLS)?"
        ) from error
    except (RedisError, RedisClusterException, OSError) as error:
        raise InfrastructureError(
            f"Redis{where} cannot be reached ({plain(error)}); is it running, and is PACELINE_REDIS_URL right?"
        ) from error
    durability = store.durability if isinstance(store, DurableRunStore) else Durability.FAST
    return [
        replace(problem, what=f"{node}: {problem.what}" if node else problem.what)
        for node, info in found.items()
        for problem in server_problems(info, policy, durability)
    ]


def server_problems(info: Mapping[str, Any], policy: str | None, durability: Durability) -> list[ServerProblem]:
    """What is wrong with a server that says this of itself; `policy` is None where it may not be asked for it."""
    return [
        *_version(info),
        *_eviction(info, policy),
        *_role(info),
        *_persistence(info, durability),
        *_replicas(info, durability),
        *_memory(info),
    ]


async def _setting(redis: Redis, name: str) -> str | None:
    try:
        return str((await redis.config_get(name)).get(name) or "") or None
    except RedisError:
        return None  # managed servers forbid CONFIG; INFO tells the policy too


def _version(info: Mapping[str, Any]) -> list[ServerProblem]:
    version = str(info.get("valkey_version") or info.get("redis_version") or "0")
    if int(version.split(".")[0]) >= 7:
        return []
    what = f"the server is version {version}; paceline is tested on Redis 7 and newer and on Valkey 8 and newer"
    return [ServerProblem(severity=Severity.WARN, what=what, fix="upgrade the server")]


def _eviction(info: Mapping[str, Any], policy: str | None) -> list[ServerProblem]:
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


def _role(info: Mapping[str, Any]) -> list[ServerProblem]:
    if info.get("role") != "slave":
        return []
    return [
        ServerProblem(
            severity=Severity.FAIL,
            what="the server is a read-only replica",
            fix="point PACELINE_REDIS_URL at the primary",
        )
    ]


def _persistence(info: Mapping[str, Any], durability: Durability) -> list[ServerProblem]:
    if durability is Durability.FSYNC:
        return _fsync(info)
    if info.get("aof_enabled"):
        return []
    return [
        ServerProblem(
            severity=Severity.WARN,
            what="the append-only file is off: a restart of the server loses every run since its last snapshot",
            fix="CONFIG SET appendonly yes (and in redis.conf)",
        )
    ]


def _fsync(info: Mapping[str, Any]) -> list[ServerProblem]:
    if _numbers(info.get("redis_version")) < (7, 2):
        what = f"PACELINE_DURABILITY is fsync, and version {info.get('redis_version')} has no WAITAOF"
        return [ServerProblem(severity=Severity.FAIL, what=what, fix="upgrade to Redis 7.2 or newer, or to Valkey")]
    if not info.get("aof_enabled"):
        what = "PACELINE_DURABILITY is fsync, and the append-only file is off"
        return [ServerProblem(severity=Severity.FAIL, what=what, fix="CONFIG SET appendonly yes (and in redis.conf)")]
    return []


def _numbers(version: object) -> tuple[int, ...]:
    return tuple(int(part) for part in str(version or "0").split(".") if part.isdigit())


def _replicas(info: Mapping[str, Any], durability: Durability) -> list[ServerProblem]:
    if durability is not Durability.REPLICATED or info.get("connected_slaves"):
        return []
    what = "PACELINE_DURABILITY is replicated, and no replica is connected: nothing that must not be lost is done"
    return [ServerProblem(severity=Severity.FAIL, what=what, fix="connect a replica, or set PACELINE_DURABILITY=fsync")]


def _memory(info: Mapping[str, Any]) -> list[ServerProblem]:
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
