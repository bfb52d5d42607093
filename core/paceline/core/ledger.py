"""What happened to a run, entry by entry: written in one transaction with what it tells of, read by `paceline show`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeVar

from .errors import Bug
from .known_fields import known_fields
from .usage import Usage

LEDGER_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalled:
    """A model call that was answered."""

    turn: int
    attempt: int
    at_ms: int
    """When it ended, milliseconds since the epoch, by the worker's clock."""
    took_ms: int
    worker: str
    model: str
    stop_reason: str
    usage: Usage = field(default_factory=Usage)
    cost_nanousd: int | None = None
    calls: tuple[str, ...] = ()
    """`tool(call id)` for each call it asked for, in order."""
    cleared_tokens: int = 0
    """What the API cleared from the context itself, before it asked the model."""


class Source(StrEnum):
    """Who says what became of a call."""

    TOOL = "tool"
    RECONCILE = "reconcile"
    """The tool's own look at the world, after the worker that ran the call was gone."""
    PERSON = "person"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRan:
    """A tool call that has its result."""

    turn: int
    call: str
    tool: str
    attempt: int
    at_ms: int
    took_ms: int
    worker: str
    is_error: bool
    result_chars: int
    source: Source = Source.TOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The run began to wait for a moment in time."""

    turn: int
    attempt: int
    at_ms: int
    wait_seconds: float
    reason: str
    took_ms: int = 0
    """How long the model call took that came to nothing; 0: no call was made, or it was answered."""
    trouble: str = ""
    """What was wrong with that call, in a word of `trace_names`; empty: nothing was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """Old tool results are no longer sent, from this turn on. Tokens are estimates, made before the call."""

    turn: int
    at_ms: int
    cleared: int
    """Messages before this one are sent without the content of their results."""
    results: int
    tokens_before: int
    tokens_after: int
    expected_turns: int
    saved_nanousd: int | None
    """What the turns that are expected need not read from the cache; None: the price is not known."""
    rewrite_nanousd: int | None
    """What it costs to write to the cache again what stands behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLost:
    """A claim was taken from a worker that is gone; its model call may have been billed."""

    turn: int
    attempt: int
    at_ms: int
    worker: str
    began_ms: int = 0
    """When the attempt began, as far as that is known; 0: it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PossiblyBilled:
    """A model call that brought no answer, and may have been billed: so much is held against the limits for it."""

    turn: int
    attempt: int
    at_ms: int
    tokens: int
    cost_nanousd: int | None
    """None: the price is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectInDoubt:
    """Nobody knows whether a call took effect. `worker` ran it, and began when `began_ms` says."""

    turn: int
    call: str
    tool: str
    attempt: int
    at_ms: int
    began_ms: int
    worker: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRuledOut:
    """A call that was in doubt has not taken effect: it may run now."""

    turn: int
    call: str
    tool: str
    at_ms: int
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecided:
    """A person said whether a call may run."""

    turn: int
    call: str
    tool: str
    at_ms: int
    approved: bool
    reason: str = ""
    """Why not, in that person's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run is over."""

    turn: int
    at_ms: int
    reason: str
    message: str = ""
    attempt: int = 0
    """The attempt that ended it; 0: none did."""
    took_ms: int = 0
    """As in Held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """Somebody wanted the run to go on after its end; from `turn` it does."""

    turn: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Something that a newer paceline wrote, which alone can tell of it."""

    turn: int
    at_ms: int
    kind: str


Known = (
    ModelCalled
    | CallRan
    | Held
    | Compacted
    | AttemptLost
    | PossiblyBilled
    | EffectInDoubt
    | EffectRuledOut
    | ApprovalDecided
    | Ended
    | Redriven
)
"""What this paceline writes."""
Entry = Known | Unknown
T = TypeVar("T")

_KINDS: Mapping[str, type[Known]] = MappingProxyType(
    {
        "model": ModelCalled,
        "call": CallRan,
        "held": Held,
        "compacted": Compacted,
        "lost": AttemptLost,
        "possibly_billed": PossiblyBilled,
        "in_doubt": EffectInDoubt,
        "ruled_out": EffectRuledOut,
        "approval": ApprovalDecided,
        "ended": Ended,
        "redriven": Redriven,
    }
)
_NAMES: Mapping[type[Known], str] = MappingProxyType({kind: name for name, kind in _KINDS.items()})

_CAME_LATER: Mapping[type[Known], Mapping[str, object]] = MappingProxyType(
    {
        ModelCalled: {"cleared_tokens": 0},
        CallRan: {"source": Source.TOOL},
        Held: {"took_ms": 0, "trouble": ""},
        AttemptLost: {"began_ms": 0},
        Ended: {"attempt": 0, "took_ms": 0},
    }
)
"""Fields that earlier versions did not write, with what they mean where they are left out."""


def the(kind: type[T], entries: Iterable[Entry]) -> T | None:
    """The first entry of this kind; None if there is none."""
    return next((entry for entry in entries if isinstance(entry, kind)), None)


def encode(entry: Entry) -> bytes:
    """An entry as stored. Raises Bug for one that is not known here: only its own paceline can write it."""
    if isinstance(entry, Unknown):
        raise Bug(f"an entry of kind {entry.kind!r} cannot be written here")
    # Not `asdict` of the whole: it copies, and what it takes shows in the cost of a turn.
    own = {field.name: getattr(entry, field.name) for field in fields(entry)}
    data = {"kind": _NAMES[type(entry)], "version": LEDGER_VERSION, **own}
    for name, usual in _CAME_LATER.get(type(entry), {}).items():
        if data[name] == usual:
            del data[name]
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=asdict).encode()


def decode(stored: bytes) -> Entry:
    """The entry that `encode` wrote; what is not known here is passed over, and an Unknown stands for a whole entry.

    Raises KeyError or TypeError for what is no entry.
    """
    data: dict[str, Any] = json.loads(stored)
    kind = _KINDS.get(data["kind"])
    if kind is None or data["version"] != LEDGER_VERSION:
        return Unknown(turn=data["turn"], at_ms=data["at_ms"], kind=data["kind"])
    if "usage" in data:
        data |= {"usage": Usage(**known_fields(Usage, data["usage"])), "calls": tuple(data["calls"])}
    if "source" in data:
        data["source"] = Source(data["source"])
    return kind(**known_fields(kind, data))
