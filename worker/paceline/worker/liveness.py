"""A process's sign of life: one key with a short life, refreshed by one command however many claims there are."""

from __future__ import annotations

import asyncio
import logging
import os
import socket

from paceline.core.errors import InfrastructureError
from paceline.store.port import WorkerReport

from .desk import Desk
from .record_clock import now_ms

log = logging.getLogger("paceline.liveness")


async def beat_forever(desk: Desk) -> None:
    """Show that this process lives, and cut the model calls of cancelled runs, until cancelled."""
    started_ms = now_ms()
    while True:
        try:
            await _beat(desk, started_ms)
            await _heed_cancels(desk)
        except InfrastructureError as error:
            log.warning("no sign of life: %s", error)
        except Exception:
            log.exception("a beat failed; the next one goes on")
        await asyncio.sleep(desk.pulse.seconds)


async def _beat(desk: Desk, started_ms: int) -> None:
    lives = desk.lives
    lives.note_servers(await desk.store.servers())
    alive_seconds, former = desk.settings.claim_seconds, lives.in_use()
    desk.clock.learn(await desk.store.beat(_report(desk, started_ms), alive_seconds=alive_seconds, former=former))
    desk.pulse.note_beat(asyncio.get_running_loop().time())
    for name in lives.ended():
        await desk.store.retire(name)
        lives.forget(name)


def _report(desk: Desk, started_ms: int) -> WorkerReport:
    in_flight = desk.in_flight
    return WorkerReport(
        incarnation=desk.incarnation,
        host=socket.gethostname(),
        pid=os.getpid(),
        started_ms=started_ms,
        concurrency=desk.settings.concurrency,
        in_flight=len(in_flight.tasks),
        delivered_ms={queue.value: moment for queue, moment in in_flight.delivered_ms.items()},
        problems=in_flight.problems.texts(),
    )


async def _heed_cancels(desk: Desk) -> None:
    calling = sorted(set(desk.in_flight.model_calls.values()))
    if calling:
        for run_id in await desk.store.cancel_requested(calling):
            desk.in_flight.cut_model_calls(run_id)
