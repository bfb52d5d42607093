"""A way to a server that can be slow, cut, or secured: a TCP proxy on a thread of its own."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from paceline.store.loop_thread import LoopThread

_CHUNK_BYTES = 65_536
_LOOK_SECONDS = 0.05


@dataclass(slots=True)
class Proxy:
    """Passes bytes on, each way `delay_seconds` later. `target_port` may be given later than the first client comes."""

    target_port: int = 0
    delay_seconds: float = 0.0
    loses: Callable[[bytes], bool] = lambda sent: False
    """Whether what a client has just sent is lost on the way; its connection is reset then."""
    lost: int = 0
    """So often that has happened so far."""
    is_frozen: bool = False
    """Takes bytes, and keeps them."""
    port: int = 0
    connections: int = 0
    """So many were made so far."""
    _loop: LoopThread = field(default_factory=LoopThread)
    _open: set[asyncio.StreamWriter] = field(default_factory=set)
    _server: asyncio.Server | None = None

    def start(self, tls: ssl.SSLContext | None) -> None:
        self._loop.run(self._listen(tls))

    def stop(self) -> None:
        self._loop.run(self._close())
        self._loop.close()

    def drop_connections(self) -> None:
        """Reset every open connection, on both sides."""
        self._loop.run(self._drop())

    def go_away(self) -> None:
        """Refuse everybody from now on."""
        self._loop.run(self._close())

    async def _listen(self, tls: ssl.SSLContext | None) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._drop()

    async def _drop(self) -> None:
        self.is_frozen = False  # what it keeps is dropped too
        dropped = set(self._open)
        for writer in dropped:
            writer.transport.abort()
        while dropped & self._open:  # new ones may come meanwhile
            await asyncio.sleep(0.005)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with self._kept(writer), suppress(OSError):
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
            with self._kept(to_writer):
                await asyncio.gather(self._pass_asked(reader, to_writer), self._pass(to_reader, writer))

    @contextmanager
    def _kept(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        self._open.add(writer)
        try:
            yield
        finally:
            writer.transport.abort()
            self._open.discard(writer)

    async def _pass_asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            if self.loses(chunk):
                self.lost += 1
                raise ConnectionResetError
            await self._send(chunk, writer)
        writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            await self._send(chunk, writer)
        writer.close()

    async def _send(self, chunk: bytes, writer: asyncio.StreamWriter) -> None:
        # One chunk after the other: a slow way is also a narrow one.
        await asyncio.sleep(self.delay_seconds)
        while self.is_frozen:
            await asyncio.sleep(_LOOK_SECONDS)
        writer.write(chunk)
        await writer.drain()


@contextmanager
def running_proxy(target_port: int = 0, *, tls: ssl.SSLContext | None = None) -> Iterator[Proxy]:
    """A proxy on a free port of loopback; with `tls` it speaks TLS to its clients."""
    proxy = Proxy(target_port)
    proxy.start(tls)
    try:
        yield proxy
    finally:
        proxy.stop()
