"""From what rounds cost to the figures of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from .variants import Cost, Variant

Round = Mapping[Variant, Cost]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a turn costs in one variant. Medians over the rounds; a ratio is taken inside each round."""

    cpu_ms: float
    ratio: float
    """To the floor of the same round."""
    ratios: tuple[float, ...]
    cpu_ms_of: Mapping[str, float]
    """By process."""
    commands: float
    """That the server carried out, inside scripts too."""
    round_trips: float
    kb_in: float
    kb_out: float
    commands_of: Mapping[str, float]
    stored_kb: Mapping[int, float]
    """Memory of a run, by the number of its turns."""
    aof_kb: Mapping[int, float]
    """What a run wrote to the append-only file, by the number of its turns."""
    cpu_ms_at: Mapping[int, float]
    """At the turn of this number, by a line through a short and a long run."""


def figures(rounds: Sequence[Round], long: Round) -> dict[Variant, Figures]:
    """The figures of every variant, from the rounds of short runs and one of long runs."""
    return {
        variant: _figures([one[variant] for one in rounds], [one[Variant.FLOOR] for one in rounds], long[variant])
        for variant in long
    }


def _figures(costs: Sequence[Cost], floors: Sequence[Cost], long: Cost) -> Figures:
    ratios = [cost.cpu_ms_per_turn / floor.cpu_ms_per_turn for cost, floor in zip(costs, floors, strict=True)]
    short = costs[-1]
    turns, server = short.work.all_turns, short.server
    both = (short, long)
    return Figures(
        cpu_ms=median(cost.cpu_ms_per_turn for cost in costs),
        ratio=median(ratios),
        ratios=tuple(ratios),
        cpu_ms_of={
            name: median(1000 * cost.cpu_seconds[name] / cost.work.all_turns for cost in costs)
            for name in short.cpu_seconds
        },
        commands=sum(server.commands.values()) / turns,
        round_trips=server.round_trips / turns,
        kb_in=server.bytes_in / turns / 1000,
        kb_out=server.bytes_out / turns / 1000,
        commands_of={name: calls / turns for name, calls in sorted(server.commands.items(), key=lambda item: -item[1])},
        stored_kb={cost.work.turns: cost.stored_bytes / cost.work.runs / 1000 for cost in both},
        aof_kb={cost.work.turns: cost.server.aof_bytes / cost.work.runs / 1000 for cost in both},
        cpu_ms_at=_cpu_ms_at(costs, long),
    )


def _cpu_ms_at(costs: Sequence[Cost], long: Cost) -> dict[int, float]:
    """If turn t costs a + b * t, runs of T turns cost a + b * (T + 1) / 2 a turn: two lengths give a and b."""
    short_turns, long_turns = costs[-1].work.turns, long.work.turns
    short_ms = median(cost.cpu_ms_per_turn for cost in costs)
    slope = 2 * (long.cpu_ms_per_turn - short_ms) / (long_turns - short_turns)
    return {turn: short_ms + slope * (turn - (short_turns + 1) / 2) for turn in (short_turns, long_turns)}
