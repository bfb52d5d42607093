"""What waits in the broker, and what workers have in hand: read from a Redis broker's own keys, which kombu keeps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from paceline.core.errors import InfrastructureError
from paceline.core.wire import POOLS, SENT_HEADER, Queue, unacked_key
from paceline.store.border import border


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """A queue. `oldest_sent_ms` None: nothing waits in it, or the sender did not say."""

    depth: int
    in_flight: int
    oldest_sent_ms: int | None

    def oldest_age_seconds(self, now_ms: int) -> float:
        """How long the oldest message has waited; 0 where none does."""
        return 0.0 if self.oldest_sent_ms is None else max(0, now_ms - self.oldest_sent_ms) / 1000


async def queue_states(broker: Redis, key_prefix: str) -> Mapping[str, QueueState]:
    """The state of every queue. `key_prefix` is that of the broker's own keys.

    Raises InfrastructureError, also where somebody has put something there that is no message.
    """
    with border():
        async with broker.pipeline(transaction=False) as pipe:
            for queue in Queue:
                pipe.llen(f"{key_prefix}{queue}")
                pipe.lindex(f"{key_prefix}{queue}", -1)  # new ones come in at the other end
            for pool in POOLS:
                pipe.hgetall(f"{key_prefix}{unacked_key(pool)}")
            answers = await pipe.execute()
    try:
        return _states(answers)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InfrastructureError(
            f"what is in it are no messages as kombu writes them ({type(error).__name__})"
        ) from error


def _states(answers: Sequence[Any]) -> Mapping[str, QueueState]:
    waiting, in_hand = answers[: -len(POOLS)], _in_hand(answers[-len(POOLS) :])
    return {
        queue.value: QueueState(depth=depth, in_flight=in_hand[queue], oldest_sent_ms=_sent_ms(oldest))
        for queue, depth, oldest in zip(Queue, waiting[::2], waiting[1::2], strict=True)
    }


def _in_hand(unacked: Sequence[Mapping[bytes, bytes]]) -> Counter[str]:
    """How many messages of each queue workers have: kombu keeps the message, its exchange and its routing key."""
    return Counter(json.loads(stored)[2] for of_pool in unacked for stored in of_pool.values())


def _sent_ms(message: bytes | None) -> int | None:
    headers: Mapping[str, Any] = json.loads(message)["headers"] if message else {}
    return headers.get(SENT_HEADER)
