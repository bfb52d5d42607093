"""What waits to be exported. Many may wait for one export; one that fails costs a few seconds once, and then nothing.

After a failure nobody waits for exports until one has gone well: they are tried now and then, in the background.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")

log = logging.getLogger("paceline.telemetry")

LONGEST_WAIT_SECONDS = 3.0
_PAUSE_SECONDS = 30.0
_GATHER_SECONDS = 0.02
"""An export waits so long for others to join it: one costs about a millisecond of CPU, however few spans it takes."""
_KEPT = 4096
_EXPORTED_AT_ONCE = 512


class Outbox(Generic[T]):
    """Lives on the process's loop. `export` blocks, on a thread, and says whether it went well."""

    def __init__(
        self,
        export: Callable[[Sequence[T]], bool],
        *,
        wait_seconds: float = LONGEST_WAIT_SECONDS,
        pause_seconds: float = _PAUSE_SECONDS,
        gather_seconds: float = _GATHER_SECONDS,
    ) -> None:
        self._export = export
        self._wait_seconds = wait_seconds
        self._pause_seconds = pause_seconds
        self._gather_seconds = gather_seconds
        self._waiting: deque[T] = deque()
        self._added = 0
        self._gone = 0
        """How many no longer wait: exported, or too old to be kept."""
        self._exporting: asyncio.Future[None] | None = None
        self._tries_at = 0.0
        """When to try again after a failure; 0: exports go well."""

    def add(self, item: T) -> None:
        """Have this exported. Where too many wait, the oldest is given up."""
        if len(self._waiting) == _KEPT:
            self._take_away(1)
        self._waiting.append(item)
        self._added += 1

    async def flush(self) -> None:
        """Return when everything that was added is exported; at once if exports have failed."""
        wanted = self._added
        loop = asyncio.get_running_loop()
        end = loop.time() + self._wait_seconds
        while self._gone < wanted and not self._tries_at:
            await asyncio.wait({self._export_under_way()}, timeout=max(0.0, end - loop.time()))
            if loop.time() >= end:
                self._failed()
        if self._tries_at and loop.time() >= self._tries_at:
            self._export_under_way()

    def _export_under_way(self) -> asyncio.Future[None]:
        if self._exporting is None:
            self._exporting = asyncio.ensure_future(self._export_some())
        return self._exporting

    async def _export_some(self) -> None:
        await asyncio.sleep(self._gather_seconds)
        batch, first = list(islice(self._waiting, _EXPORTED_AT_ONCE)), self._gone
        try:
            went_well = await asyncio.to_thread(self._export, batch)
        except Exception:
            log.exception("spans could not be exported")
            went_well = False
        self._exporting = None
        if went_well:
            self._tries_at = 0.0
            self._take_away(first + len(batch) - self._gone)
        else:
            self._failed()

    def _take_away(self, count: int) -> None:
        for _ in range(count):
            self._waiting.popleft()
            self._gone += 1

    def _failed(self) -> None:
        if not self._tries_at:
            log.warning("nobody takes the spans: no run waits for that until they are taken again")
        self._tries_at = asyncio.get_running_loop().time() + self._pause_seconds
