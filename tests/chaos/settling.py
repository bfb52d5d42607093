"""The person who is asked what a call in doubt did: she looks at what was done to the world."""

from __future__ import annotations

import os
from contextlib import suppress

from integration.fleet import RealFleet

from paceline.core.errors import UsageError
from paceline.core.lifecycle import State
from paceline.producer.decide import NotRan, Ran
from paceline.producer.doubts import CallInDoubt, doubts_of
from paceline.producer.fleet import Batch


def settle(real: RealFleet, batch: Batch, *, is_quiet: bool) -> None:
    """Decide what can be decided. `is_quiet`: no worker that lives can still be about to do what is in doubt.

    An effect that is not there is ruled out only when it cannot come any more: a worker that was only frozen does
    what it was at when it wakes up, and nobody can call that back.
    """
    done = {effect.key for effect in real.effects()}
    waiting = [record.run for record in batch.records() if record.run.state is State.AWAITING_DECISION]
    for run in waiting:
        for doubt in doubts_of(run, real.fleet.show(run.run_id).calls):
            if doubt.idempotency_key in done:
                _resolve(real, doubt, Ran())
            elif is_quiet or not _is_there(doubt.worker):
                _resolve(real, doubt, NotRan())


def _resolve(real: RealFleet, doubt: CallInDoubt, decision: Ran | NotRan) -> None:
    with suppress(UsageError):  # the server was killed, and what we have seen is not so any more
        real.fleet.resolve(doubt.run_id, doubt.call_id, decision)


def _is_there(worker: str) -> bool:
    try:
        os.kill(int(worker.partition("-")[0]), 0)
    except ProcessLookupError:
        return False
    return True
