"""A process may die before and after each of its effects on the outside: nothing is lost by that, nothing doubled."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from faults import dying_producer, dying_worker
from faults.stage import CLAIM_SECONDS, report_of
from integration.fleet import FleetPlan, RealFleet

from paceline.sim import Answer, Call, Request


def script(request: Request) -> Answer:
    """Each run is at something that takes longer than its first worker has; a later one gets an answer at once."""
    match request.turn, request.last_text:
        case 1, dying_worker.THINKS:
            return Answer(text="done", delay_s=2.0)
        case 1, dying_worker.FETCHES:
            return Answer(calls=[Call(tool="fetch", input={"what": "it", "seconds": 2.0})])
        case 1, dying_worker.PAYS:
            return Answer(calls=[Call(tool="pay", input={"what": "it", "seconds": 2.0})])
        case _:
            return Answer(text="done")


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealFleet]:
    """A fleet whose workers come when all others are dead."""
    with RealFleet(tmp_path, script, FleetPlan(workers=0, concurrency=64, claim_seconds=CLAIM_SECONDS)) as real:
        yield real


def die(real: RealFleet, module: str, moments: Sequence[str]) -> Mapping[str, str]:
    """Let processes die at these moments. Answers with the batch that each worked on, and its moment."""
    batches = {f"{module}-{number}": moment for number, moment in enumerate(moments)}
    command = [sys.executable, "-P", "-m", f"faults.{module}", json.dumps(batches)]
    died = subprocess.run(command, env=real.environment(), capture_output=True, text=True, timeout=120)
    assert died.returncode == 0, died.stderr
    return batches


def around(*effects: str) -> list[str]:
    return [f"{side} {effect}" for effect in effects for side in ("before", "after")]


def test_a_producer_may_die_at_any_effect_of_a_submission_and_submit_again(real: RealFleet) -> None:
    rounds = around("store.submit", "publisher.publish_turns", "store.submit 2", "publisher.publish_turns 2")
    names = die(real, "dying_producer", [*around("store.put_agent", "store.open_batch"), *rounds])
    batches = [real.fleet.submit(dying_producer.AGENT, dying_producer.ROWS, batch=name) for name in names]
    real.start_worker()
    for batch in batches:
        assert real.wait_ended(batch).counts.reasons == {"final_answer": len(dying_producer.ROWS)}
    runs = [record.run.run_id for batch in batches for record in batch.records()]
    asked = [request.run for request in real.simulator.journal]
    assert sorted(filter(None, asked)) == sorted(runs), "each run called the model once"


def test_a_worker_may_die_at_any_effect_of_its_end(real: RealFleet) -> None:
    effects = (
        "store.recover",
        "store.recover_call",
        "store.finish_call",
        "broker.send",
        "broker.send 2",
        "store.retire",
    )
    died = die(real, "dying_worker", around(*effects))
    real.start_worker()
    for name, moment in died.items():
        report = report_of(real, real.fleet.batch(name))
        assert report.violations == {}, (moment, report.table())
        assert report.ends == {"final_answer": len(dying_worker.ROWS)}, (moment, report.table())
        assert report.billed_again <= report.counted_lost, (moment, report.table())
