"""A worker process: one loop on a thread of its own, and what lives there. Made after a fork, never before."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
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
from .desk import Desk
from .health import LoopWatch, turn_forever
from .liveness import beat_forever
from .messages import Message
from .model import AnthropicModel
from .record_clock import RecordClock, now_ms
from .settings import Settings
from .sweeper import Sweeper
from .telemetry.switch import is_on
from .telemetry.traced_store import traced

T = TypeVar("T")

log = logging.getLogger("paceline.process")

Send = Callable[[Sequence[Message]], None]


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

    def start(self, guard: Guard = unguarded) -> Desk:
        """The desk of this process; the first caller sets it up, and says what its tools may take."""
        with self._lock:
            if self._desk is None:
                self._loop = LoopThread()
                self._desk = self._loop.run(self._set_up(guard))
            return self._desk

    def run(self, work: Callable[[Desk], Coroutine[Any, Any, T]]) -> T:
        """Carry out this work on the loop and wait for it: what a Celery task does."""
        desk = self.start()
        assert self._loop is not None
        return self._loop.run(work(desk))

    def drain(self, grace_seconds: float) -> None:
        """Let what is in flight end by itself; after the grace, make it give its claims back."""
        if self._loop is not None and self._desk is not None:
            self._loop.run(drain(self._desk, grace_seconds))

    def cut(self) -> None:
        """Make what is in flight give its claims back, now. Does not wait: a signal's handler may call it."""
        if self._loop is not None and self._desk is not None:
            self._loop.loop.call_soon_threadsafe(self._desk.in_flight.cut_tasks)

    def stop(self) -> None:
        """Retire: whatever this process still holds may be recovered at once."""
        with self._lock:
            if self._loop is not None and self._desk is not None:
                self._loop.run(retire(self._desk))
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
    if not is_on(os.environ):
        return store
    from .telemetry.otlp import OtlpTracer, otlp_exporter  # it imports much that a worker without traces never needs

    return traced(store, OtlpTracer(otlp_exporter()), now_ms=now_ms)


def built_in_tools(store: RunStore) -> Mapping[str, Tool]:
    """The tools that an agent has beside its own, by path."""

    async def whole_result(run_id: RunId, call_id: CallId) -> str | None:
        cut = await store.whole_result(run_id, call_id)
        return result_text(await store.transcript(run_id), call_id) if cut is None else cut

    read_result = read_result_tool(whole_result)
    return {read_result.spec.path: read_result}


async def drain(desk: Desk, grace_seconds: float) -> None:
    """Let the tasks in flight end by themselves; after the grace, make them give their claims back."""
    in_flight, loop = desk.in_flight, asyncio.get_running_loop()
    end = loop.time() + grace_seconds
    while in_flight.tasks and loop.time() < end:
        await asyncio.wait(set(in_flight.tasks), timeout=end - loop.time())
    in_flight.cut_tasks()


async def retire(desk: Desk) -> None:
    """The end of a process: whatever it still holds may be recovered at once."""
    for task in desk.background:
        task.cancel()
    await asyncio.gather(*desk.background, return_exceptions=True)
    try:
        await desk.leave_timers()
        for name in (desk.incarnation, *desk.lives.ended(), *desk.lives.in_use()):
            await desk.store.retire(name)
    except InfrastructureError as error:
        log.warning("what this process held is recovered once its sign of life has run out: %s", error)
    finally:
        await desk.model.aclose()
        await desk.store.aclose()
