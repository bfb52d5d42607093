# mypy: allow-untyped-calls
# kombu is untyped.

import json
import uuid
from typing import Any

import pytest
from kombu.connection import Connection
from redis import Redis

from paceline.core.errors import InfrastructureError
from paceline.core.ids import RunId
from paceline.producer import publish
from paceline.producer.broker_address import broker_address
from paceline.producer.local_workers import worker_command
from paceline.producer.publish import KombuPublisher
from paceline.worker import dispatch
from paceline.worker.queues import Queue
from paceline.worker.transport import broker_url

RUNS = [RunId("abcdefgh-0123456789abcdef"), RunId("abcdefgh-fedcba9876543210")]


def test_producer_and_workers_speak_of_the_same_task_queue_and_header() -> None:
    assert (publish.TURN_TASK, publish.STARTS_QUEUE, publish.SENT_HEADER) == (
        dispatch.TURN,
        Queue.STARTS,
        dispatch.SENT_HEADER,
    )
    assert ",".join(Queue) in worker_command(1)


def test_a_message_carries_the_run_and_the_turn_and_nothing_else() -> None:
    publisher = KombuPublisher("memory://")
    publisher.publish_turns(RUNS)
    with Connection("memory://") as connection, connection.SimpleQueue(publish.STARTS_QUEUE) as queue:
        messages = [queue.get(block=False) for _ in RUNS]
    publisher.close()
    assert [message.payload for message in messages] == [[[run, 1], {}, {}] for run in RUNS]
    headers = messages[0].headers
    assert (headers["task"], headers["id"]) == ("paceline.turn", f"{RUNS[0]}.1")
    assert headers[publish.SENT_HEADER] > 1_700_000_000_000


def test_on_redis_a_message_is_small_and_lies_where_workers_look(valkey_url: str) -> None:
    prefix = f"test-{uuid.uuid4().hex[:8]}"
    address = broker_address(valkey_url, prefix=prefix)
    publisher = KombuPublisher(address.url, address.transport_options)
    publisher.publish_turns(RUNS)
    publisher.close()
    key = f"{prefix}:broker:{publish.STARTS_QUEUE}"
    with Redis.from_url(valkey_url) as client:
        stored: list[Any] = client.lrange(key, 0, -1)
        client.delete(key)
    assert [json.loads(message)["headers"]["id"] for message in reversed(stored)] == [f"{run}.1" for run in RUNS]
    assert max(map(len, stored)) < 600


def test_a_broker_that_is_away_is_named_and_the_runs_are_said_to_be_safe() -> None:
    publisher = KombuPublisher("redis://:secret@127.0.0.1:1/0")
    with pytest.raises(InfrastructureError, match=r"127\.0\.0\.1:1.*The runs are on record") as caught:
        publisher.publish_turns(RUNS)
    publisher.close()
    assert "secret" not in str(caught.value)


def test_urls_become_what_kombu_knows_and_keep_to_the_prefix() -> None:
    redis = broker_address("redis://h:1/0", prefix="p")
    assert (redis.url, redis.transport_options["global_keyprefix"]) == ("redis://h:1/0", "p:broker:")
    assert broker_address("unix:///run/redis.sock?db=2").url == broker_url("unix:///run/redis.sock?db=2")
    sentinel = broker_address("sentinel://u:p@a:1,b:2/3?service=main")
    assert sentinel.url == "sentinel://u:p@a:1/3;sentinel://u:p@b:2/3"
    assert sentinel.transport_options["master_name"] == "main"
    rabbit = broker_address("amqp://h//")
    assert (rabbit.url, rabbit.transport_options) == ("amqp://h//", {})
