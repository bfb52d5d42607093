"""What runs do in the box: each play takes a run through another part of its life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from paceline.core.step import FailureKind
from paceline.worker.scripted_model import ModelRequest, Reply, answers, asks, fails, says

from .box import Play

ANSWER = "all done"


def _asking(*turns: Sequence[str]) -> Play:
    """Ask for these tools, turn by turn, then answer."""

    def play(request: ModelRequest, seen: int) -> Reply:
        if request.turn > len(turns):
            return says(ANSWER)
        # Ids fall while their order in the message rises: no order but the message's own is the right one.
        ids = [f"t{request.turn}_{9 - place}" for place in range(len(turns[request.turn - 1]))]
        return asks(*((call_id, name, {}) for call_id, name in zip(ids, turns[request.turn - 1], strict=True)))

    return play


def _held(request: ModelRequest, seen: int) -> Reply:
    match seen:
        case 0:
            return fails(FailureKind.THROTTLED, "no room", retry_after_seconds=20)
        case 1:
            return fails(FailureKind.TRANSIENT, "a reset")
        case _:
            return _asking(["fetch"])(request, seen)


def _cut(request: ModelRequest, seen: int) -> Reply:
    match request.turn, seen:
        case 1, _:
            return says("Half an ", stop_reason="max_tokens")
        case 2, 0:
            return asks(("cut", "charge", {}), stop_reason="max_tokens")
        case _:
            return says("answer")


def _paused(request: ModelRequest, seen: int) -> Reply:
    if request.turn > 2:
        return says(ANSWER)
    search = {"type": "server_tool_use", "id": f"srvtoolu_{request.turn}", "name": "web_search", "input": {}}
    return answers([search], "pause_turn")


def _silent(request: ModelRequest, seen: int) -> Reply:
    return says("" if len(request.messages) < 3 else ANSWER)


PLAYS: Mapping[str, Play] = MappingProxyType(
    {
        "parallel calls": _asking(["fetch", "put", "fetch"], ["fetch"]),
        "inline calls": _asking(["look", "look"], ["look", "no_such_tool"]),
        "inline and parallel calls": _asking(["look", "fetch", "look", "put"]),
        "calls that run once": _asking(["charge", "fetch", "charge"]),
        "calls to approve": _asking(["pay", "fetch", "pay"]),
        "calls that can tell": _asking(["bill", "fetch", "bill"], ["bill"]),
        "all kinds of calls": _asking(["charge", "look", "put", "charge"], ["look"]),
        "calls that come again": _asking(["fetch"], ["fetch", "look"], ["fetch", "look", "charge"]),
        "holds": _held,
        "cut answers": _cut,
        "pauses": _paused,
        "empty answers": _silent,
    }
)
