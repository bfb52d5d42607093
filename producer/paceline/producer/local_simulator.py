"""The simulator as a process of a command's own."""

from __future__ import annotations

import json
import os
import selectors
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.core.errors import UsageError

from .children import Child, start_child, stop_children

_START_SECONDS = 20.0
_STOP_SECONDS = 3.0


@contextmanager
def local_simulator(playbook: Path, *, log_folder: Path) -> Iterator[str]:
    """The base URL of a simulator that answers by this playbook. Raises UsageError with what it says of a bad one."""
    if not playbook.is_file():
        raise UsageError(f"{playbook}: no such file: --simulate takes the YAML file with the answers to give")
    command = [sys.executable, "-P", "-m", "paceline.sim", "--playbook", str(playbook), "--port", "0"]
    command += ["--journal", str(log_folder / "simulator.jsonl")]
    child = start_child(
        "simulator", command, environment=os.environ, log=log_folder / "simulator.log", reads_stdout=True
    )
    try:
        yield _url(child, playbook)
    finally:
        stop_children([child], grace_seconds=_STOP_SECONDS)


def _url(child: Child, playbook: Path) -> str:
    line = _first_line(child)
    if not line:
        child.process.kill()
        child.process.wait()
        said = child.last_words() or f"it said nothing within {_START_SECONDS:g} s"
        raise UsageError(f"the simulator did not start with {playbook}: {said}")
    return str(json.loads(line)["url"])


def _first_line(child: Child) -> bytes:
    stdout = child.process.stdout
    if stdout is None:
        return b""
    with selectors.DefaultSelector() as selector:
        selector.register(stdout, selectors.EVENT_READ)
        return stdout.readline() if selector.select(_START_SECONDS) else b""
