"""What it costs to tell of a turn: by metrics, and by traces besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from .stage import Watching
from .variants import Cost, Variant

WatchedRound = Mapping[tuple[Variant, Watching], Cost]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """CPU of a turn that is told of in one way. `ratios` to one that nothing is told of, round by round."""

    cpu_ms: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        return median(self.ratios)


def prices(rounds: Sequence[WatchedRound]) -> Mapping[tuple[Variant, Watching], Price]:
    """The price of each way, for each variant."""
    return {
        (variant, watching): Price(
            cpu_ms=median(one[variant, watching].cpu_ms_per_turn for one in rounds),
            ratios=tuple(
                one[variant, watching].cpu_ms_per_turn / one[variant, Watching.NOTHING].cpu_ms_per_turn
                for one in rounds
            ),
        )
        for variant, watching in rounds[0]
    }
