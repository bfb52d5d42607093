"""Where nobody could verify what the API does: which reading the simulator takes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from paceline.sim.rules import Rule

# Without these there would be nothing to go on with.
_INDISPENSABLE = frozenset(
    {Rule.NOT_AN_OBJECT, Rule.NO_REQUESTS, Rule.NO_SUCH_BATCH, Rule.RESULTS_NOT_READY, Rule.BATCH_NOT_ENDED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """The default is the strict reading: a client that passes under it passes under the other as well.

    `unenforced` are numbers of rules that are believed but were never seen, to be let pass; ValueError for one
    that was seen. `account_binds_thinking` is false for an account made before 2026-08-31, on which a changed
    conversation is told in `input_transformations` but not refused.
    """

    unenforced: Collection[int] = frozenset()
    account_binds_thinking: bool = True

    def __post_init__(self) -> None:
        for number in self.unenforced:
            if number not in SWITCHABLE:
                known = ", ".join(str(each) for each in sorted(SWITCHABLE))
                raise ValueError(f"rule {number} cannot be left out: only unverified ones can, which are {known}")

    @property
    def unenforced_rules(self) -> frozenset[Rule]:
        """The rows of the table that are let pass."""
        return frozenset(rule for rule in Rule if rule.number in self.unenforced and _is_switchable(rule))


def _is_switchable(rule: Rule) -> bool:
    return not rule.verified and rule not in _INDISPENSABLE


SWITCHABLE = frozenset(rule.number for rule in Rule if _is_switchable(rule))
STRICT = Switches()
