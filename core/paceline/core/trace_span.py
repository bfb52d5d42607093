"""A span as a value: what is told of something that is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Value = str | int | float | bool | tuple[str, ...]


class Kind(StrEnum):
    """On which side of a call a span is."""

    INTERNAL = "internal"
    CLIENT = "client"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a span is: its trace, 32 hex digits, and its own id, 16."""

    trace: str
    span: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something that happened in a span. Milliseconds since the epoch."""

    name: str
    at_ms: int
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Times are milliseconds since the epoch. `parent` is in the same trace; a root has none."""

    name: str
    kind: Kind
    place: Place
    parent: str | None
    start_ms: int
    end_ms: int
    attributes: Mapping[str, Value]
    error: str = ""
    """A short word of `names`; empty: it went well, or a person wanted it so."""
    links: tuple[Place, ...] = ()
    moments: tuple[Moment, ...] = ()
