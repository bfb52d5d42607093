"""From the URLs that users give to what kombu wants to see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
    """A kombu URL and the transport options that go with it."""

    url: str
    transport_options: Mapping[str, Any] = field(default_factory=dict)


def broker_address(url: str) -> BrokerAddress:
    """`unix://` and `sentinel://host,host/db?service=name` become kombu's own spelling; all else stays as it is."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return BrokerAddress(url=f"redis+socket://{url.removeprefix('unix://')}".replace("db=", "virtual_host="))
    if parts.scheme == "sentinel":
        login, _, hosts = parts.netloc.rpartition("@")
        at = f"{login}@" if login else ""
        database = parts.path.strip("/") or "0"
        urls = ";".join(f"sentinel://{at}{host}/{database}" for host in hosts.split(","))
        service = parse_qs(parts.query).get("service", ["mymaster"])[0]
        return BrokerAddress(url=urls, transport_options={"master_name": service})
    return BrokerAddress(url=url)
