"""What the fleet knows of a tool without importing it: frozen into a run when it is submitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from .known_fields import known_fields

READ_RESULT = "read_result"
"""The name of the built-in tool that reads what the model was not shown, or is not shown any more."""

MAX_RESULT_CHARS = 20_000
"""What a result may be long, unless its tool says otherwise: more is shown to the model as head and tail."""


class Effect(StrEnum):
    """What running a call twice would do to the world."""

    READS = "reads"
    IDEMPOTENT = "idempotent"
    ONCE = "once"


class Placement(StrEnum):
    """Where a call runs: as a task of the turn's chord, or inside the turn's own task."""

    FLEET = "fleet"
    INLINE = "inline"


class Approval(StrEnum):
    """Whether a person is asked before a call runs."""

    NEVER = "never"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model and the fleet see it. `path` is `module:function`, importable by the workers."""

    name: str
    path: str
    description: str
    input_schema: Mapping[str, Any]
    effect: Effect = Effect.ONCE
    placement: Placement = Placement.FLEET
    timeout_s: float = 60.0
    max_result_chars: int = MAX_RESULT_CHARS
    repeatable: bool = False
    approval: Approval = Approval.NEVER
    reconciles: bool = False
    """Whether the tool can find out what became of a call whose worker was lost."""

    def definition(self) -> dict[str, Any]:
        """The tool as an entry of the request's `tools`."""
        return {"name": self.name, "description": self.description, "input_schema": dict(self.input_schema)}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data; `from_json` reads it back."""
        data = asdict(self)
        if not self.reconciles:
            del data["reconciles"]  # as before there was such a thing: an agent keeps its digest
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ToolSpec:
        """The spec that `to_json` wrote; members that are not known here are passed over.

        Raises TypeError or ValueError for anything else.
        """
        return cls(
            **{
                **known_fields(cls, data),
                "effect": Effect(data["effect"]),
                "placement": Placement(data["placement"]),
                "approval": Approval(data["approval"]),
            }
        )
