"""Where a command tells a person what goes on: stderr, live on a terminal and line by line where it is piped."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from .fleet import BatchStatus
from .progress import Start, progress_of

_PLAIN_EVERY_SECONDS = 5.0
_BAR_WIDTH = 24


class Screen(Protocol):
    """Notes and progress, for a person."""

    def say(self, text: str) -> None:
        """A note that stays."""

    def show(self, status: BatchStatus) -> None:
        """How far the batch is; takes the place of what was shown before."""

    def __enter__(self) -> Screen: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...


def screen(*, quiet: bool = False) -> Screen:
    """The screen that suits stderr. A quiet one has notes, but no progress."""
    return LiveScreen() if sys.stderr.isatty() and not quiet else PlainScreen(quiet=quiet)


class PlainScreen:
    """A line every few seconds, if it says anything new."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._start: Start | None = None
        self._next = 0.0
        self._last = ""

    def __enter__(self) -> PlainScreen:
        return self

    def __exit__(self, *ended: object) -> None:
        """There is nothing to take back."""

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def show(self, status: BatchStatus) -> None:
        now = time.monotonic()
        self._start = self._start or _start(status, now)
        if self._quiet or (now < self._next and not status.is_done):
            return
        self._next = now + _PLAIN_EVERY_SECONDS
        line = progress_of(status, self._start, now).line()
        if line != self._last:
            self.say(line)
        self._last = line


class LiveScreen:
    """One line that is redrawn."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, refresh_per_second=8, transient=True)
        self._start: Start | None = None

    def __enter__(self) -> LiveScreen:
        self._live.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        self._console.print(Text(text))

    def show(self, status: BatchStatus) -> None:
        now = time.monotonic()
        self._start = self._start or _start(status, now)
        progress = progress_of(status, self._start, now)
        self._live.update(Text.assemble((_bar(progress.done, progress.rows), "green"), " ", progress.line()))


def _start(status: BatchStatus, now: float) -> Start:
    return Start(at_seconds=now, done=status.counts.runs - status.counts.active)


def _bar(done: int, rows: int) -> str:
    filled = _BAR_WIDTH * done // rows if rows else 0
    return "━" * filled + "╌" * (_BAR_WIDTH - filled)
