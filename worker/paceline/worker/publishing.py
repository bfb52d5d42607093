"""How a process publishes: over one connection, which its threads take in turn."""

# mypy: allow-untyped-calls
# Celery and kombu ship no type information.

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

from celery import Celery
from kombu.messaging import Producer

from .transport import Amqp


class PublishingAmqp(Amqp):
    """Celery's door to its broker, with one producer for the process: use it as `Celery(amqp=PublishingAmqp)`."""

    @property
    def producer_pool(self) -> SharedProducer:
        # Celery forgets it by this name in a forked child, which must not use its parent's connection.
        if self._producer_pool is None:
            self._producer_pool: SharedProducer | None = SharedProducer(self.app)
        return self._producer_pool


class SharedProducer:
    """Stands where Celery keeps a pool of producers, each of which costs as much to make ready as a message to send.

    A thread that holds it may acquire it again: what is sent inside a batch then joins that batch.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._lock = RLock()
        self._producer: Producer | None = None

    @contextmanager
    def acquire(self, block: bool = True, timeout: float | None = None) -> Iterator[Any]:
        """The producer, for one thread at a time; connects when it is first acquired."""
        with self._lock:
            if self._producer is None:
                self._producer = self._connected()
            yield self._producer

    def _connected(self) -> Producer:
        connection = self._app.connection_for_write()
        for queue in self._app.amqp.queues.values():
            queue(connection.default_channel).declare()  # once: no message has to say what its queue is
        return Producer(connection)
