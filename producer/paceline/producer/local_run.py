"""`paceline run`: the main job, whole, on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from paceline.core.errors import UsageError
from paceline.store.port import BatchCounts

from .agent_file import AgentFile, load_agent_file
from .embedded import embedded_valkey
from .fleet import Batch, BatchStatus, Fleet, default_batch_name
from .local_simulator import local_simulator
from .local_workers import LocalWorkers, worker_command
from .progress import counted
from .results_file import refuse_unwritable, write_results
from .row_source import RowSource, row_source
from .rows import check_rows
from .screen import Screen
from .settings import ProducerSettings

HOME = Path(".paceline")
LOGS = HOME / "logs"
_EMBEDDED_CLAIM_SECONDS = 5.0
"""On one machine a worker that says nothing for so long is dead, and nobody should wait 30 seconds for that."""
_EMBEDDED_SWEEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What is to be run, and how."""

    agent: Path
    input: str
    output: Path | None = None
    workers: int = 2
    concurrency: int = 64
    simulate: Path | None = None
    batch: str | None = None
    tenant: str = "default"
    budget_usd: float | None = None
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """How it went, and where the results are."""

    status: BatchStatus
    before: BatchCounts | None
    """What was on record of the batch when the command began; None: nothing."""
    output: Path
    elapsed_seconds: float


def run_locally(
    options: RunOptions,
    environ: Mapping[str, str],
    screen: Screen,
    *,
    worker_command: Callable[[int], Sequence[str]] = worker_command,
) -> RunReport:
    """Check, submit, work, write the results. The same again goes on where it stopped.

    `worker_command` says how a worker of so many slots is started.

    Raises UsageError before anything is started or submitted if agent, rows or options are wrong.
    """
    begun = time.monotonic()
    settings = ProducerSettings.from_environment(environ)
    file = load_agent_file(options.agent, search_paths=settings.tools_path)
    refuse_without_key(options, environ)
    with row_source(options.input) as source, ExitStack() as stack:
        rows = check_rows(source, file.template)
        name = options.batch or default_batch_name(file, source)
        settings = stack.enter_context(_with_record(settings))
        fleet = stack.enter_context(Fleet(settings=settings))
        output = _output(options, fleet, name)
        refuse_unwritable(output)
        for problem in fleet.check():
            screen.say(f"warning: {problem}")
        for note in file.notes:
            screen.say(f"note: {note}")
        before = fleet.batch(name).status().counts if fleet.has_batch(name) else None
        simulator = stack.enter_context(_simulator(options))
        workers = stack.enter_context(
            LocalWorkers(
                count=options.workers,
                command=worker_command(options.concurrency),
                environment=worker_environment(options, settings, environ, simulator=simulator),
                log_folder=LOGS,
                say=screen.say,
            )
        )
        batch = _submit(fleet, file, source, options, name, rows, screen)
        status = _watch(batch, workers, screen)
        write_results(output, batch.results())
        return RunReport(status=status, before=before, output=output, elapsed_seconds=time.monotonic() - begun)


def refuse_without_key(options: RunOptions, environ: Mapping[str, str]) -> None:
    """Raises UsageError if the workers would have no key for the model."""
    names = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
    if options.workers and options.simulate is None and not any(environ.get(name) for name in names):
        raise UsageError(
            "there is no key for the model: set ANTHROPIC_API_KEY, or add --simulate PLAYBOOK to run against the "
            "simulator"
        )


@contextmanager
def _with_record(settings: ProducerSettings) -> Iterator[ProducerSettings]:
    if settings.redis_url:
        yield settings
        return
    with embedded_valkey(HOME / "valkey") as url:
        yield replace(settings, redis_url=url, broker_url=None, claim_seconds=_EMBEDDED_CLAIM_SECONDS)


def _output(options: RunOptions, fleet: Fleet, name: str) -> Path:
    if options.output is None:
        return HOME / "results" / f"{name}.jsonl"
    if options.output.exists() and not options.force and not fleet.has_batch(name):
        raise UsageError(
            f"{options.output} exists, and is not of this batch ({name}): name another --output, or add --force to "
            "write over it"
        )
    return options.output


@contextmanager
def _simulator(options: RunOptions) -> Iterator[str | None]:
    if options.simulate is None:
        yield None
        return
    with local_simulator(options.simulate, log_folder=LOGS) as url:
        yield url


def worker_environment(
    options: RunOptions, settings: ProducerSettings, environ: Mapping[str, str], *, simulator: str | None
) -> dict[str, str]:
    """What the workers are told: where the record is, where tools are, and, with a simulator, where the model is."""
    folders = (options.agent.parent, Path.cwd(), *settings.tools_path)
    tools = dict.fromkeys(folder.resolve() for folder in folders)
    told = {
        **environ,
        "PACELINE_REDIS_URL": settings.redis_url or "",
        "PACELINE_BROKER_URL": settings.broker_url or "",
        "PACELINE_CONCURRENCY": str(options.concurrency),
        "PACELINE_TOOLS_PATH": os.pathsep.join(str(folder) for folder in tools),
    }
    if settings.redis_url != environ.get("PACELINE_REDIS_URL"):
        told.setdefault("PACELINE_SWEEP_SECONDS", f"{_EMBEDDED_SWEEP_SECONDS:g}")
        told["PACELINE_CLAIM_SECONDS"] = f"{settings.claim_seconds:g}"
    if simulator:
        told.pop("ANTHROPIC_AUTH_TOKEN", None)
        told |= {"ANTHROPIC_BASE_URL": simulator, "ANTHROPIC_API_KEY": "simulated"}
    return told


def _submit(
    fleet: Fleet, file: AgentFile, source: RowSource, options: RunOptions, name: str, rows: int, screen: Screen
) -> Batch:
    batch = fleet.submit_checked(file, source, batch=name, tenant=options.tenant, budget_usd=options.budget_usd)
    known = batch.submission.existed if batch.submission else 0
    done = batch.status().counts
    went_on = (
        f"; {known} of them {'is' if known == 1 else 'are'} on record already, {done.runs - done.active} done"
        if known
        else ""
    )
    screen.say(f"batch {name}: {counted(rows, 'row')}{went_on}")
    if batch.submission and batch.submission.unannounced:
        screen.say(f"warning: {batch.submission.unannounced}")
    return batch


def _watch(batch: Batch, workers: LocalWorkers, screen: Screen) -> BatchStatus:
    try:
        return batch.wait(on_status=_and(screen.show, workers.replace_dead))
    except KeyboardInterrupt:
        screen.say(
            f"interrupted: batch {batch.name} lives on, and the same command goes on where it stopped. Workers finish "
            "what they are at (Ctrl-C again ends them at once)"
        )
        raise


def _and(show: Callable[[BatchStatus], None], replace_dead: Callable[[], None]) -> Callable[[BatchStatus], None]:
    def on_status(status: BatchStatus) -> None:
        show(status)
        if not status.is_done:
            replace_dead()

    return on_status
