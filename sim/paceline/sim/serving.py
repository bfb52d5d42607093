"""Ways to serve: on a port that can be shut and opened, and as a process in the foreground."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from paceline.sim.api import MAX_BODY_BYTES
from paceline.sim.batch_body import MAX_BATCH_BYTES
from paceline.sim.dialects import dialect_named
from paceline.sim.faults import Injector
from paceline.sim.journal import Journal
from paceline.sim.limits import Limits
from paceline.sim.playbook import Playbook
from paceline.sim.server import BATCHES, Clock, MessagesServer

HOST = "127.0.0.1"
# How long a request may go on when the server stops. Zero would be for ever.
CANCEL_AFTER_SECONDS = 0.01


class Door:
    """A port that can be shut and opened again; of the loopback, unless `host` says otherwise."""

    def __init__(self, server: MessagesServer, port: int, host: str = HOST) -> None:
        self._server = server
        self._host = host
        self._port = port
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self._port}"

    async def open(self) -> None:
        """Listen; a port of 0 becomes the free one that was found, and stays it."""
        # The low-level server: no router and no middleware stand in the way of a benchmark.
        web_server = web.Server(self._server.handle, request_factory=_request_factory())
        runner = web.ServerRunner(web_server, shutdown_timeout=CANCEL_AFTER_SECONDS, access_log=None)
        await runner.setup()
        self._runner = runner
        await web.TCPSite(runner, self._host, self._port, reuse_address=True).start()
        self._port = runner.addresses[0][1]

    async def shut(self) -> None:
        """Stop listening and drop every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
            await self._server.wait_idle()
            self._runner = None


def _request_factory() -> Callable[..., web.BaseRequest]:
    """Requests with room for the largest body that the API takes."""
    loop = asyncio.get_running_loop()

    def make(
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        most = MAX_BATCH_BYTES if message.path.startswith(BATCHES) else MAX_BODY_BYTES
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=most)

    return make


@contextlib.asynccontextmanager
async def listening(server: MessagesServer, port: int, host: str = HOST) -> AsyncIterator[Door]:
    """Serve until left."""
    door = Door(server, port, host)
    try:
        await door.open()
        yield door
    finally:
        await door.shut()


async def serve(
    playbook: Playbook,
    *,
    host: str = HOST,
    port: int = 0,
    journal_path: str | Path | None = None,
    limits: Limits | None = None,
    ready: Callable[[str], None] = print,
    clock: Clock = time.time,
) -> None:
    """Serve in the foreground until SIGTERM or SIGINT; `ready` is called with the URL."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    injector = Injector(clock)
    for injection in playbook.injections():
        injector.add(injection)
    journal = Journal(journal_path, keep=False)
    try:
        server = MessagesServer(
            playbook,
            journal,
            injector,
            clock=clock,
            limits=limits,
            switches=playbook.switches,
            dialect=dialect_named(playbook.dialect),
        )
        async with listening(server, port, host) as door:
            ready(door.url)
            await stop.wait()
    finally:
        journal.close()
