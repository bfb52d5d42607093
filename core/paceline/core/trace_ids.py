"""Where the spans of a run are: every id is derived, so that no process has to be told one, and none is stored.

    root -> turn -> chat, tool call

A very long run is told in parts, each a trace of its own: backends cut traces of more than some thousand spans. The
first part is `ids.trace_id`. All parts end in the same 64 bits, by which samplers decide: a run is sampled whole.
"""

from __future__ import annotations

import hashlib

from .ids import CallId, RunId, trace_id

TURNS_IN_A_PART = 250
"""At some six calls a turn a part has 2,000 spans."""


def part_of(turn: int) -> int:
    """The part that tells of a turn, from 0."""
    return (turn - 1) // TURNS_IN_A_PART


def is_last_of_part(turn: int) -> bool:
    """Whether the turn after this one is told in another trace."""
    return turn % TURNS_IN_A_PART == 0


def trace_of(run: RunId, part: int) -> str:
    """The trace of a part, 32 hex digits."""
    whole = trace_id(run)
    return whole if part == 0 else _digest(run, "part", part) + whole[16:]


def root_span(run: RunId, part: int, life: int = 0) -> str:
    """The span of the run, in one of its parts. A run that was redriven has another life for each time."""
    return _digest(run, "root", part, life)


def turn_span(run: RunId, turn: int) -> str:
    """The attempt that took this turn to its calls or to the next turn: of each turn there is one at most."""
    return _digest(run, "turn", turn)


def attempt_span(run: RunId, turn: int, attempt: int) -> str:
    """Any other attempt: one that was lost, held or tried in vain, or that ended the run."""
    return _digest(run, "attempt", turn, attempt)


def chat_span(run: RunId, turn: int, attempt: int) -> str:
    """An attempt's model call."""
    return _digest(run, "chat", turn, attempt)


def call_span(run: RunId, turn: int, call: CallId, attempt: int) -> str:
    """A try of a tool call that came to a result."""
    return _digest(run, "call", turn, call, attempt)


def doubt_span(run: RunId, turn: int, call: CallId, attempt: int) -> str:
    """A try of a tool call of which nobody knows what it did."""
    return _digest(run, "doubt", turn, call, attempt)


def _digest(*names: str | int) -> str:
    named = "\n".join(map(str, names)).encode()
    return hashlib.blake2b(named, digest_size=8, person=b"paceline-span").hexdigest()
