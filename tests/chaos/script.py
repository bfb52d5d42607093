"""What the simulated model says in a chaos run: three to six turns with calls of every kind of tool."""

from __future__ import annotations

import zlib

from integration.fleet import Script

from paceline.sim import Answer, Call
from paceline.sim.request import Request

_EFFECTFUL = ("put", "pay", "look", "pay")
_TOOL_SECONDS = {"fetch": 0.1, "put": 0.1, "pay": 0.5}
"""How long each takes; what may not come twice takes long enough to be killed in the midst of it."""


def busy_script(longest_model_s: float) -> Script:
    """Up to three calls a turn, then an answer. How long a thing takes depends on the run and the turn alone."""

    def answer(request: Request) -> Answer:
        number = zlib.crc32(request.first_user_text.encode())
        delay_s = longest_model_s * ((number + request.turn * 7919) % 100) / 100
        if request.turn >= turns_of(request.first_user_text):
            return Answer(text="done", delay_s=delay_s)
        return Answer(text=f"turn {request.turn}", calls=_calls(number, request.turn), delay_s=delay_s)

    return answer


def turns_of(prompt: str) -> int:
    """How many turns a run with this prompt takes, 3 to 6."""
    return 3 + zlib.crc32(prompt.encode()) % 4


def _calls(number: int, turn: int) -> list[Call]:
    names = ["fetch", _EFFECTFUL[(number + turn) % 4], *(["pay"] if (number + turn) % 3 == 0 else [])]
    return [Call(tool=name, input=_input(name, f"{turn}-{place}")) for place, name in enumerate(names)]


def _input(tool: str, what: str) -> dict[str, object]:
    return {"what": what, **({"seconds": _TOOL_SECONDS[tool]} if tool in _TOOL_SECONDS else {})}
