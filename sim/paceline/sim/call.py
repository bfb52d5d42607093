"""A tool call that the simulated model makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call. `id` is derived from the conversation when it is empty."""

    tool: str
    input: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
