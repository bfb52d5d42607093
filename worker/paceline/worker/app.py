"""The Celery app: its settings, each with its reason, and its three tasks, each a thin wrapper around a coroutine."""

# mypy: allow-untyped-calls, allow-untyped-decorators, allow-subclassing-any
# Celery and kombu ship no type information.

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import kombu.entity
from celery import Celery, Task, bootsteps, signals

from paceline.core.broker_address import BrokerAddress, broker_address
from paceline.core.errors import UsageError
from paceline.core.ids import CallId, RunId
from paceline.core.wire import JOIN_TASK, POOLS, SENT_HEADER, TOOL_TASK, TURN_TASK, Queue

from .backend import RecordBackend
from .call import run_call
from .confinement import Alarm, limit_memory
from .dispatch import Dispatcher
from .health import HealthFile, LoopWatch, watch_consumer
from .join import join_turn
from .logs import format_logs
from .messages import Message
from .process import LEAVING_SECONDS, WorkerProcess
from .publishing import PublishingAmqp
from .record_clock import RecordClock
from .settings import Settings
from .transport import transport_options
from .turn import take_turn

log = logging.getLogger("paceline.worker")

_LEAVE = signal.SIGUSR2
"""Tells a forked child that its worker ends. Celery has taken SIGUSR1 for time limits."""
_AFTER_CHILDREN_SECONDS = 1.0
"""By how much a parent may outlive its children."""


def create_app(settings: Settings) -> Celery:
    """A Celery app that carries out turns. Connects to nothing yet. UsageError for settings that cannot be."""
    if settings.pool not in POOLS:
        raise UsageError(f"PACELINE_POOL={settings.pool!r}: give one of {', '.join(POOLS)}")
    address = broker_address(settings.broker, prefix=settings.prefix)
    app = Celery("paceline", broker=address.url, backend=RecordBackend, amqp=PublishingAmqp)
    app.conf.update(_configuration(settings, address))
    format_logs(settings.log_format)
    clock = RecordClock()
    dispatcher = Dispatcher(app, clock.now_ms)
    process = WorkerProcess(settings, send=dispatcher.send, empty_queues=lambda: _empty_queues(app), clock=clock)
    _add_tasks(app, process, dispatcher)
    _add_life_cycle(app, process, settings)
    if settings.health_file:
        _add_health(app, process.watch, settings, Path(settings.health_file))
    return app


def _configuration(settings: Settings, address: BrokerAddress) -> dict[str, Any]:
    own = transport_options(settings.concurrency, pool=settings.pool) if address.is_redis else {}
    return {
        "broker_transport_options": {**own, **address.transport_options},
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,  # a broker may be away for as long as it likes
        "broker_channel_error_retry": True,  # or full: else a refused write stops the worker
        "task_queues": [kombu.entity.Queue(queue.value, routing_key=queue.value) for queue in Queue],
        "task_default_queue": Queue.TURNS.value,
        "task_default_exchange": "paceline",
        "task_acks_late": True,  # else every kill is a loss that only the sweeper finds
        "task_reject_on_worker_lost": True,  # prefork: else a dead child acknowledges what it did not do
        "task_ignore_result": True,  # results are in the record
        "task_serializer": "json",
        "accept_content": ["json"],
        "worker_pool": settings.pool,  # where the command names none: Celery takes its own `--pool prefork` for none
        "worker_concurrency": settings.concurrency,
        "worker_max_tasks_per_child": settings.tool_process_calls,  # prefork: what tools leave behind does not pile up
        "worker_prefetch_multiplier": 1,  # a message held by a busy worker is invisible to idle ones
        "worker_disable_prefetch": True,  # after a lost connection a full worker would take as many again
        "worker_cancel_long_running_tasks_on_connection_loss": False,  # it would cut paid model calls
        "worker_enable_remote_control": False,  # control is in the record; saves connections and pub/sub
        "worker_send_task_events": False,
        "worker_hijack_root_logger": False,
        # A chord's parts report to each other by a set in the record, not by these.
        "worker_deduplicate_successful_tasks": False,
        # No task has an ETA: a hold is a state of the run, not a message in a worker's memory.
        "task_publish_retry_policy": {"max_retries": 3, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.5},
    }


def _add_tasks(app: Celery, process: WorkerProcess, dispatcher: Dispatcher) -> None:
    def note_delivery(task: Any) -> None:
        sent_ms = (task.request.headers or {}).get(SENT_HEADER) or task.request.get(SENT_HEADER)
        # The queue it came from, not the one its like goes to: a first turn that was held comes with the others.
        queue = str((task.request.delivery_info or {}).get("routing_key"))
        if sent_ms and queue in {*Queue}:
            process.start().note_delivery(Queue(queue), int(sent_ms))

    def send(messages: Sequence[Message]) -> None:
        dispatcher.send(messages)

    @app.task(name=TURN_TASK, bind=True, shared=False)
    def turn(self: Task, run_id: str, turn: int) -> None:
        """Take one turn of a run."""
        note_delivery(self)
        send(process.run(lambda desk: take_turn(desk, RunId(run_id), turn)))

    @app.task(name=TOOL_TASK, bind=True, shared=False)
    def tool(self: Task, run_id: str, turn: int, call_id: str) -> str:
        """Run one tool call; the answer tells the backend whether the chord is complete."""
        note_delivery(self)
        ran = process.run(lambda desk: run_call(desk, RunId(run_id), turn, CallId(call_id)))
        send(ran.messages)
        return ran.written.value

    @app.task(name=JOIN_TASK, bind=True, shared=False)
    def join(self: Task, run_id: str, turn: int) -> None:
        """Append a turn's results and make the next turn due."""
        note_delivery(self)
        send(process.run(lambda desk: join_turn(desk, RunId(run_id), turn)))


def _empty_queues(app: Celery) -> frozenset[Queue]:
    with app.connection_for_read() as connection, connection.channel() as channel:
        return frozenset(queue for queue in Queue if not _depth(channel, queue))


def _depth(channel: Any, queue: Queue) -> int:
    try:
        return int(channel.queue_declare(queue=queue.value, passive=True).message_count)
    except channel.connection.client.channel_errors:
        return 0  # nobody has sent anything there yet


def _add_life_cycle(app: Celery, process: WorkerProcess, settings: Settings) -> None:
    """A process that runs tasks lives from the worker's start to its end; prefork children have lives of their own."""
    alarm = Alarm()

    def leave(worker: Any) -> None:
        # Celery waits without end: for its pool, for the broker. Whatever it waits for, this process ends.
        forks = _forks(worker)
        alarm.end_within(settings.grace_seconds + LEAVING_SECONDS + forks * _AFTER_CHILDREN_SECONDS)
        if forks:
            _tell_children(worker.pool)
        else:
            process.leave(settings.grace_seconds)

    class Live(bootsteps.StartStopStep):
        requires = ("celery.worker.components:Pool",)

        def start(self, worker: Any) -> None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # as `Alarm` needs it
            # On the signal itself: before it stops this step, Celery may wait for the broker.
            signals.worker_shutting_down.connect(lambda **_: leave(worker), weak=False)
            if not _forks(worker):
                process.start()

        def stop(self, worker: Any) -> None:
            leave(worker)

        def terminate(self, worker: Any) -> None:
            leave(worker)

    app.steps["worker"].add(Live)

    def leave_child() -> None:
        alarm.end_within(settings.grace_seconds + LEAVING_SECONDS)
        process.leave(settings.grace_seconds)

    @signals.worker_process_init.connect(weak=False)
    def start_child(**_: object) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(_LEAVE, lambda *_: leave_child())
        process.start(guard=alarm.killed_after)
        limit_memory(settings.tool_memory_mb)

    @signals.worker_process_shutdown.connect(weak=False)
    def stop_child(**_: object) -> None:
        process.stop()

    @signals.worker_shutdown.connect(weak=False)
    def stop_parent(**_: object) -> None:
        process.stop()


def _add_health(app: Celery, own_loop: LoopWatch, settings: Settings, path: Path) -> None:
    """Under prefork tasks have loops in children, which Celery replaces: there, only its own is watched."""
    celery_loop = LoopWatch("Celery's loop", patience_seconds=settings.health_seconds)
    watch_consumer(app, celery_loop)
    file = HealthFile(path, [celery_loop, own_loop], every_seconds=celery_loop.turn_seconds)

    class Healthy(bootsteps.StartStopStep):
        requires = ("celery.worker.components:Pool",)  # children are forked before there is a second thread

        def start(self, worker: Any) -> None:
            try:
                file.start()
            except UsageError as error:
                log.critical("%s", error)
                raise SystemExit(2) from None  # which Celery takes for an end in order, and all else for a fault

    app.steps["worker"].add(Healthy)


def _tell_children(pool: Any) -> None:
    if pool._pool is None:
        return  # SIGQUIT, or a second Ctrl-C: Celery has ended them itself
    for pid in pool.info["processes"]:
        with suppress(ProcessLookupError):
            os.kill(pid, _LEAVE)


def _forks(worker: Any) -> bool:
    return bool(getattr(worker.pool, "uses_semaphore", False)) and "prefork" in type(worker.pool).__module__
