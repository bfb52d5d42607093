"""A chaos run: real runs on a real fleet, one blow after another, and the evidence of how it went."""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TypeVar, assert_never

from integration.fleet import FleetPlan, RealFleet
from redis import Redis

from paceline.core.errors import InfrastructureError
from paceline.core.ids import run_id
from paceline.core.lifecycle import State
from paceline.core.unknown_effect import OnUnknownEffect
from paceline.producer.children import Child
from paceline.producer.fleet import Batch
from paceline.sim import Fault
from paceline.store.port import BatchCounts

from .evidence import Evidence, Kill, collect, held_by
from .meddled_app import MEDDLING_VARIABLE
from .plan import HITS_A_WORKER, Blow, BlowKind, Meddling, ModelFaults
from .script import busy_script
from .settling import settle

T = TypeVar("T")

STARTS_KEY = "paceline:broker:paceline.starts"
_TICK_S = 0.05
_LOOK_S = 0.5
_FROZEN_CLAIMS = 1.5
_SERVER_AWAY_S = 0.5
_STARTS_LOST = 3
_LATE_EFFECT_S = 3.0
"""A tool of a chaos run that was begun has taken effect after so long, unless its worker is gone or frozen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosPlan:
    """All that makes one chaos run."""

    runs: int
    blows: Sequence[Blow] = ()
    fleet: FleetPlan = field(default_factory=lambda: FleetPlan(workers=3))
    meddling: Meddling = field(default_factory=Meddling)
    faults: ModelFaults = field(default_factory=ModelFaults)
    still_seconds: float = 60.0
    """Runs that have not ended when nothing has failed and nothing has moved for so long are stuck."""
    longest_model_s: float = 1.0
    """How long the model takes at most: it spreads the runs over the blows."""


def run_chaos(folder: Path, plan: ChaosPlan, *, say: Callable[[str], None] = lambda _: None) -> Evidence:
    """Carry the plan out in this folder. `say` is told of each blow."""
    environment = {MEDDLING_VARIABLE: json.dumps(asdict(plan.meddling)), **plan.fleet.environment}
    with RealFleet(folder, busy_script(plan.longest_model_s), replace(plan.fleet, environment=environment)) as real:
        real.wait_working()
        _inject(real, plan.faults)
        return _Driver(real=real, plan=plan, say=say).drive()


@dataclass(slots=True, kw_only=True)
class _Driver:
    """The one thread that strikes. Moments are those of the monotonic clock."""

    real: RealFleet
    plan: ChaosPlan
    say: Callable[[str], None]
    kills: list[Kill] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)
    to_come: deque[Blow] = field(init=False)
    batch: Batch = field(init=False)
    began: float = field(init=False)
    frozen: Child | None = None
    thaws_at: float = 0.0

    def drive(self) -> Evidence:
        agent = self.real.agent(on_unknown_effect=OnUnknownEffect.WAIT)
        self.batch = self.real.submit(self.plan.runs, agent=agent)
        self.began = time.monotonic()
        self.to_come = deque(self.plan.blows)
        self._until_ended()
        submitted = [run_id(self.batch.info.name, str(number)) for number in range(self.plan.runs)]
        seconds = time.monotonic() - self.began
        return patiently(
            lambda: collect(self.real, self.batch, submitted, kills=self.kills, blows=self.struck, seconds=seconds)
        )

    def _until_ended(self) -> None:
        """Strike, and look, until all runs have ended, or nothing is left that could move."""
        progress = _Progress(still_seconds=self.plan.still_seconds)
        looked = 0.0
        while True:
            self._strike_due()
            if time.monotonic() - looked > _LOOK_S:
                status = patiently(self.batch.status)
                looked = time.monotonic()
                if status.counts.states.get(State.AWAITING_DECISION):
                    patiently(lambda: settle(self.real, self.batch, is_quiet=self._is_quiet()))
                if self._is_over(status.counts, progress):
                    return
            time.sleep(_TICK_S)

    def _is_over(self, counts: BatchCounts, progress: _Progress) -> bool:
        is_still = progress.is_still(counts.turns, counts.active, counts.spent.tool_calls)
        return not counts.active or (is_still and not self.to_come and not self.frozen)

    def _strike_due(self) -> None:
        """Strike what is due, in order. Workers are hit only in a fleet that is whole: another one shows nothing."""
        if self.frozen and time.monotonic() > self.thaws_at:
            self.real.thaw(self.frozen)
            self.frozen = None
        while self.to_come and time.monotonic() > self.began + self.to_come[0].at_s:
            if self.to_come[0].kind in HITS_A_WORKER and not self._is_whole():
                return
            self._strike(self.to_come.popleft())

    def _strike(self, blow: Blow) -> None:
        self.say(f"{blow.at_s:5.1f} s: {blow.kind}")
        self.struck[blow.kind.value] += 1
        match blow.kind:
            case BlowKind.KILL_WORKER:
                self._kill(self._picked(blow))
            case BlowKind.STOP_WORKER:
                self._picked(blow).process.terminate()
                self.real.start_worker()
            case BlowKind.FREEZE_WORKER:
                self._freeze(self._picked(blow))
            case BlowKind.KILL_SERVER:
                self.real.restart_valkey(away_s=_SERVER_AWAY_S)
            case BlowKind.DROP_CONNECTIONS:
                self._redis(lambda client: client.client_kill_filter(_type="normal", skipme=True))
            case BlowKind.MODEL_BUSY:
                self.real.simulator.inject(Fault("rate_limited", retry_after=1), times=2)
                self.real.simulator.inject("overloaded", times=2)
            case BlowKind.LOSE_STARTS:
                self._redis(_lose_starts)
            case _:
                assert_never(blow.kind)

    def _is_whole(self) -> bool:
        """Whether no worker is frozen, and those that were started for others are up."""
        return not self.frozen and len(patiently(self.real.working)) >= self.plan.fleet.workers

    def _picked(self, blow: Blow) -> Child:
        workers = patiently(self.real.working)
        return workers[int(blow.pick * len(workers))]

    def _kill(self, worker: Child) -> None:
        owners = patiently(lambda: self.real.incarnations(worker))
        self.real.kill(worker)
        at = time.time()
        held = patiently(lambda: held_by(self.real, self.batch, owners))
        self.kills.append(Kill(at=at, held=held))
        self.real.start_worker()

    def _freeze(self, worker: Child) -> None:
        self.real.freeze(worker)
        self.frozen = worker
        self.thaws_at = time.monotonic() + _FROZEN_CLAIMS * self.plan.fleet.claim_seconds

    def _is_quiet(self) -> bool:
        """Whether no worker that was frozen can still be about to do what it was at."""
        return time.monotonic() > self.thaws_at + _LATE_EFFECT_S

    def _redis(self, act: Callable[[Redis], object]) -> None:
        with Redis.from_url(self.real.url) as client:
            act(client)


@dataclass(slots=True, kw_only=True)
class _Progress:
    """Notices when nothing moves any more."""

    still_seconds: float
    seen: tuple[int, ...] = ()
    since: float = 0.0

    def is_still(self, *seen: int) -> bool:
        if seen != self.seen:
            self.seen, self.since = seen, time.monotonic()
        return time.monotonic() - self.since > self.still_seconds


def patiently(ask: Callable[[], T]) -> T:
    """The answer, once the record can be reached: its connections are struck as everybody's are."""
    while True:
        try:
            return ask()
        except InfrastructureError:
            time.sleep(_TICK_S)


def _lose_starts(client: Redis) -> None:
    """Drop some messages for first turns, and send others twice."""
    client.lpop(STARTS_KEY, _STARTS_LOST)
    for message in client.lrange(STARTS_KEY, 0, _STARTS_LOST - 1):
        client.rpush(STARTS_KEY, message)


def _inject(real: RealFleet, faults: ModelFaults) -> None:
    shares: Mapping[Fault, float] = {
        Fault("server_error"): faults.server_error,
        Fault("reset_before_read"): faults.reset_before_read,
        Fault("reset_after_read"): faults.reset_after_read,
        Fault("slow_first_byte", seconds=3.0): faults.slow,
    }
    for seed, (fault, share) in enumerate(shares.items()):
        if share:
            real.simulator.inject(fault, probability=share, seed=seed)
