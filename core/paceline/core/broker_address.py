"""From the URLs that users give to what kombu wants to see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .errors import UsageError
from .shown_address import why_not_an_address, without_password

_REDIS = ("redis", "rediss", "unix", "sentinel")
_SOCKET_OPTIONS: Mapping[str, Any] = MappingProxyType(
    # Else a publish on a connection whose peer vanished waits for ever.
    {"socket_timeout": 10, "socket_connect_timeout": 5, "socket_keepalive": True}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
    """A kombu URL and the transport options that go with it."""

    url: str
    transport_options: Mapping[str, Any] = field(default_factory=dict)
    is_redis: bool = True


def broker_address(url: str, *, prefix: str = "paceline") -> BrokerAddress:
    """The broker as kombu names it, with its keys where the workers look for them.

    `unix://` and `sentinel://host,host/db?service=name` become kombu's own spelling; all else stays as it is.
    UsageError for a Redis Cluster, over which no queue can be spread, and for what kombu would not read.
    """
    try:
        scheme = _scheme(url)
    except ValueError:
        # Not from the error: it may quote what must not be shown.
        raise UsageError(_not_an_address(url)) from None
    if scheme.endswith("+cluster"):
        raise UsageError(
            "a Redis Cluster can keep the record but not carry the messages: set PACELINE_BROKER_URL to a single "
            "server (redis://host:6379/0) or to RabbitMQ (amqp://host)"
        )
    if scheme not in _REDIS:
        return BrokerAddress(url=url, is_redis=False)
    _refuse_login_among_options(url)
    options = {**_SOCKET_OPTIONS, "global_keyprefix": f"{prefix}:broker:"}
    match scheme:
        case "unix":
            return BrokerAddress(url=_unix(url), transport_options=options)
        case "sentinel":
            service = parse_qs(urlsplit(url).query).get("service", ["mymaster"])[0]
            return BrokerAddress(url=_sentinel(url), transport_options=options | {"master_name": service})
        case _:
            return BrokerAddress(url=url, transport_options=options)


def _scheme(url: str) -> str:
    """Raises ValueError for an address that kombu could not read."""
    parts = urlsplit(url)
    if "," not in parts.netloc:  # of sentinels there may be several
        _ = parts.port
    return parts.scheme


def _not_an_address(url: str) -> str:
    why = why_not_an_address(url, _scheme)
    told = f" ({why})" if why else ""
    return f"the broker's address {without_password(url)!r} is none{told}: mend PACELINE_BROKER_URL"


def _refuse_login_among_options(url: str) -> None:
    if {"username", "password"} & parse_qs(urlsplit(url).query).keys():
        raise UsageError(
            f"the broker cannot log in by what stands after the ? of {without_password(url)!r}: write user and "
            "password before the host, redis://user:password@host:6379/0, or before the path, unix://user:password@/path"
        )


def _unix(url: str) -> str:
    parts = urlsplit(url)
    database = parse_qs(parts.query).get("db", ["0"])[-1]
    return f"redis+socket://{parts.netloc}{parts.path}?virtual_host={database}"


def _sentinel(url: str) -> str:
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    at = f"{login}@" if login else ""
    database = parts.path.strip("/") or "0"
    return ";".join(f"sentinel://{at}{host}/{database}" for host in hosts.split(","))
