"""Processes that die by SIGKILL, each before or after another one of its effects on the outside.

A port is wrapped by whoever makes it: what is tested has no switch for this.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from inspect import iscoroutinefunction
from typing import Any


class Fate:
    """Kills this process at a moment, `before store.submit` or `after store.submit 2` (the second time), once told to.

    `batch`: the name of the batch that this process works on.
    """

    def __init__(self, moment: str, batch: str) -> None:
        self.batch = batch
        self.is_waiting = False
        self._moment = moment if moment[-1].isdigit() else f"{moment} 1"
        self._times: Counter[str] = Counter()
        self._lock = threading.Lock()

    def strike(self, what: str) -> None:
        with self._lock:
            self._times[what] += self.is_waiting
            if f"{what} {self._times[what]}" == self._moment:
                os.kill(os.getpid(), signal.SIGKILL)
                threading.Event().wait()  # a signal to oneself may take a moment


class Mortal:
    """A port that its process may die at."""

    def __init__(self, real: object, name: str, fate: Fate) -> None:
        self._real, self._name, self._fate = real, name, fate
        self.done: Counter[str] = Counter()
        """How often each method has been carried out."""

    def __getattr__(self, verb: str) -> Any:
        method, what = getattr(self._real, verb), f"{self._name}.{verb}"

        async def awaited(*args: object, **options: object) -> object:
            self._fate.strike(f"before {what}")
            answer = await method(*args, **options)
            self.done[verb] += 1
            self._fate.strike(f"after {what}")
            return answer

        def called(*args: object, **options: object) -> object:
            self._fate.strike(f"before {what}")
            answer = method(*args, **options)
            self._fate.strike(f"after {what}")
            return answer

        return awaited if iscoroutinefunction(method) else called


def die_at_each(moments: Mapping[str, str], live: Callable[[Fate], None], *, at_once: int = 4) -> None:
    """Have each of these lives, by the name of its batch, end at its moment. Fails if one goes on beyond it.

    The caller must have no threads: it is forked.
    """
    fates = [Fate(moment, batch) for batch, moment in moments.items()]
    for first in range(0, len(fates), at_once):
        children = {_fork(live, fate): fate for fate in fates[first : first + at_once]}
        for child, fate in children.items():
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert code == -signal.SIGKILL, f"{moments[fate.batch]!r} was not met: {code}"


def _fork(live: Callable[[Fate], None], fate: Fate) -> int:
    child = os.fork()
    if child:
        return child
    try:
        live(fate)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
