"""Redis as a broker that may drop a connection, restart or fail over while tasks run.

kombu's Redis transport takes a lost connection for the end of what it delivered: it puts every unacknowledged
message back although the tasks still run, and the acknowledgements of those tasks then find no connection
and stop the worker. The classes here differ from kombu's in five points:

1. a channel whose connection was lost still acknowledges and rejects: both go by delivery tag, over any connection;
2. unacknowledged messages are given back when the worker closes or exits, never when a connection drops;
3. the blocking loop looks for the expired messages of dead workers too, as the event loop does;
4. a message that was popped just before the connection was lost is carried out, not dropped;
5. a broker that refuses a write (its memory or disk is full, its replicas are gone) is away, and tried again.

One window stays, under prefork only: Celery forgets a message whose child process had not yet confirmed it when the
connection dropped. It is carried out, but not acknowledged, and comes again after the visibility timeout.

Use: `Celery(amqp=Amqp)`, with `broker_channel_error_retry` for the fifth; other brokers keep the classes they have.
The differences rest on internals of kombu 5.7 (`Transport._collect`, `Channel._disconnect_pools`,
`QoS._on_collect`): `tests/transport` guards them.
"""

# mypy: allow-untyped-calls
# kombu and Celery annotate little: most of what is called here is untyped.

from __future__ import annotations

import logging
from queue import Empty
from time import monotonic
from typing import Any

from celery.app.amqp import AMQP
from kombu.connection import Connection
from kombu.transport import redis
from redis.exceptions import ResponseError

from paceline.core.wire import unacked_key

RETRY_ACKS_SECONDS = 1.0
"""Pause before acknowledgements that the broker did not take are tried again."""

logger = logging.getLogger(__name__)


class QoS(redis.QoS):
    """The messages a channel delivered and nobody has settled yet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._owed: set[str] = set()

    def append(self, message: Any, delivery_tag: str) -> None:
        """Record a message as delivered; one that cannot be recorded is still carried out."""
        try:
            super().append(message, delivery_tag)
        except (*self.channel.connection_errors, ResponseError) as lost:
            # It was popped, so no other worker can have it: raising, as kombu does, would lose it.
            logger.warning("broker away (%s): a message is carried out without a record of it", lost)
            super(redis.QoS, self).append(message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message; while the broker is away, remember to.

        Raises: a connection error if the broker is away and there is no event loop to try again from.
        """
        try:
            super().ack(delivery_tag)
        except (*self.channel.connection_errors, ResponseError) as lost:
            self._owe(delivery_tag, lost)
        else:
            self.forget_if_settled()

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        super().reject(delivery_tag, requeue=requeue)
        self.forget_if_settled()

    def forget_if_settled(self) -> None:
        """Let a lost channel be collected once nothing remains that it would have to give back at exit."""
        if self.channel.is_lost and len(self._delivered) == len(self._dirty):
            self._on_collect.cancel()
            self.channel._disconnect_pools()  # the sockets that were opened to settle what had been delivered

    def _owe(self, delivery_tag: str, lost: Exception) -> None:
        event_loop = self.channel.event_loop
        if event_loop is None:
            raise lost
        if not self._owed:
            logger.warning("broker away (%s): acknowledging again in %s s", lost, RETRY_ACKS_SECONDS)
            event_loop.call_later(RETRY_ACKS_SECONDS, self._settle_owed)
        self._owed.add(delivery_tag)

    def _settle_owed(self) -> None:
        owed, self._owed = self._owed, set()
        for delivery_tag in owed:
            self.ack(delivery_tag)


class _Outliving:
    """What both channel classes add: a life after the connection, for the tasks that were delivered on it."""

    QoS = QoS
    is_lost = False

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        self._clients: dict[bool, tuple[Any, Any]] = {}
        self._transport = connection  # `connection` becomes None at a close; tags are settled after that
        super().__init__(connection, **kwargs)  # type: ignore[call-arg]

    def _create_client(self: Any, asynchronous: bool = False) -> Any:
        # kombu makes a client for every message and every acknowledgement: a face of its pool, thread-safe, and dear.
        pool = self.async_pool if asynchronous else self.pool
        of_pool, client = self._clients.get(asynchronous, (None, None))
        if of_pool is not pool:
            client = super()._create_client(asynchronous)  # type: ignore[misc]
            self._clients[asynchronous] = (pool, client)
        return client

    @property
    def state(self) -> Any:
        """Exchanges and bindings, which say where a rejected message goes back to."""
        return self._transport.state

    @property
    def event_loop(self) -> Any:
        return self._transport.event_loop

    def _has_queue(self, queue: str, **_options: Any) -> bool:
        # An empty list has no key, so there is nothing to ask; and kombu would ask without `global_keyprefix`, find
        # nothing, and refuse to say how long a queue is.
        return True

    def outlive_connection(self: Any) -> None:
        """Let go of the sockets and keep the tags of what was delivered, and the pool to settle them over."""
        self.is_lost = True
        try:
            self._take_popped_message()
        finally:
            self._disconnect_pools()
            self._transport.close_channel(self)
            if self._qos is not None:
                self._qos.forget_if_settled()

    def close(self: Any) -> None:
        # kombu closes the default channel of a connection again after `Transport._collect`; closing gives back.
        if not self.is_lost:
            super().close()  # type: ignore[misc]

    def _take_popped_message(self: Any) -> None:
        """Read the answer to a BRPOP under way: if this connection still lives, it may bring a message."""
        try:
            if self._in_poll:
                self._brpop_read()
        except (Empty, *self.connection_errors):
            pass

    def _disconnect_pools(self: Any) -> None:
        # An emptied pool connects again when asked. kombu drops the pool, and cannot make one without its connection.
        pool, sentinels = self._pool, self._sentinel_manager
        super()._disconnect_pools()  # type: ignore[misc]
        self._pool, self._sentinel_manager = pool, sentinels


class Channel(_Outliving, redis.Channel):
    """A channel to one Redis server."""


class SentinelChannel(_Outliving, redis.SentinelChannel):
    """A channel to whichever server the sentinels call primary."""


class _Sweeping:
    """What both transport classes add: lost connections keep their messages, the blocking loop sweeps."""

    event_loop: Any = None
    _swept_at = float("-inf")

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        self.event_loop = loop
        super().register_with_event_loop(connection, loop)  # type: ignore[misc]

    def drain_events(self: Any, connection: Any, timeout: float | None = None) -> None:
        self._sweep_if_due()
        super().drain_events(connection, timeout=timeout)  # type: ignore[misc]

    def _sweep_if_due(self: Any) -> None:
        interval_seconds = self.client.transport_options.get(
            "unacked_restore_interval", redis.Channel.unacked_restore_interval
        )
        if monotonic() - self._swept_at >= interval_seconds:
            self._swept_at = monotonic()
            self.cycle.maybe_restore_messages()

    def _collect(self: Any, connection: Any) -> None:
        """Drop a lost connection (kombu and Celery call this, and only then). A close for good goes another way."""
        for channel in {*self.channels, *self._avail_channels}:
            channel.outlive_connection()
        self.cycle.close()  # else the event loop, which keeps the poller, would consume for channels that are gone


class Transport(_Sweeping, redis.Transport):  # type: ignore[misc]
    """`redis://`, `rediss://` and `redis+socket://`."""

    Channel = Channel


class SentinelTransport(_Sweeping, redis.SentinelTransport):  # type: ignore[misc]
    """`sentinel://`; the transport option `master_name` is required."""

    Channel = SentinelChannel


class BrokerConnection(Connection):
    """A connection that knows the transports above by the scheme of its URL.

    Celery's `broker_transport` could name one class, but gives way to the scheme on `redis+socket://` and at each
    switch to another URL of a list, and hides `rediss` from the code that turns TLS on.
    """

    def get_transport_cls(self) -> Any:
        match self.transport_cls:
            case "redis" | "rediss":
                return Transport
            case "sentinel":
                return SentinelTransport
            case _:
                return super().get_transport_cls()


class Amqp(AMQP):  # type: ignore[misc]
    """Celery's door to its broker, with the connection above: `Celery(amqp=Amqp)`."""

    Connection = BrokerConnection
    BrokerConnection = BrokerConnection


def transport_options(concurrency: int, *, pool: str = "threads") -> dict[str, Any]:
    """Settings for `broker_transport_options` of a worker with `concurrency` slots, beside those of the address."""
    return {
        # What workers have in hand, apart by pool: an autoscaler reads how much that is, and turns are not tools.
        "unacked_key": unacked_key(pool),
        "unacked_index_key": f"unacked_index.{pool}",
        "unacked_mutex_key": f"unacked_mutex.{pool}",
        # The second net, under the sweeper of runs: longer than the longest turn and the drain of a shutdown.
        "visibility_timeout": 900,
        # Every sweep counts: kombu's default scans on each tenth call only, every 100 s.
        "unacked_restore_interval": 10,
        "unacked_restore_throttle": 1,
        # A restored message costs three round trips: 20,000 at once would block the worker for 8 s.
        "unacked_restore_limit": 500,
        # A worker killed inside a sweep stops everybody's for as long; a sweep of 500 takes well under a second.
        "unacked_mutex_expire": 30,
        # One list per queue: the order of work is the order of queues, and a BRPOP names as few keys as can be.
        "priority_steps": [0],
        "sep": ":",
        # The queues in the order they are consumed from: continuing work first. Others are `round_robin` (fair)
        # and `sorted` (alphabetical, which would put starts before turns).
        "queue_order_strategy": "priority",
        # redis-py refuses, does not wait, at the limit. Acknowledgements may come from every slot at once.
        "max_connections": max(200, 2 * concurrency),
        # Else a publish on a connection whose peer vanished waits for ever. A BRPOP is not cut short: its answer is
        # read when the socket is readable, and at a close after the second the server holds it, at most.
        "socket_timeout": 10,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        # Also how long an overdue BRPOP may be silent before its connection is dropped.
        "health_check_interval": 25,
    }
