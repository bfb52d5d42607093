# mypy: allow-untyped-calls
# kombu is untyped.

import json
import uuid
from typing import Any

import pytest
from kombu.connection import Connection
from redis import Redis

from paceline.core.broker_address import broker_address
from paceline.core.errors import InfrastructureError
from paceline.core.ids import RunId
from paceline.core.wire import SENT_HEADER, Queue
from paceline.producer.publish import KombuPublisher

RUNS = [RunId("abcdefgh-0123456789abcdef"), RunId("abcdefgh-fedcba9876543210")]


def test_a_message_carries_the_run_and_the_turn_and_nothing_else() -> None:
    publisher = KombuPublisher("memory://")
    publisher.publish_turns(RUNS)
    with Connection("memory://") as connection, connection.SimpleQueue(Queue.STARTS) as queue:
        messages = [queue.get(block=False) for _ in RUNS]
    publisher.close()
    assert [message.payload for message in messages] == [[[run, 1], {}, {}] for run in RUNS]
    headers = messages[0].headers
    assert (headers["task"], headers["id"]) == ("paceline.turn", f"{RUNS[0]}.1")
    assert headers[SENT_HEADER] > 1_700_000_000_000


def test_on_redis_a_message_is_small_and_lies_where_workers_look(valkey_url: str) -> None:
    prefix = f"test-{uuid.uuid4().hex[:8]}"
    address = broker_address(valkey_url, prefix=prefix)
    publisher = KombuPublisher(address.url, address.transport_options)
    publisher.publish_turns(RUNS)
    publisher.close()
    key = f"{prefix}:broker:{Queue.STARTS}"
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
