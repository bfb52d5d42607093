"""A worker of an earlier version beside one of today, on one record: runs go from one to the other as they come."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from integration.fleet import FleetPlan, RealFleet, wait_until

from paceline.core.ids import Incarnation
from paceline.core.ledger import ModelCalled
from paceline.producer.children import Child
from paceline.producer.fleet import Batch
from paceline.sim import Answer, Call, Request

EARLIER = "67e3f7713cdfbe5ea1ae72a9d9da3556dbfa01e7"
"""Of the version that `tests/golden/record-1.json` was written by."""
PARTS = ("core", "store", "tools", "worker", "producer")
ROOT = Path(__file__).parents[2]
RUNS, TURNS = 16, 4


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the earlier version. Where its history is not at hand, what needs it is left out."""
    git = shutil.which("git") or pytest.skip("there is no git here to get it by")
    archive = subprocess.run([git, "-C", ROOT, "archive", EARLIER, *PARTS], capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the history of this clone does not reach back to {EARLIER[:10]}")
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tree:
        tree.extractall(folder, filter="data")
    code = "from paceline.worker import turn; print(turn.__file__)"
    found = subprocess.run(
        [sys.executable, "-P", "-c", code], env=os.environ | path_of(folder), capture_output=True, check=True, text=True
    )
    assert Path(found.stdout.strip()).is_relative_to(folder), "its code comes before today's"
    return folder


def path_of(earlier: Path) -> Mapping[str, str]:
    """What a worker of the earlier version has in its environment."""
    return {"PYTHONPATH": os.pathsep.join(map(str, (*(earlier / part for part in PARTS), ROOT / "tests")))}


@dataclass(slots=True, kw_only=True)
class Pair:
    """A fleet of two workers: one of an earlier version, one of today."""

    real: RealFleet
    path: Mapping[str, str]
    workers: dict[str, Child] = field(default_factory=dict)

    def complete(self) -> None:
        """Start what is missing of the two."""
        for which, environment in {"earlier": self.path, "today": {}}.items():
            if which not in self.workers or not self.workers[which].is_alive:
                self.workers[which] = self.real.start_worker(environment)
        self.real.wait_working(2)

    def turns_of(self, batch: Batch) -> Counter[Incarnation]:
        """How many turns of the batch each worker process has taken."""
        ledgers = [self.real.fleet.show(record.run.run_id).ledger for record in batch.records()]
        return Counter(
            Incarnation(entry.worker) for ledger in ledgers for entry in ledger if isinstance(entry, ModelCalled)
        )

    def check(self, batch: Batch) -> None:
        """Every run has its answer, and nothing was paid twice."""
        assert self.real.wait_ended(batch).counts.reasons == {"final_answer": RUNS}
        assert self.real.simulator.journal.rejected() == []
        paid = Counter(effect.key for effect in self.real.effects() if effect.tool == "pay")
        assert set(paid.values()) == {1}


def working(request: Request) -> Answer:
    if request.turn == TURNS:
        return Answer(text="done", delay_s=0.1)
    calls = [Call(tool=tool, input={"what": f"{request.turn}"}) for tool in ("pay", "fetch", "look", "put")]
    return Answer(calls=calls, delay_s=0.1)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, earlier: Path) -> Iterator[Pair]:
    with RealFleet(tmp_path_factory.mktemp("pair"), working, FleetPlan(workers=0, claim_seconds=2.0)) as real:
        yield Pair(real=real, path=path_of(earlier))


def test_workers_of_two_versions_take_the_turns_of_the_same_runs(pair: Pair) -> None:
    pair.complete()
    batch = pair.real.submit(RUNS, batch="both")
    pair.check(batch)
    taken = pair.turns_of(batch)
    for worker in pair.workers.values():
        share = sum(taken[incarnation] for incarnation in pair.real.incarnations(worker)) / taken.total()
        assert share > 0.2, taken
    assert len(pair.real.simulator.journal) == RUNS * TURNS


@pytest.mark.parametrize("which", ["earlier", "today"])
def test_what_one_version_leaves_behind_when_it_is_killed_the_other_takes_up(pair: Pair, which: str) -> None:
    pair.complete()
    asked = len(pair.real.simulator.journal)
    batch = pair.real.submit(RUNS, batch=which)
    wait_until(lambda: len(pair.real.simulator.journal) > asked + RUNS, "runs are under way")
    pair.real.kill(pair.workers[which])
    pair.check(batch)
