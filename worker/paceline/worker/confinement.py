"""What a tool may take of a process that was forked for it, in memory and time: a tool takes down that and no more.

Only for processes that do one thing at a time, as Celery's prefork children do: the parent puts a new one in place of
each that dies, and the sweeper finds what became of its call.
"""

from __future__ import annotations

import math
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

Guard = Callable[[float], AbstractContextManager[None]]
"""What runs within it ends in so many seconds, or its process does."""

_STATM = Path("/proc/self/statm")
_MB = 1024 * 1024
_AT_ONCE = 0.001
"""To the kernel, zero is never."""


def unguarded(seconds: float) -> AbstractContextManager[None]:
    """For a process that serves many at once: nothing that one of them does may end it."""
    return nullcontext()


def limit_memory(megabytes: int) -> None:
    """Let this process take so much address space beyond what it has now: more is a MemoryError, or its death."""
    limit = _address_space() + megabytes * _MB
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _address_space() -> int:
    if not _STATM.exists():
        return 0  # not Linux: what the process has now counts too
    return int(_STATM.read_text().split()[0]) * resource.getpagesize()


class Alarm:
    """The alarm of a process, which the kernel ends when it rings: even where somebody's code holds the interpreter.

    There is one of these in a process, and nothing else in it may use SIGALRM.
    """

    def __init__(self) -> None:
        self._ends_at = math.inf

    @contextmanager
    def killed_after(self, seconds: float) -> Iterator[None]:
        """End this process if what runs within takes longer."""
        self._ring_at(min(time.monotonic() + seconds, self._ends_at))
        try:
            yield
        finally:
            self._ring_at(self._ends_at)

    def end_within(self, seconds: float) -> None:
        """End this process in so many seconds, if it has not ended by itself. A signal's handler may call it."""
        now = time.monotonic()
        rings_in = signal.getitimer(signal.ITIMER_REAL)[0] or math.inf
        self._ends_at = min(self._ends_at, now + seconds)
        self._ring_at(min(now + rings_in, self._ends_at))

    def _ring_at(self, moment: float) -> None:
        wait_seconds = 0.0 if moment == math.inf else max(_AT_ONCE, moment - time.monotonic())
        signal.setitimer(signal.ITIMER_REAL, wait_seconds)
