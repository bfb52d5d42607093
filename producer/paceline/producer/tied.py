"""A child process that does not outlive its parent, not even a parent that is killed with -9.

On Linux the kernel sends the child a signal when its parent dies. Elsewhere there is no such thing: there a child that
was orphaned by a kill -9 has to be ended by hand, an embedded server by the next start in its folder.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def tied(command: Sequence[str], *, death: signal.Signals) -> list[str]:
    """The command that runs `command` and has it get the signal `death` when the starting thread is gone.

    The tie is made by the child itself, which then becomes `command`: nothing runs in a forked copy of our threads.
    """
    if not sys.platform.startswith("linux"):
        return list(command)
    return [sys.executable, "-P", "-m", "paceline.producer.tied", str(os.getpid()), str(int(death)), *command]


def _tie_and_become(parent: int, death: int, command: Sequence[str]) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, death)
    if os.getppid() == parent:  # else it died before the tie was made
        os.execvp(command[0], list(command))


if __name__ == "__main__":
    _tie_and_become(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
