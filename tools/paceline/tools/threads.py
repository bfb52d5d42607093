"""A thread for each call of a blocking tool."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ThreadPerCall(Executor):
    """Runs each call in a daemon thread of its own.

    Not a pool: a call that never returns then neither takes a place from the others nor keeps the process from
    ending, and no call waits for a place while its timeout runs.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()

        def body() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=body, name="paceline-tool", daemon=True).start()
        return future
