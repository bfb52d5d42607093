"""The three ways to do the work, and what each cost."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from paceline.core.agent import Agent, Limits
from paceline.producer import Batch
from paceline.producer.agent_file import AgentFile
from paceline.store.keys import Keys
from paceline.tools import Registry

from .gauges import ServerReading, cpu_seconds, stored_bytes
from .stage import Crew, Stage, Watching
from .work import MAX_TOKENS, MODEL, SYSTEM, Work

_TIMEOUT_SECONDS = 1800.0
"""A thousand turns each take their time."""


class Variant(StrEnum):
    """What carries the conversations."""

    FLOOR = "floor"
    INLINE = "inline"
    CHORD = "chord"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one round of work cost. `cpu_seconds` by process: server, worker and driver; or floor."""

    work: Work
    cpu_seconds: Mapping[str, float]
    server: ServerReading = field(default_factory=ServerReading)
    stored_bytes: int = 0

    @property
    def cpu_ms_per_turn(self) -> float:
        return 1000 * sum(self.cpu_seconds.values()) / self.work.all_turns


def measure(stage: Stage, variant: Variant, work: Work, *, at_once: int, watching: Watching = Watching.METRICS) -> Cost:
    """Do the work once, and say what it cost."""
    crew = stage.crews[watching]
    match variant:
        case Variant.FLOOR:
            return _floor(stage, work, at_once)
        case Variant.INLINE:
            return _fleet(stage, crew, work, "bench.look_tools:look_inline")
        case Variant.CHORD:
            return _fleet(stage, crew, work, "bench.look_tools:look_in_chord")


def _floor(stage: Stage, work: Work, at_once: int) -> Cost:
    floor = stage.floor
    assert floor.stdin
    assert floor.stdout
    before = cpu_seconds(floor.pid)
    floor.stdin.write(f"{work.runs} {work.turns} {work.calls} {at_once}\n")
    floor.stdin.flush()
    if floor.stdout.readline().strip() != "done":
        raise RuntimeError("the floor broke down; what it said stands above")
    return Cost(work=work, cpu_seconds={"floor": cpu_seconds(floor.pid) - before})


def _fleet(stage: Stage, crew: Crew, work: Work, tool_path: str) -> Cost:
    pids = {"server": stage.server_pid, "worker": crew.worker.pid, "driver": os.getpid()}
    reading, before = ServerReading.of(stage.redis), {name: _own_cpu_seconds(pid) for name, pid in pids.items()}
    batch = _submit(crew, work, tool_path)
    batch.wait(_TIMEOUT_SECONDS, on_status=lambda _: _check_alive(crew))
    after = {name: _own_cpu_seconds(pid) for name, pid in pids.items()}
    server = ServerReading.of(stage.redis).since(reading)
    _check(batch, work)
    return Cost(
        work=work,
        cpu_seconds={name: after[name] - before[name] for name in pids},
        server=server,
        stored_bytes=stored_bytes(stage.redis, Keys(crew.prefix), [record.run.run_id for record in batch.records()]),
    )


def _check_alive(crew: Crew) -> None:
    if crew.worker.poll() is not None:
        raise RuntimeError("the worker ended; what it said stands above")


def _own_cpu_seconds(pid: int) -> float:
    # The other processes are children of the driver; its own clock leaves them out while they live.
    if pid == os.getpid():
        times = os.times()
        return times.user + times.system
    return cpu_seconds(pid)


def _submit(crew: Crew, work: Work, tool_path: str) -> Batch:
    agent = Agent(
        name="bench",
        model=MODEL,
        max_tokens=MAX_TOKENS,
        system=SYSTEM,
        tools=(Registry().load(tool_path).spec,),
        limits=Limits(turns=None, tokens=None, seconds=None, usd=1e6, repeats=None),
    )
    rows = [{"id": str(number), "prompt": work.prompt} for number in range(work.runs)]
    return crew.fleet.submit(AgentFile(agent=agent, template=None), rows, batch=f"bench-{secrets.token_hex(4)}")


def _check(batch: Batch, work: Work) -> None:
    """A benchmark of failures would be a fast one."""
    for result in batch.results():
        calls = work.calls * (work.turns - 1)
        if result.status != "succeeded" or result.turns != work.turns or result.tool_calls != calls:
            raise RuntimeError(f"a run did not do its work: {result}")
