"""Sending turns to the fleet by name: the producer never imports a worker.

A message carries a run's id and a turn, nothing else. It is written by kombu in Celery's protocol 2, without the
optional headers: about 500 bytes each, and some 20 microseconds where the transport can batch.
"""

# mypy: allow-untyped-calls
# kombu is untyped.

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.exceptions import BatchPublishError, KombuError
from kombu.messaging import Producer

from paceline.core.errors import InfrastructureError
from paceline.core.ids import RunId
from paceline.core.wire import SENT_HEADER, TURN_TASK
from paceline.core.wire import Queue as QueueName

_TRIES = 2


class Publisher(Protocol):
    """Tells the workers what is due."""

    def publish_turns(self, run_ids: Sequence[RunId]) -> None:
        """Say that the first turn of these runs is due. Raises InfrastructureError."""

    def close(self) -> None:
        """Give the connection back."""


class KombuPublisher:
    """Publishes through any kombu transport. Connects at the first message; not for several threads at once."""

    def __init__(self, url: str, transport_options: Mapping[str, Any] | None = None) -> None:
        self._connection = Connection(url, transport_options=dict(transport_options or {}), connect_timeout=5)
        self._producer: Producer | None = None

    def publish_turns(self, run_ids: Sequence[RunId]) -> None:
        # A try that failed half way is repeated whole: a turn that is announced twice is taken once.
        for left in reversed(range(_TRIES)):
            try:
                self._publish(run_ids)
                break
            except self._broker_errors() as error:
                self._reset()
                if not left:
                    raise self._refused(error) from error

    def close(self) -> None:
        self._reset()

    def _broker_errors(self) -> tuple[type[Exception], ...]:
        # Errors of a channel too: Redis that is full, and a broker that would have the queue otherwise, answer so.
        of_transport = (*self._connection.connection_errors, *self._connection.channel_errors)
        return (KombuError, BatchPublishError, OSError, *of_transport)

    def _publish(self, run_ids: Sequence[RunId]) -> None:
        producer = self._ready()
        sent_ms = time.time_ns() // 1_000_000
        with producer.batch(max(1, len(run_ids))):
            for run_id in run_ids:
                _publish_turn(producer, run_id, turn=1, sent_ms=sent_ms)

    def _refused(self, error: Exception) -> InfrastructureError:
        return InfrastructureError(
            f"the broker at {self._connection.as_uri()} did not take every message ({error}). The runs are on record: "
            "the workers find them by their sweep"
        )

    def _ready(self) -> Producer:
        if self._producer is None:
            channel = self._connection.channel()
            # Declared as Celery's workers do: a broker with real queues keeps what comes before the first worker.
            Queue(QueueName.STARTS.value, Exchange(""), routing_key=QueueName.STARTS.value)(channel).declare()
            self._producer = Producer(channel)
        return self._producer

    def _reset(self) -> None:
        self._producer = None
        self._connection.release()
        self._connection = self._connection.clone()  # a released one does not connect again


def _publish_turn(producer: Producer, run_id: RunId, *, turn: int, sent_ms: int) -> None:
    task_id = f"{run_id}.{turn}"
    headers = {
        "lang": "py",
        "task": TURN_TASK,
        "id": task_id,
        "root_id": task_id,
        "parent_id": None,
        "group": None,
        SENT_HEADER: sent_ms,
    }
    producer.publish(
        [[run_id, turn], {}, {}],
        exchange="",
        routing_key=QueueName.STARTS.value,
        serializer="json",
        headers=headers,
        correlation_id=task_id,
    )
