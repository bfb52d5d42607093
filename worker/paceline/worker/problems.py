"""What keeps runs waiting in a worker process, for its report."""

from __future__ import annotations

import time
from collections.abc import Callable

_KEPT_SECONDS = 900.0
"""Longer than any run that waits for the cause to be mended is held between two tries."""


class Problems:
    """By their causes. One that no run has met for a while is forgotten. Any thread may note one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._noted: dict[str, tuple[str, float]] = {}

    def note(self, cause: str, text: str) -> bool:
        """A run has met this. Whether it is new."""
        is_new = cause not in self._noted
        self._noted[cause] = (text, self._clock())
        return is_new

    def solve(self, cause: str) -> None:
        """It is no more, if it ever was."""
        self._noted.pop(cause, None)

    def texts(self) -> tuple[str, ...]:
        """What there is to tell."""
        oldest = self._clock() - _KEPT_SECONDS
        self._noted = {cause: (text, at) for cause, (text, at) in self._noted.items() if at >= oldest}
        return tuple(text for text, _ in self._noted.values())
