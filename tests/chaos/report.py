"""The outcome of a chaos run, for people and for machines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Over all turns and calls that were held by a worker when it was killed: how long each stood still."""

    claims: int = 0
    p50_s: float = 0.0
    p99_s: float = 0.0
    max_s: float = 0.0
    slowest: tuple[str, ...] = ()
    """Those that took longest, to be looked into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found. The fields up to `miscounted` that hold names must be empty; the rest is told, not judged."""

    runs: int
    ends: Mapping[str, int]
    turns: int = 0
    calls: int = 0
    seconds: float = 0.0
    blows: Mapping[str, int] = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    doubled_appends: tuple[str, ...] = ()
    doubled_effects: tuple[str, ...] = ()
    missing_effects: tuple[str, ...] = ()
    rejected_requests: tuple[str, ...] = ()
    miscounted: tuple[str, ...] = ()
    billed_again: int = 0
    """Model calls billed for a turn that had been billed before: the price of deaths and of answers lost on the way."""
    counted_lost: int = 0
    """Attempts that the record counts as lost, and so as possibly billed."""
    in_doubt: int = 0
    """Calls of `once` tools about which somebody was asked."""
    recovery: Recovery = field(default_factory=Recovery)

    @property
    def ended(self) -> int:
        return sum(self.ends.values())

    @property
    def violations(self) -> Mapping[str, tuple[str, ...]]:
        """What must not be: for each promise that was broken, where."""
        promises = {
            "runs lost": self.lost,
            "runs stuck": self.stuck,
            "doubled appends": self.doubled_appends,
            "silent double effects": self.doubled_effects,
            "effects on record that were not": self.missing_effects,
            "rejected requests": self.rejected_requests,
            "totals that do not add up": self.miscounted,
        }
        return {promise: where for promise, where in promises.items() if where}

    def to_json(self) -> str:
        """All of it, on one line."""
        return json.dumps(asdict(self) | {"ended": self.ended})

    def table(self) -> str:
        """All of it, to be read."""
        return "\n".join(f"{name:<34} {value}" for name, value in self._lines())

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield "runs submitted", f"{self.runs}"
        yield "runs ended", f"{self.ended}  ({_counted(self.ends)})"
        yield "runs lost", f"{len(self.lost)}"
        yield "runs stuck", f"{len(self.stuck)}"
        yield "doubled appends", f"{len(self.doubled_appends)}"
        yield "silent double effects", f"{len(self.doubled_effects)}"
        yield "effects on record that were not", f"{len(self.missing_effects)}"
        yield "rejected requests", f"{len(self.rejected_requests)}"
        yield "totals that do not add up", f"{len(self.miscounted)}"
        yield "model calls billed again", f"{self.billed_again}  of {self.turns + self.billed_again}"
        yield "attempts counted as lost", f"{self.counted_lost}"
        yield "once calls somebody was asked about", f"{self.in_doubt}"
        yield "turns and calls held when killed", f"{self.recovery.claims}"
        moved = f"p50 {self.recovery.p50_s:.1f}, p99 {self.recovery.p99_s:.1f}, max {self.recovery.max_s:.1f}"
        yield "seconds until they moved again", moved
        yield "the slowest of them", "; ".join(self.recovery.slowest)
        yield "turns, tool calls", f"{self.turns}, {self.calls}"
        yield "seconds", f"{self.seconds:.0f}"
        yield "blows", _counted(self.blows)
        for promise, where in self.violations.items():
            yield f"BROKEN: {promise}", "; ".join(where[:_SHOWN]) + (" ..." if len(where) > _SHOWN else "")


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"
