"""An event loop whose time stands still while there is work, and jumps to the next timer when there is none."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_START_SECONDS = 1_000.0
"""Not the epoch's: asyncio asks for more digits of its timers than a float has there."""


class NothingWillHappen(AssertionError):
    """Every task waits for something that no task will do."""


def run_in_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns, with no real second spent in a sleep."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """What is handed to threads is carried out at once, in this one."""

    def __init__(self) -> None:
        self.now_seconds = _START_SECONDS
        super().__init__(_Jumping(self))
        self.set_default_executor(_AtOnce(max_workers=1))

    def time(self) -> float:
        return self.now_seconds

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is no thread to wait for; asyncio would start one to do so, and its end comes in real time."""


class _Jumping(selectors.DefaultSelector):
    """Where a selector would sleep until the next timer, it moves the loop's time there."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise NothingWillHappen("every task waits for something that no task will do")
        if not ready and timeout:
            self._loop.now_seconds += timeout
        return ready


class _AtOnce(ThreadPoolExecutor):
    """No thread at all: the order of events must not depend on one."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future
