"""A registry in many threads, as a worker has it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paceline.tools import Registry

MODULE = """
import time

import {board} as board
from paceline.tools import tool

board.importing += 1
board.most = max(board.most, board.importing)
time.sleep(0.01)
board.importing -= 1


@tool(effect="reads")
def look() -> str:
    "Look."
    return "seen"
"""


def test_threads_that_share_a_registry_import_one_module_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "registry_threads_board.py").write_text("importing = most = 0\n")
    names = [f"registry_threads_{number}" for number in range(12)]
    for name in names:
        (tmp_path / f"{name}.py").write_text(MODULE.format(board="registry_threads_board"))
    registry, together = Registry([tmp_path]), threading.Barrier(len(names))

    def load(name: str) -> str:
        together.wait()
        return registry.load(f"{name}:look").spec.path

    with ThreadPoolExecutor(len(names)) as threads:
        assert list(threads.map(load, names)) == [f"{name}:look" for name in names]
    import registry_threads_board as board  # type: ignore[import-not-found]  # it was made a moment ago

    assert board.most == 1
