"""The simulator as a context manager: a server on a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from paceline.sim.answer import Answer
from paceline.sim.batches import BatchPlan
from paceline.sim.dialects import dialect_named
from paceline.sim.faults import Fault, Injection, Injector
from paceline.sim.journal import Journal
from paceline.sim.limits import Limits
from paceline.sim.playbook import Playbook
from paceline.sim.request import Request
from paceline.sim.server import Clock, MessagesServer
from paceline.sim.serving import listening
from paceline.sim.switches import Switches

START_SECONDS = 10.0


class Simulator:
    """A stand-in for the Messages API on the loopback.

    `playbook` is a `Playbook` or a function from `Request` to `Answer`. Any key is accepted unless `api_keys`
    names those that are; a mapping also says which workspace each belongs to. `limits` are the rate limits to
    enforce; without them nothing is limited and no rate limit headers are sent. `clock` gives Unix seconds: caches,
    limits, batches and models live by it, delays pass in real time. `switches`, `dialect` and `batches` stand in for
    the playbook's own.
    """

    def __init__(
        self,
        playbook: Playbook | Callable[[Request], Answer | None],
        journal_path: str | Path | None = None,
        port: int = 0,
        api_keys: Collection[str] | None = None,
        limits: Limits | None = None,
        clock: Clock = time.time,
        *,
        switches: Switches | None = None,
        dialect: str | None = None,
        batches: BatchPlan | None = None,
    ) -> None:
        own = playbook if isinstance(playbook, Playbook) else Playbook(playbook)
        self._playbook = replace(
            own,
            switches=switches or own.switches,
            dialect=dialect or own.dialect,
            batches=batches or own.batches,
        )
        self._dialect = dialect_named(self._playbook.dialect)
        self._journal_path = journal_path
        self._port = port
        self._keys = api_keys
        self._limits = limits
        self._clock = clock
        self._injector = Injector(clock)
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self.journal = Journal()
        self.url = ""

    def __enter__(self) -> Simulator:
        self.journal = Journal(self._journal_path)
        self._injector.clear()
        for injection in self._playbook.injections():
            self._injector.add(injection)
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

    def inject(
        self,
        fault: Fault | str,
        *,
        times: int | None = None,
        probability: float = 1.0,
        seed: int = 0,
        run: str | None = None,
        model: str | None = None,
        match: str | None = None,
        for_s: float | None = None,
        after: int | None = None,
    ) -> None:
        """Let a fault strike requests to come: see `Injection` for whom. Earlier injections are asked first."""
        self._injector.add(
            Injection(
                fault=Fault(fault) if isinstance(fault, str) else fault,
                times=times,
                probability=probability,
                seed=seed,
                run=run,
                model=model,
                match=match,
                for_s=for_s,
                after=after,
            )
        )

    def clear_faults(self) -> None:
        """No injected fault strikes any more."""
        self._injector.clear()

    @contextlib.contextmanager
    def refusing_connections(self) -> Iterator[None]:
        """Within this, nobody listens at `url` and no connection is kept."""
        self._in_loop(self._door.shut())
        try:
            yield
        finally:
            self._in_loop(self._door.open())

    def _in_loop(self, work: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(START_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = MessagesServer(
            self._playbook,
            self.journal,
            self._injector,
            keys=self._keys,
            limits=self._limits,
            clock=self._clock,
            switches=self._playbook.switches,
            dialect=self._dialect,
        )
        async with listening(server, self._port) as self._door:
            self.url = self._door.url
            self._started.set()
            await self._stop.wait()
