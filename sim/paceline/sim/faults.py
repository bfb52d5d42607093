"""What can go wrong between a client and the API, on purpose."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A placeholder until the faults are written."""

    name: str
