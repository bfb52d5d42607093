"""Processes that a command starts, looks after, and takes along when it goes."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .tied import tied


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A process of ours. `log` has what it says on stderr, and on stdout where nobody reads that."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    log_start: int
    started_at: float
    """By the monotonic clock, in seconds."""

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def last_words(self, *, lines: int = 5) -> str:
        """The end of what it wrote to its log."""
        with self.log.open("rb") as file:
            file.seek(self.log_start)
            said = file.read().decode(errors="replace").strip().splitlines()
        return "\n".join(said[-lines:])


def start_child(
    name: str, command: Sequence[str], *, environment: Mapping[str, str], log: Path, reads_stdout: bool = False
) -> Child:
    """Start a process, away from the terminal's Ctrl-C (the parent passes that on), tied to the parent's life."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            tied(command, death=signal.SIGKILL),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if reads_stdout else output,
            stderr=output,
            start_new_session=True,
        )
        return Child(name=name, process=process, log=log, log_start=output.tell(), started_at=time.monotonic())


def stop_children(children: Sequence[Child], *, grace_seconds: float) -> None:
    """SIGTERM to all; SIGKILL to those that are still there after the grace time."""
    for child in children:
        with suppress(ProcessLookupError):
            child.process.terminate()
    end = time.monotonic() + grace_seconds
    for child in children:
        _wait_or_kill(child, end - time.monotonic())


def _wait_or_kill(child: Child, seconds: float) -> None:
    try:
        child.process.wait(max(0.0, seconds))
    except subprocess.TimeoutExpired:
        child.process.kill()
        child.process.wait()
    finally:
        if child.process.stdout:
            child.process.stdout.close()
