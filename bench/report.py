"""The report: a small table for people, JSON for machines."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict

from .figures import Figures
from .stage import Watching
from .variants import Variant
from .watched import Price

_WIDTH = 34


def as_json(found: Mapping[Variant, Figures], watched: Mapping[tuple[Variant, Watching], Price]) -> str:
    """All figures, and what they were measured on."""
    data = {
        "machine": machine(),
        "variants": {variant.value: asdict(one) for variant, one in found.items()},
        "watched": {f"{variant}, {watching}": asdict(price) for (variant, watching), price in watched.items()},
    }
    return json.dumps(data, indent=2)


def prices_as_table(watched: Mapping[tuple[Variant, Watching], Price]) -> str:
    """What it costs to tell of a turn, side by side for the variants."""
    variants = list(dict.fromkeys(variant for variant, _ in watched))
    table = [_line("CPU ms a turn that tells", *variants)]
    for watching in Watching:
        of_way = [watched[variant, watching] for variant in variants]
        table += [
            _line(watching, *(f"{price.cpu_ms:.2f}" for price in of_way)),
            _line("  times nothing", *(f"{price.ratio:.3f}" for price in of_way)),
            _line("  lowest to highest round", *(f"{min(p.ratios):.2f}-{max(p.ratios):.2f}" for p in of_way)),
        ]
    return "\n".join(table)


def as_table(found: Mapping[Variant, Figures]) -> str:
    """The figures side by side, one a line."""
    floor, inline, chord = (found[variant] for variant in Variant)
    short, long = floor.cpu_ms_at
    table = [
        _line("", *Variant),
        _line("CPU ms a turn", *(f"{one.cpu_ms:.2f}" for one in found.values())),
        _line("  times the floor", *(f"{one.ratio:.2f}" for one in found.values())),
        _line("  lowest to highest round", *(f"{min(one.ratios):.2f}-{max(one.ratios):.2f}" for one in found.values())),
        *(_of_fleet(f"  of it {name}", inline, chord, _cpu_of(name)) for name in ("server", "worker", "driver")),
        *(
            _line(f"CPU ms at turn {turn}", *(f"{one.cpu_ms_at[turn]:.2f}" for one in found.values()))
            for turn in (short, long)
        ),
        _of_fleet("Redis commands a turn", inline, chord, lambda one: f"{one.commands:.1f}"),
        _of_fleet("  round trips a turn", inline, chord, lambda one: f"{one.round_trips:.1f}"),
        _of_fleet("KB to / from Redis a turn", inline, chord, lambda one: f"{one.kb_in:.1f}/{one.kb_out:.1f}"),
        _of_fleet(
            f"KB stored a run of {short} / {long}",
            inline,
            chord,
            lambda one: f"{one.stored_kb[short]:.0f}/{one.stored_kb[long]:.0f}",
        ),
        _of_fleet(
            f"KB of AOF a run of {short} / {long}",
            inline,
            chord,
            lambda one: f"{one.aof_kb[short]:.0f}/{one.aof_kb[long]:.0f}",
        ),
    ]
    return "\n".join(table)


def machine() -> str:
    """What this was measured on, without a name."""
    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, Python {platform.python_version()}"


def _cpu_of(name: str) -> Callable[[Figures], str]:
    return lambda one: f"{one.cpu_ms_of[name]:.2f}"


def _of_fleet(name: str, inline: Figures, chord: Figures, show: Callable[[Figures], str]) -> str:
    """A line of what the floor does not have."""
    return _line(name, "-", show(inline), show(chord))


def _line(name: str, *values: str) -> str:
    return name.ljust(_WIDTH) + "".join(value.rjust(14) for value in values)
