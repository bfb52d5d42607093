"""Prompt caching to the token: what a request reads, what it writes, and what it pays in full.

An entry stands for a prompt up to one block. It is written at breakpoints only, counts from the start of the
request that wrote it, and can be read once that request's answer has begun. A breakpoint finds entries at its
own block and the 19 before it. Every read starts an entry's life anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paceline.sim.journal import Usage
from paceline.sim.models import Model
from paceline.sim.prompt import Marker, Prompt

LOOK_BACK = 20
TTL_SECONDS = {"5m": 300.0, "1h": 3600.0}
MAX_ENTRIES = 200_000


@dataclass(slots=True)
class _Entry:
    ttl: str
    expires: float

    def refresh(self, now: float) -> None:
        self.expires = max(self.expires, now + TTL_SECONDS[self.ttl])


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What the prompt of a request costs, the entries it reads, and those it leaves behind once its answer
    begins."""

    usage: Usage
    reads: tuple[bytes, ...]
    writes: tuple[tuple[bytes, str], ...]
    started: float


class PromptCache:
    """The entries of all workspaces, models and speeds."""

    def __init__(self) -> None:
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()

    def charge(self, prompt: Prompt, model: Model, scope: str, now: float) -> Charge:
        """Price the prompt of a request that starts `now`; `scope` is what entries are not shared across.
        Changes nothing: `read` and `begin` do."""
        if not prompt.markers:
            return Charge(usage=Usage(input_tokens=prompt.tokens), reads=(), writes=(), started=now)
        keys, sizes = prompt.keys(scope), prompt.tokens_up_to()
        hit = self._hit(prompt.markers, keys, now)
        new = [
            marker
            for marker in prompt.markers
            if marker.position > hit and sizes[marker.position] >= model.min_cache_tokens
        ]
        return Charge(
            usage=_usage(new, sizes, sizes[hit] if hit >= 0 else 0),
            reads=tuple(keys[position] for position in _read_positions(prompt.markers, hit)),
            writes=tuple((keys[marker.position], marker.ttl) for marker in new),
            started=now,
        )

    def read(self, charge: Charge) -> None:
        """The request has started: the entries it reads live anew."""
        for key in charge.reads:
            if self._is_alive(key, charge.started):
                self._entries[key].refresh(charge.started)

    def begin(self, charge: Charge) -> None:
        """The answer has begun: what the request wrote can be read from now on."""
        for key, ttl in charge.writes:
            self._entries[key] = _Entry(ttl, charge.started + TTL_SECONDS[ttl])
            self._entries.move_to_end(key)
        while len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)

    def _hit(self, markers: Sequence[Marker], keys: Sequence[bytes], now: float) -> int:
        """The furthest position that can be read; -1 for none."""
        return next((position for position in _looked_at(markers) if self._is_alive(keys[position], now)), -1)

    def _is_alive(self, key: bytes, now: float) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.expires > now


def _read_positions(markers: Sequence[Marker], hit: int) -> list[int]:
    """The position read and the breakpoints on the way to it."""
    return [marker.position for marker in markers if marker.position < hit] + ([hit] if hit >= 0 else [])


def _looked_at(markers: Sequence[Marker]) -> Iterator[int]:
    """Positions that a request's breakpoints look at, from the furthest back."""
    for marker in reversed(markers):
        yield from range(marker.position, max(marker.position - LOOK_BACK, -1), -1)


def _usage(new: Sequence[Marker], sizes: Sequence[int], read: int) -> Usage:
    """Tokens read, written for each life, and left after the last breakpoint."""
    written = {"5m": 0, "1h": 0}
    end = read
    for marker in new:
        written[marker.ttl] += sizes[marker.position] - end
        end = sizes[marker.position]
    return Usage(
        input_tokens=sizes[-1] - end,
        cache_read_input_tokens=read,
        cache_creation_5m_tokens=written["5m"],
        cache_creation_1h_tokens=written["1h"],
    )
