"""The broker of a fleet in a box: queues, and what becomes of each message."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.core.ids import CallId, RunId
from paceline.core.wire import Queue
from paceline.worker.messages import ChordMessage, JoinMessage, Message, TurnMessage

from .plan import Fate


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A message of the broker: run this call."""

    run_id: RunId
    turn: int
    call_id: CallId


Envelope = TurnMessage | ToolCall | JoinMessage


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Delivery:
    """A message in the hands of a worker, until it is acknowledged."""

    queue: Queue
    sent_ms: int
    envelope: Envelope


class Broker:
    """The queues, in the order in which they are served."""

    def __init__(self, fates: Sequence[Fate], now_ms: Callable[[], int]) -> None:
        self._fates = deque(fates)
        self._now_ms = now_ms
        self._queues: dict[Queue, deque[tuple[int, Envelope]]] = {queue: deque() for queue in Queue}
        self._late: list[tuple[int, Envelope]] = []
        self._came = asyncio.Event()
        self.sent = 0

    def send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            for envelope in _envelopes(message):
                self._post(envelope)

    def _post(self, envelope: Envelope) -> None:
        self.sent += 1
        stamped = (self._now_ms(), envelope)
        match self._fates.popleft() if self._fates else Fate.ARRIVES:
            case Fate.LATE:
                self._late.append(stamped)
            case Fate.LOST:
                pass
            case fate:
                self._queues[_queue_of(envelope)].extend([stamped] * (2 if fate is Fate.TWICE else 1))
        self._came.set()

    def empty_queues(self) -> frozenset[Queue]:
        return frozenset(queue for queue, waiting in self._queues.items() if not waiting)

    async def next(self) -> Delivery:
        """The first message of the first queue that has one."""
        while True:
            for queue, waiting in self._queues.items():
                if waiting:
                    sent_ms, envelope = waiting.popleft()
                    return Delivery(queue=queue, sent_ms=sent_ms, envelope=envelope)
            await self._something_came()

    def deliver_again(self, delivery: Delivery) -> None:
        """Whoever had it is gone, and has not acknowledged it."""
        self._late.append((delivery.sent_ms, delivery.envelope))
        self._came.set()

    async def _something_came(self) -> None:
        self._came.clear()
        if self._late:
            await asyncio.sleep(1)
            for stamped in self._late:
                self._queues[_queue_of(stamped[1])].append(stamped)
            self._late.clear()
        else:
            await self._came.wait()


def _envelopes(message: Message) -> list[Envelope]:
    if isinstance(message, ChordMessage):
        return [ToolCall(run_id=message.run_id, turn=message.turn, call_id=call) for call in message.calls]
    return [message]


def _queue_of(envelope: Envelope) -> Queue:
    match envelope:
        case TurnMessage(queue=queue):
            return queue
        case ToolCall():
            return Queue.TOOLS
        case JoinMessage():
            return Queue.TURNS
