"""The simulator as a context manager: a server on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType

from paceline.sim.answer import Answer
from paceline.sim.journal import Journal
from paceline.sim.playbook import Playbook
from paceline.sim.request import Request
from paceline.sim.server import Clock, MessagesServer, listening

START_SECONDS = 10.0


class Simulator:
    """A stand-in for the Messages API on the loopback.

    `playbook` is a `Playbook` or a function from `Request` to `Answer`. Any key is accepted unless `api_keys`
    names those that are; a mapping also says which workspace each belongs to.
    """

    def __init__(
        self,
        playbook: Playbook | Callable[[Request], Answer | None],
        journal_path: str | Path | None = None,
        port: int = 0,
        api_keys: Collection[str] | None = None,
        clock: Clock = time.time,
    ) -> None:
        self._playbook = playbook if isinstance(playbook, Playbook) else Playbook(playbook)
        self._journal_path = journal_path
        self._port = port
        self._keys = api_keys
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self.journal = Journal()
        self.url = ""

    def __enter__(self) -> Simulator:
        self.journal = Journal(self._journal_path)
        self._thread = threading.Thread(target=self._run, name="paceline-sim", daemon=True)
        self._thread.start()
        self._started.wait(START_SECONDS)
        if self._failure is not None:
            self.journal.close()
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self.journal.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = MessagesServer(self._playbook, self.journal, keys=self._keys, clock=self._clock)
        async with listening(server, self._port) as self.url:
            self._started.set()
            await self._stop.wait()
