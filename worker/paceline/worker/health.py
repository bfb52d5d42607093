"""A sign for whoever may restart this process: a file that is touched for as long as its loops turn.

Everything a worker does goes through two loops: Celery's, which takes messages, and the process's own, which carries
out the tasks. One that stands still is mended by nothing but a restart. Being busy, being at its end and having no
broker are no reasons for one, so a loop is watched only while it is expected to turn, and the file is touched by a
thread of its own. `worker/paceline-probe` reads it.
"""

# mypy: allow-untyped-calls, allow-subclassing-any
# Celery ships no type information.

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from celery import Celery, bootsteps

from paceline.core.errors import UsageError

log = logging.getLogger("paceline.health")

_LOOKS_PER_PATIENCE = 3


class LoopWatch:
    """When one loop last turned. Any thread may ask."""

    def __init__(self, name: str, *, patience_seconds: float) -> None:
        self.name = name
        self.patience_seconds = patience_seconds
        self.turn_seconds = patience_seconds / _LOOKS_PER_PATIENCE
        self._turned_at: float | None = None
        self._thread = 0

    def note_turn(self) -> None:
        """The loop turned just now, on the calling thread; it is expected to turn again."""
        self._thread = threading.get_ident()
        self._turned_at = monotonic()

    def excuse(self) -> None:
        """The loop is not expected to turn."""
        self._turned_at = None

    @property
    def is_stuck(self) -> bool:
        """Whether it should have turned, and has not for as long as one has patience."""
        turned_at = self._turned_at
        return turned_at is not None and monotonic() - turned_at > self.patience_seconds

    def where(self) -> str:
        """What its thread is at: the lines of code."""
        frame = sys._current_frames().get(self._thread)
        return "".join(traceback.format_stack(frame)) if frame else "its thread is gone"


class HealthFile:
    """The file at `path`, touched by a thread from `start` to the end of the process, unless a loop is stuck."""

    def __init__(self, path: Path, watches: Sequence[LoopWatch], *, every_seconds: float) -> None:
        self._path = path
        self._watches = watches
        self._every_seconds = every_seconds
        self._told: set[str] = set()

    def start(self) -> None:
        """UsageError if there is no such file and none can be made."""
        try:
            self._path.touch()
        except OSError as error:
            raise UsageError(_not_a_file(self._path, error.strerror)) from error
        if not self._path.is_file():
            raise UsageError(_not_a_file(self._path, "it is no file"))
        threading.Thread(target=self._touch_forever, name="paceline-health", daemon=True).start()

    def look(self) -> None:
        """Touch the file, or say once which loop is stuck, and where."""
        stuck = [watch for watch in self._watches if watch.is_stuck]
        for watch in stuck:
            if watch.name not in self._told:
                log.error("%s stands still; its thread is at\n%s", watch.name, watch.where())
        self._told = {watch.name for watch in stuck}
        if not stuck:
            self._path.touch()

    def _touch_forever(self) -> None:
        pause = threading.Event()
        while not pause.wait(self._every_seconds):
            try:
                self.look()
            except OSError as error:  # a full disk: whoever restarts this process would not mend it, but must be told
                log.warning("the health file %s is not touched: %s", self._path, error)


def _not_a_file(path: Path, why: object) -> str:
    return f"PACELINE_HEALTH_FILE={path} cannot be written ({why}): name another"


async def turn_forever(watch: LoopWatch) -> None:
    """Show that the loop which runs this turns, until cancelled."""
    try:
        while True:
            watch.note_turn()
            await asyncio.sleep(watch.turn_seconds)
    finally:
        watch.excuse()


def watch_consumer(app: Celery, watch: LoopWatch) -> None:
    """Show that Celery's loop turns, whenever it is connected to the broker."""

    class Turning(bootsteps.StartStopStep):
        requires = ("celery.worker.consumer.tasks:Tasks",)
        _entry: Any = None

        def start(self, consumer: Any) -> None:
            watch.note_turn()
            self._entry = consumer.timer.call_repeatedly(watch.turn_seconds, watch.note_turn)

        def stop(self, consumer: Any) -> None:
            if self._entry is not None:
                self._entry.cancel()
            watch.excuse()

        shutdown = stop

    app.steps["consumer"].add(Turning)
