"""The names under which a process claims: one after the other, each for as long as the record can be relied on.

A server that started again, or another that took its place, may have lost what had been answered. The record may then
say that this process holds a turn that it has long done with, and since the process lives, nobody would take it. So
the process claims under a new name from then on, and the old one dies as soon as no claim of it is in use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from paceline.core.ids import Incarnation


class Lives:
    """Lives on the process's loop."""

    def __init__(self, first: Incarnation) -> None:
        self.current = first
        self._first = first
        self._number = 1
        self._former: set[Incarnation] = set()
        self._claims: Counter[Incarnation] = Counter()
        self._servers = ""

    @contextmanager
    def claiming(self) -> Iterator[Incarnation]:
        """The name to claim under, which lives at least as long as the claim is in use."""
        name = self.current
        self._claims[name] += 1
        try:
            yield name
        finally:
            self._claims[name] -= 1

    def note_servers(self, servers: str) -> None:
        """Take a new name if the record is not with the servers that it was with."""
        if self._servers and servers != self._servers:
            self._former.add(self.current)
            self._number += 1
            self.current = Incarnation(f"{self._first}.{self._number}")
        self._servers = servers

    def in_use(self) -> list[Incarnation]:
        """Former names that still have claims in use."""
        return [name for name in self._former if self._claims[name]]

    def ended(self) -> list[Incarnation]:
        """Former names of which nothing is in use any more."""
        return [name for name in self._former if not self._claims[name]]

    def forget(self, name: Incarnation) -> None:
        """The record knows that this name is dead."""
        self._former.discard(name)
        del self._claims[name]
