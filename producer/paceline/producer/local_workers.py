"""Worker processes on this machine: started, replaced when they die, stopped in order."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from paceline.core.errors import InfrastructureError
from paceline.core.wire import Queue

from .children import Child, start_child, stop_children

STOP_GRACE_SECONDS = 45.0
"""Longer than a worker takes to end: its own grace, and the seconds after which its kernel ends it."""
_EARLY_SECONDS = 10.0
_EARLY_DEATHS = 3
"""So many workers in a row that die young mean that none will live: a new one would not help."""
_QUEUES = ",".join(Queue)


def worker_command(concurrency: int, *, queues: str = _QUEUES, log_level: str = "WARNING") -> list[str]:
    """How a worker process is started: Celery's own command, with the flags that suit it. Its pool is PACELINE_POOL."""
    return [
        *(sys.executable, "-P", "-m", "celery", "-A", "paceline.worker.entry", "worker"),
        *("--concurrency", str(concurrency), "--queues", queues),
        *("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", log_level),
    ]


class LocalWorkers:
    """`count` workers from `with` to its end. `say` is told what a person should know."""

    def __init__(
        self,
        *,
        count: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        log_folder: Path,
        say: Callable[[str], None],
        grace_seconds: float = STOP_GRACE_SECONDS,
    ) -> None:
        self._command = command
        self._environment = environment
        self._log_folder = log_folder
        self._say = say
        self._grace_seconds = grace_seconds
        self._names = [f"worker-{number}" for number in range(1, count + 1)]
        self._early_deaths = 0
        self.children: list[Child] = []

    def __enter__(self) -> LocalWorkers:
        self.children = [self._start(name) for name in self._names]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        stop_children(self.children, grace_seconds=self._grace_seconds)

    def replace_dead(self) -> None:
        """Start a new worker for each that died. Raises InfrastructureError if they die as soon as they start."""
        self.children = [child if child.is_alive else self._replacement(child) for child in self.children]

    def _replacement(self, dead: Child) -> Child:
        lived = time.monotonic() - dead.started_at
        self._early_deaths = self._early_deaths + 1 if lived < _EARLY_SECONDS else 0
        if self._early_deaths >= _EARLY_DEATHS:
            raise InfrastructureError(
                f"{dead.name} ended {lived:.1f} s after its start ({_ending(dead)}), as did those before it; its last "
                f"words, from {dead.log}:\n{dead.last_words() or '(none)'}"
            )
        self._say(f"{dead.name} (process {dead.process.pid}) is gone ({_ending(dead)}); a new one takes its place")
        return self._start(dead.name)

    def _start(self, name: str) -> Child:
        return start_child(name, self._command, environment=self._environment, log=self._log_folder / f"{name}.log")


def _ending(child: Child) -> str:
    code = child.process.returncode
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
