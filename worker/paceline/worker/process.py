"""A worker process: one loop on a thread of its own, and what lives there. Made after a fork, never before."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

from paceline.core.errors import InfrastructureError
from paceline.core.ids import CallId, Incarnation, RunId
from paceline.core.transcript import result_text
from paceline.core.wire import Queue
from paceline.store.connect import connect
from paceline.store.loop_thread import LoopThread
from paceline.store.port import RunStore
from paceline.tools import Registry, Tool, read_result_tool

from .confinement import Guard, unguarded
from .desk import GIVING_BACK_SECONDS, Desk
from .health import LoopWatch, turn_forever
from .liveness import beat_forever
from .messages import Message
from .model import AnthropicModel
from .record_clock import RecordClock, now_ms
from .settings import Settings
from .sweeper import Sweeper
from .telemetry.switch import is_on, wire
from .telemetry.traced_store import traced

T = TypeVar("T")

log = logging.getLogger("paceline.process")

Send = Callable[[Sequence[Message]], None]

LEAVING_SECONDS = 10.0
"""By how much a process may outlive its grace: more than giving back, retiring and closing take at most."""
_STOPPING_SECONDS = 0.5
"""For beat and sweep, which have nothing to do but heed that they are cancelled."""
_RETIRING_SECONDS = 1.5
_CLOSING_SECONDS = 3.0
"""As long as what is still to be exported may take."""


class WorkerProcess:
    """Starts when it is first needed or told to; ends by `stop`."""

    def __init__(
        self, settings: Settings, *, send: Send, empty_queues: Callable[[], frozenset[Queue]], clock: RecordClock
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._send = send
        self._empty_queues = empty_queues
        self._lock = threading.Lock()
        self._loop: LoopThread | None = None
        self._desk: Desk | None = None
        self.watch = LoopWatch("the loop of the tasks", patience_seconds=settings.health_seconds)
        self._in_hand: set[Future[Any]] = set()
        self._is_leaving = False

    def start(self, guard: Guard = unguarded) -> Desk:
        """The desk of this process; the first caller sets it up, and says what its tools may take."""
        with self._lock:
            if self._desk is None:
                self._loop = LoopThread()
                self._desk = self._loop.run(self._set_up(guard))
            return self._desk

    def run(self, work: Callable[[Desk], Coroutine[Any, Any, T]]) -> T:
        """Carry out this work on the loop and wait for it: what a Celery task does.

        Raises InfrastructureError if the process ends before the work does.
        """
        desk = self.start()
        assert self._loop is not None
        in_hand = self._loop.submit(work(desk))
        self._in_hand.add(in_hand)
        try:
            return in_hand.result()
        except CancelledError:
            raise InfrastructureError("this process ends, and what it did could not be written in time") from None
        finally:
            self._in_hand.discard(in_hand)

    def leave(self, grace_seconds: float) -> None:
        """See to it that everything in flight ends: by itself within the grace, or else by giving its claims back.

        Does not wait, and may be called again: a signal's handler does.
        """
        if self._loop is not None and not self._is_leaving:
            self._is_leaving = True
            with suppress(RuntimeError):  # the loop has just been closed: there is nothing left to see to
                self._loop.submit(self._leave(grace_seconds))

    async def _leave(self, grace_seconds: float) -> None:
        assert self._desk is not None
        await asyncio.sleep(grace_seconds)
        self._desk.in_flight.cut_tasks()
        await asyncio.sleep(GIVING_BACK_SECONDS)
        # The record is away, or somebody's code holds on: Celery waits for these no longer, and their runs need not.
        for in_hand in tuple(self._in_hand):
            log.warning("a task is left to the workers that remain")
            in_hand.cancel()
        await retire(self._desk)

    def stop(self) -> None:
        """Retire: whatever this process still holds may be recovered at once."""
        with self._lock:
            if self._loop is not None and self._desk is not None:
                self._loop.run(retire(self._desk))
                self._loop.run(close(self._desk))
                self._loop.close()
                self._loop, self._desk = None, None

    async def _set_up(self, guard: Guard) -> Desk:
        settings = self._settings
        store = _connect(settings)
        desk = Desk(
            settings=settings,
            store=store,
            model=AnthropicModel(longest_seconds=settings.model_seconds),
            registry=Registry([*settings.tools_path, os.getcwd()]),
            built_in=built_in_tools(store),
            incarnation=Incarnation(f"{os.getpid()}-{secrets.token_hex(5)}"),
            send=self._send,
            guard=guard,
            clock=self._clock,
        )
        desk.background.append(asyncio.ensure_future(turn_forever(self.watch)))
        desk.background.append(asyncio.ensure_future(beat_forever(desk)))
        desk.background.append(
            asyncio.ensure_future(Sweeper(desk=desk, empty_queues=self._empty_queues).sweep_forever())
        )
        return desk


def _connect(settings: Settings) -> RunStore:
    """The record; where traces are wanted, one that tells of what is written to it."""
    store = connect(
        settings.redis_url,
        prefix=settings.prefix,
        claim_seconds=settings.claim_seconds,
        retention_seconds=settings.retention_seconds,
        durability=settings.durability,
    )
    return _traced(store, os.environ) if is_on(os.environ) else store


def _traced(store: RunStore, environment: Mapping[str, str]) -> RunStore:
    # These import much that a worker without traces never needs, or show what only some want to be shown.
    from .telemetry.content import Content, is_wanted
    from .telemetry.otlp import OtlpTracer, otlp_exporter
    from .telemetry.request import server_of

    return traced(
        store,
        OtlpTracer(otlp_exporter(wire(environment))),
        now_ms=now_ms,
        server=server_of(environment),
        content=Content(store) if is_wanted(environment) else None,
    )


def built_in_tools(store: RunStore) -> Mapping[str, Tool]:
    """The tools that an agent has beside its own, by path."""

    async def whole_result(run_id: RunId, call_id: CallId) -> str | None:
        cut = await store.whole_result(run_id, call_id)
        return result_text(await store.transcript(run_id), call_id) if cut is None else cut

    read_result = read_result_tool(whole_result)
    return {read_result.spec.path: read_result}


async def retire(desk: Desk) -> None:
    """The end of a process: whatever it still holds may be recovered at once, if the record can be told in time."""
    for task in desk.background:
        task.cancel()
    if desk.background:
        await asyncio.wait(desk.background, timeout=_STOPPING_SECONDS)
    try:
        async with asyncio.timeout(_RETIRING_SECONDS):
            await desk.leave_timers()
            for name in (desk.incarnation, *desk.lives.ended(), *desk.lives.in_use()):
                await desk.store.retire(name)
    except (InfrastructureError, TimeoutError) as error:
        why = str(error) or "the record does not answer"
        log.warning("what this process held is recovered once its sign of life has run out: %s", why)


async def close(desk: Desk) -> None:
    """Give connections back, and let what is told of runs go out, if anybody takes it in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSING_SECONDS):
            await desk.store.aclose()
            await desk.model.aclose()
