"""What a tool may take of a process that was forked for it, in memory and time: a tool takes down that and no more.

Only for processes that do one thing at a time, as Celery's prefork children do: the parent puts a new one in place of
each that dies, and the sweeper finds what became of its call.
"""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

Guard = Callable[[float], AbstractContextManager[None]]
"""What runs within it ends in so many seconds, or its process does."""

_STATM = Path("/proc/self/statm")
_MB = 1024 * 1024


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


@contextmanager
def killed_after(seconds: float) -> Iterator[None]:
    """End this process if what runs within takes longer, even where it holds the interpreter: the kernel does it."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
