"""A broker behind TLS, and with no more rights than are documented."""

# mypy: allow-untyped-calls
# kombu is untyped.

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery
from kombu.connection import Connection
from redis import Redis
from redis.exceptions import ConnectionError as ConnectionLost
from support.acl import documented_rules, set_rules
from support.tls import with_another_authority
from support.waiting import wait_until
from transport.harness import QUEUE, running_worker

from paceline.worker.transport import Amqp


@pytest.fixture
def empty_valkey(valkey_url: str) -> Iterator[str]:
    """The session's server, of which the broker's keys here are removed afterwards."""
    yield valkey_url
    with Redis.from_url(valkey_url) as client:
        client.delete(QUEUE, "unacked.threads", "unacked_index.threads", f"_kombu.binding.{QUEUE}")


def carry_out(broker_url: str, folder: Path, *, seen_from: str) -> None:
    """Publish a task, have it carried out though its first worker dies, and see that it is acknowledged."""
    with Celery("producer", broker=broker_url, amqp=Amqp, set_as_current=False) as app:
        app.send_task("probe.wait", ["orphan"], queue=QUEUE)
    with running_worker(broker_url, folder, pool="threads", visibility_s=1) as worker:
        worker.wait_for("started", "orphan")
        worker.kill()
    with running_worker(broker_url, folder, pool="threads", visibility_s=1) as heir:
        heir.open_gate("orphan")
        heir.wait_for("ended", "orphan")
        wait_until(lambda: is_settled(seen_from), "every message acknowledged")


def is_settled(url: str) -> bool:
    with Redis.from_url(url) as client:
        return not client.llen(QUEUE) and not client.hlen("unacked.threads")


def test_the_documented_rights_of_a_broker_are_enough(empty_valkey: str, tmp_path: Path) -> None:
    rules = [rule for rules in documented_rules() for rule in rules]
    url = set_rules(empty_valkey, "broker", [*rules, "resetkeys", "~*"])
    carry_out(url, tmp_path, seen_from=empty_valkey)


def test_a_broker_is_reached_over_tls(empty_valkey: str, tls_url: str, tmp_path: Path) -> None:
    carry_out(tls_url, tmp_path, seen_from=empty_valkey)


def test_a_broker_that_another_authority_vouches_for_is_not_trusted(tls_url: str) -> None:
    connection = Connection(with_another_authority(tls_url))
    with connection, pytest.raises(ConnectionLost, match="certificate verify failed"):
        connection.connect()
