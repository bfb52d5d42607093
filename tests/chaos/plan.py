"""What will go wrong, and when: drawn from a seed before anything starts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class BlowKind(StrEnum):
    """What is done to the fleet."""

    KILL_WORKER = "kill -9 of a worker"
    STOP_WORKER = "SIGTERM of a worker"
    FREEZE_WORKER = "a worker frozen for longer than its claims"
    KILL_SERVER = "kill -9 of the server"
    DROP_CONNECTIONS = "all connections dropped"
    MODEL_BUSY = "the model is busy (429, 529)"
    LOSE_STARTS = "messages for first turns lost and doubled"


HITS_A_WORKER = frozenset({BlowKind.KILL_WORKER, BlowKind.STOP_WORKER, BlowKind.FREEZE_WORKER})
WEIGHTS = {
    BlowKind.KILL_WORKER: 6,
    BlowKind.STOP_WORKER: 2,
    BlowKind.FREEZE_WORKER: 1,
    BlowKind.KILL_SERVER: 1,
    BlowKind.DROP_CONNECTIONS: 2,
    BlowKind.MODEL_BUSY: 1,
    BlowKind.LOSE_STARTS: 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """One of them. `at_s`: seconds after the submission. `pick`, 0 to 1, says which of the workers it hits."""

    at_s: float
    kind: BlowKind
    pick: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Meddling:
    """How the messages of workers fare on their way to the broker: shares of all, each drawn by itself."""

    dropped: float = 0.0
    doubled: float = 0.0
    late: float = 0.0
    """Held back for up to `latest_s`, and so overtaken."""
    latest_s: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFaults:
    """How the model's answers fare: shares of all requests."""

    server_error: float = 0.0
    reset_before_read: float = 0.0
    reset_after_read: float = 0.0
    slow: float = 0.0


def drawn_blows(seed: int, *, seconds: float, pause_s: float) -> Sequence[Blow]:
    """Blows for so many seconds, on average one every `pause_s`: one of each kind, and then as the weights have it."""
    dice = random.Random(seed)
    first = sorted(BlowKind, key=lambda _: dice.random())
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    blows: list[Blow] = []
    at_s = pause_s
    while at_s < seconds:
        kind = first.pop() if first else dice.choices(kinds, weights)[0]
        blows.append(Blow(at_s=at_s, kind=kind, pick=dice.random()))
        at_s += pause_s * dice.uniform(0.5, 1.5)
    return blows
