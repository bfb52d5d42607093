"""Sending messages through Celery: the only place that does. It blocks: never call it on the loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, assert_never

from celery import Celery, chord

from paceline.core.ids import RunId
from paceline.core.wire import JOIN_TASK, SENT_HEADER, TOOL_TASK, TURN_TASK, Queue

from .messages import ChordMessage, JoinMessage, Message, TurnMessage
from .record_clock import now_ms

log = logging.getLogger("paceline.dispatch")


class Dispatcher:
    """Sends messages by task name. `now_ms` is the time that they bear as that of their sending."""

    def __init__(self, app: Celery, now_ms: Callable[[], int] = now_ms) -> None:
        self._app = app
        self._now_ms = now_ms

    def send(self, messages: Iterable[Message]) -> None:
        """Hand these to the broker. Raises nothing: a message that could not be sent is sent again by the sweeper."""
        for message in messages:
            try:
                self._send(message)
            except Exception:
                # Of any kind that a broker's client has. The run is on record as it is: it must not fail for this.
                log.exception("a message of run %s could not be sent; the sweeper sends it again", message.run_id)

    def _send(self, message: Message) -> None:
        match message:
            case TurnMessage(run_id=run_id, turn=turn, queue=queue):
                self._signature(TURN_TASK, run_id, turn, queue=queue).apply_async()
            case ChordMessage():
                self._send_chord(message)
            case JoinMessage(run_id=run_id, turn=turn):
                self._signature(JOIN_TASK, run_id, turn, queue=Queue.TURNS).apply_async()
            case _:
                assert_never(message)

    def _send_chord(self, message: ChordMessage) -> None:
        header = [
            self._signature(TOOL_TASK, message.run_id, message.turn, call, queue=Queue.TOOLS) for call in message.calls
        ]
        body = self._signature(JOIN_TASK, message.run_id, message.turn, queue=Queue.TURNS)
        with self._app.producer_pool.acquire() as producer, producer.batch(max_size=len(header)):
            chord(header, app=self._app)(body)

    def _signature(self, task: str, run_id: RunId, turn: int, *rest: str, queue: Queue) -> Any:
        arguments = (run_id, turn, *rest)
        return self._app.signature(
            task,
            args=arguments,
            immutable=True,
            queue=queue.value,
            headers={SENT_HEADER: self._now_ms()},
            # What Celery would find out anew for each message, at a third of the price of sending it.
            declare=(),
            argsrepr=repr(arguments),
            kwargsrepr="{}",
        )
