"""A worker without Celery and without a model: it ends every run with one turn. For tests of what is around workers.

`python puppet_worker.py [PATTERN]`: runs whose first message holds PATTERN end as stopped. It lives until it is ended.
"""

import asyncio
import os
import sys

from support.runs import SPENT, a_claim, model_called

from paceline.core.endings import Outcome, StopReason
from paceline.core.ids import batch_tag
from paceline.core.lifecycle import State
from paceline.store.connect import connect
from paceline.store.port import Begun, RunStore, TurnClaim, TurnWrite

POLL_SECONDS = 0.05


async def main(pattern: str) -> None:
    store = connect(os.environ["PACELINE_REDIS_URL"])
    try:
        while True:
            await _end_all(store, pattern)
            await asyncio.sleep(POLL_SECONDS)
    finally:
        await store.aclose()


async def _end_all(store: RunStore, pattern: str) -> None:
    for batch in await store.batches(limit=10):
        run_ids = await store.batch_rows(batch_tag(batch.name), start=0, count=1000)
        for record in await store.runs(run_ids):
            if record and record.run.state is State.QUEUED:
                begun = await store.begin(record.run.run_id, 1, a_claim())
                if isinstance(begun, Begun):
                    await _end(store, begun, pattern)


async def _end(store: RunStore, begun: Begun, pattern: str) -> None:
    held = TurnClaim(run_id=begun.run.run_id, turn=1, fence=begun.run.fence)
    is_bad = bool(pattern) and pattern in begun.fragments[0].decode()
    outcome = (
        Outcome(reason=StopReason.MAX_TURNS, message="no answer after 1 turns (limits.turns)")
        if is_bad
        else Outcome(reason=StopReason.FINAL_ANSWER, answer="Ada")
    )
    await store.finish(held, TurnWrite(spent=SPENT, ledger=(model_called(),)), outcome)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else ""))
