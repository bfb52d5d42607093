"""Calls that come again and again: the run goes round in circles, and is told so before it is stopped.

A call is the tool with its arguments in canonical form. It comes again where it is asked for in turn after turn
(A-A-A), or in every other turn with the same calls in between (A-B-A-B-A). A message counts once however often it
holds a call: what is asked for side by side was asked before any result was seen. Edit, test,
edit, test is work as long as the edits differ. Calls of `repeatable` tools do not count.

What must be known of the past is the digests of the last turns' calls: of `period * limit` turns, and of at most
`MAX_FOLLOWED` calls a turn.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from .answer import Call

MAX_FOLLOWED = 16
"""Calls of one message that are followed; more of them are not in the history."""
_PERIODS = (1, 2)
_DIGITS = 8
"""Of a digest."""

Asked = frozenset[str]
"""The digests of what one message asked for."""
History = tuple[Asked, ...]
"""What the last messages asked for, the latest one last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """A call that came again: for the `times`-th time in a row, counting this one."""

    call: Call
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """What of a message comes again, and the history with the message in it."""

    found: tuple[Repeat, ...]
    history: History


def find_repeats(calls: Sequence[Call], history: History, *, limit: int, exempt: Collection[str]) -> Repeats:
    """The calls that come for at least the `limit`-th time. `exempt` names the tools that may repeat themselves."""
    followed = {call: digest(call) for call in calls if call.tool not in exempt}
    asked = frozenset(list(dict.fromkeys(followed.values()))[:MAX_FOLLOWED])
    known = (*history, asked)
    times = {each: max(_times(each, known, period) for period in _PERIODS) for each in asked}
    found = [Repeat(call=call, times=times.get(mark, 1)) for call, mark in followed.items()]
    return Repeats(
        found=tuple(repeat for repeat in found if repeat.times >= limit), history=known[-max(_PERIODS) * limit :]
    )


def digest(call: Call) -> str:
    """A short name of the tool with its arguments, whatever the order of their keys."""
    canonical = json.dumps([call.tool, json.loads(call.raw_input)], sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=_DIGITS // 2).hexdigest()


def _times(mark: str, known: History, period: int) -> int:
    """How often in a row: in every `period`-th message, with the same in between."""
    last = len(known) - 1
    between = known[last - period + 1 : last]
    times, at = 1, last - period
    while at >= 0 and mark in known[at] and known[at + 1 : at + period] == between:
        times, at = times + 1, at - period
    return times


def nudge(repeat: Repeat) -> str:
    """What the model is told in place of a result."""
    return (
        f"This call was not run: you have asked for {repeat.call.tool} with these same arguments {repeat.times} times "
        "in a row. Its earlier results are above. Use them, change the arguments or try something else: the run is "
        "stopped if you repeat the call once more."
    )


def encode(history: Iterable[Asked]) -> str:
    """As stored: digests side by side, one turn after another."""
    return "/".join("".join(sorted(asked)) for asked in history)


def decode(stored: str) -> History:
    """The history that `encode` wrote."""
    turns = stored.split("/") if stored else []
    return tuple(frozenset(turn[at : at + _DIGITS] for at in range(0, len(turn), _DIGITS)) for turn in turns)
