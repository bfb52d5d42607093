"""Tools that take their process down, in the ways in which native code does."""

from __future__ import annotations

import ctypes
import time

from paceline.tools import tool

_HOARDED: list[bytearray] = []


@tool(effect="reads")
def crash(what: str) -> str:
    """Read where there is nothing."""
    return ctypes.string_at(0).decode()


@tool(effect="once")
def crash_once(what: str) -> str:
    """Read where there is nothing, and perhaps do something before."""
    return ctypes.string_at(0).decode()


@tool(effect="reads")
def hoard(what: str) -> str:
    """Take all the memory that there is."""
    while True:
        _HOARDED.append(bytearray(64 * 1024 * 1024))


@tool(effect="reads", timeout_s=0.5)
def hang(what: str) -> str:
    """Hold the interpreter, and never give it back."""
    ctypes.PyDLL(None).sleep(3600)
    return "never"


@tool(effect="reads")
async def stand_still(what: str) -> str:
    """Hold the loop that carries out the tasks, and let go after a while."""
    time.sleep(3.5)
    return "moving again"
