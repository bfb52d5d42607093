"""What is left behind by a chaos run: everything that the checker may go by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from integration.effect_tools import Effect
from integration.fleet import RealFleet

from paceline.core.ids import CallId, Incarnation, RunId
from paceline.core.ledger import Entry
from paceline.core.lifecycle import State
from paceline.core.transcript import Fragment
from paceline.producer.fleet import Batch
from paceline.sim.journal import Entry as Request
from paceline.store.port import BatchCounts, RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldClaim:
    """Something that a worker was doing when it was killed: a turn, or a call of one."""

    run: RunId
    call: CallId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A worker's end by kill -9. `at`: Unix seconds."""

    at: float
    held: tuple[HeldClaim, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvidence:
    """What the record says of one run."""

    record: RunRecord
    ledger: tuple[Entry, ...] = ()
    transcript: tuple[Fragment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Of one chaos run. `runs` has those of the submitted ones that are on record."""

    submitted: tuple[RunId, ...]
    runs: Mapping[RunId, RunEvidence]
    counts: BatchCounts
    requests: Sequence[Request]
    effects: Sequence[Effect]
    kills: Sequence[Kill] = ()
    blows: Mapping[str, int] = field(default_factory=dict)
    """How often each kind of blow was struck."""
    seconds: float = 0.0
    """From the submission to the end of the last run."""


def collect(
    real: RealFleet,
    batch: Batch,
    submitted: Sequence[RunId],
    *,
    kills: Sequence[Kill],
    blows: Mapping[str, int],
    seconds: float,
) -> Evidence:
    """Read the record, the journal and the effects."""
    records = {record.run.run_id: record for record in batch.records()}
    return Evidence(
        submitted=tuple(submitted),
        runs={run_id: _read_run(real, record) for run_id, record in records.items()},
        counts=batch.status().counts,
        requests=list(real.simulator.journal),
        effects=real.effects(),
        kills=kills,
        blows=blows,
        seconds=seconds,
    )


def held_by(real: RealFleet, batch: Batch, owners: Sequence[Incarnation]) -> tuple[HeldClaim, ...]:
    """What these workers had claimed, by the record."""
    held: list[HeldClaim] = []
    for record in batch.records():
        run = record.run
        if run.state is State.IN_TURN and run.owner in owners:
            held.append(HeldClaim(run=run.run_id))
        elif run.state is State.IN_TOOLS:
            calls = real.fleet.loop.run(real.fleet.store.open_call_states(run.run_id))
            open_here = [state.call.call_id for state in calls if state.owner in owners and not state.has_result]
            held += [HeldClaim(run=run.run_id, call=call) for call in open_here]
    return tuple(held)


def _read_run(real: RealFleet, record: RunRecord) -> RunEvidence:
    store, run_id = real.fleet.store, record.run.run_id
    return RunEvidence(
        record=record,
        ledger=real.fleet.loop.run(store.ledger(run_id)),
        transcript=real.fleet.loop.run(store.transcript(run_id)),
    )
