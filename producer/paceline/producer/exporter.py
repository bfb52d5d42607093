"""The exporter: it reads the fleet's record again and again, and serves the last reading to Prometheus.

A scrape asks nobody: it gets the page that is there, so it is quick however large the fleet is, and there while the
record is away. How old the page is, it says itself.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

from aiohttp import web

from paceline.core.broker_address import broker_address
from paceline.core.errors import InfrastructureError, UsageError
from paceline.store.connect import connect
from paceline.store.port import RunStore

from .exposition import CONTENT_TYPE, Reading, page
from .queue_states import QueueState, queue_states
from .settings import ProducerSettings

log = logging.getLogger("paceline.exporter")

_BUSY = 0.1
"""Of a processor's time readings take so much at most: a fleet of many agents is read less often."""
_LONGEST_READ_SECONDS = 60.0
"""A reading that takes longer is given up."""

Queues = Callable[[], Awaitable[Mapping[str, QueueState]]]


class Exporter:
    """The last page, and how it is renewed. `queues` asks the broker; None: it is one that cannot be asked."""

    def __init__(self, store: RunStore, queues: Queues | None, *, every_seconds: float) -> None:
        self._store = store
        self._queues = queues
        self._every_seconds = every_seconds
        self._is_away = False
        self.page = page(None)

    async def renew_forever(self) -> None:
        """Renew the page until cancelled. While the record is away the last one stays as it is."""
        while True:
            began = time.process_time()
            await self.try_to_renew()
            await asyncio.sleep(max(self._every_seconds, (time.process_time() - began) / _BUSY))

    async def try_to_renew(self) -> None:
        """Renew the page, or leave it as it is and say why."""
        try:
            async with asyncio.timeout(_LONGEST_READ_SECONDS):
                await self.renew()
        except InfrastructureError as error:
            self._be_away(str(error))
        except TimeoutError:
            self._be_away(f"it has not answered for {_LONGEST_READ_SECONDS:g} s")
        except Exception:
            log.exception("a reading failed, the page stays as it is")
        else:
            if self._is_away:
                log.info("the record can be read again")
            self._is_away = False

    def _be_away(self, why: str) -> None:
        if not self._is_away:  # and not again for as long as it lasts
            log.warning("the record cannot be read, the page stays as it is: %s", why)
        self._is_away = True

    async def renew(self) -> None:
        """Read everything once. Raises InfrastructureError."""
        read = await self._store.metrics()
        reading = Reading(read=read, queues=await self._queue_states(), at_s=time.time())
        self.page = await asyncio.to_thread(page, reading)

    async def _queue_states(self) -> Mapping[str, QueueState] | None:
        if self._queues is None:
            return None
        try:
            return await self._queues()
        except InfrastructureError as error:
            log.warning("the broker cannot be asked what waits in it: %s", error)
            return None

    def app(self) -> web.Application:
        """The pages that are served."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._health)
        return app

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=self.page, headers={"Content-Type": CONTENT_TYPE})

    async def _health(self, request: web.Request) -> web.Response:
        # An answer is all that is asked for: that the record is away is no reason to start the exporter again.
        return web.Response(text="the record is away\n" if self._is_away else "ok\n")


async def serve(settings: ProducerSettings, *, host: str, port: int, every_seconds: float) -> None:
    """Serve the fleet's metrics until SIGTERM or SIGINT. UsageError if nobody may listen there."""
    url = settings.redis_url
    if not url:
        raise UsageError("there is no fleet to tell of: set PACELINE_REDIS_URL=redis://host:6379/0")
    async with AsyncExitStack() as stack:
        store = connect(
            url,
            prefix=settings.prefix,
            claim_seconds=settings.claim_seconds,
            retention_seconds=settings.retention_seconds,
        )
        stack.push_async_callback(store.aclose)
        queues = _queues(settings.broker_url or url, settings.prefix, stack)
        exporter = Exporter(store, queues, every_seconds=every_seconds)
        runner = web.AppRunner(exporter.app(), access_log=None)
        stack.push_async_callback(runner.cleanup)
        await _listen(runner, host, port)
        renewing = asyncio.ensure_future(exporter.renew_forever())
        stack.callback(renewing.cancel)
        await _told_to_end()


def _queues(url: str, prefix: str, stack: AsyncExitStack) -> Queues | None:
    address = broker_address(url, prefix=prefix)
    if not address.is_redis:
        log.warning("agent_queue_depth, _inflight and _oldest_message_age_seconds are left out: the broker is no Redis")
        return None
    broker = connect(url).redis
    stack.push_async_callback(broker.aclose)
    return lambda: queue_states(broker, str(address.transport_options["global_keyprefix"]))


async def _listen(runner: web.AppRunner, host: str, port: int) -> None:
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise UsageError(
            f"nobody can listen at {host}:{port} ({error.strerror}): choose another --host or --port"
        ) from error
    for address in runner.addresses:
        log.info("metrics are served at http://%s:%d/metrics", *address[:2])


async def _told_to_end() -> None:
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    await ended.wait()
