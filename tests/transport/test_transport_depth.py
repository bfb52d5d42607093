"""How many messages wait in a queue, asked as AMQP has it: the sweeper's brake rests on the answer."""

# mypy: allow-untyped-calls
# kombu is untyped.

from __future__ import annotations

import uuid

import pytest

from paceline.worker.transport import BrokerConnection


@pytest.mark.parametrize("prefix", ["", "fleet:broker:"], ids=["without a prefix", "with a prefix"])
def test_a_queue_says_how_many_messages_wait_in_it(valkey_url: str, prefix: str) -> None:
    queue = f"queue-{uuid.uuid4().hex}"
    options = {"global_keyprefix": prefix, "priority_steps": [0]}
    with BrokerConnection(valkey_url, transport_options=options) as connection, connection.channel() as channel:
        assert channel.queue_declare(queue=queue, passive=True).message_count == 0
        for _ in range(3):
            channel._put(queue, {})
        assert channel.queue_declare(queue=queue, passive=True).message_count == 3
        channel._purge(queue)
