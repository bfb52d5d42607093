"""The health file is touched for as long as no loop that should turn stands still."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from paceline.core.errors import UsageError
from paceline.worker.health import HealthFile, LoopWatch, turn_forever

LONG_AGO = 1_000_000.0


def stuck_watch(name: str = "a loop") -> LoopWatch:
    watch = LoopWatch(name, patience_seconds=-1.0)
    watch.note_turn()
    return watch


def turning_watch() -> LoopWatch:
    watch = LoopWatch("another loop", patience_seconds=60.0)
    watch.note_turn()
    return watch


def aged(folder: Path) -> Path:
    path = folder / "alive"
    path.touch()
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def was_touched(path: Path) -> bool:
    return path.stat().st_mtime != LONG_AGO


def test_the_file_is_touched_while_every_loop_turns(tmp_path: Path) -> None:
    path = aged(tmp_path)
    HealthFile(path, [turning_watch(), turning_watch()], every_seconds=60).look()
    assert was_touched(path)


def test_one_loop_that_stands_still_leaves_the_file_alone(tmp_path: Path) -> None:
    path = aged(tmp_path)
    HealthFile(path, [turning_watch(), stuck_watch()], every_seconds=60).look()
    assert not was_touched(path)


def test_a_loop_that_is_excused_may_stand_still(tmp_path: Path) -> None:
    path, watch = aged(tmp_path), stuck_watch()
    watch.excuse()
    HealthFile(path, [watch], every_seconds=60).look()
    assert was_touched(path)


def test_a_loop_that_never_turned_is_not_expected_to(tmp_path: Path) -> None:
    path = aged(tmp_path)
    HealthFile(path, [LoopWatch("a loop", patience_seconds=-1.0)], every_seconds=60).look()
    assert was_touched(path)


def test_it_is_told_once_which_loop_stands_still_and_where(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = HealthFile(aged(tmp_path), [stuck_watch("Celery's loop")], every_seconds=60)
    with caplog.at_level(logging.ERROR, "paceline.health"):
        file.look()
        file.look()
    assert [record.getMessage().splitlines()[0] for record in caplog.records] == [
        "Celery's loop stands still; its thread is at"
    ]
    assert __file__ in caplog.text


@pytest.mark.parametrize("name", ["missing/alive", "."])
def test_a_file_that_cannot_be_made_is_the_operators_to_mend(tmp_path: Path, name: str) -> None:
    file = HealthFile(tmp_path / name, [], every_seconds=60)
    with pytest.raises(UsageError, match=r"PACELINE_HEALTH_FILE=.*cannot be written"):
        file.start()


def test_a_loop_that_ends_is_excused() -> None:
    watch = LoopWatch("a loop", patience_seconds=-1.0)

    async def turn_and_end() -> bool:
        turning = asyncio.ensure_future(turn_forever(watch))
        await asyncio.sleep(0)
        was_expected = watch.is_stuck
        turning.cancel()
        await asyncio.gather(turning, return_exceptions=True)
        return was_expected

    assert asyncio.run(turn_and_end())
    assert not watch.is_stuck
