"""The checks of `paceline doctor`: each says what it found, and how to mend what is not well."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from paceline.core.broker_address import broker_address
from paceline.core.errors import PacelineError
from paceline.core.shown_address import without_password

from .agent_file import load_agent_file
from .embedded import FOLDER, running_server
from .fleet import Fleet
from .progress import duration
from .publish import KombuPublisher
from .settings import ProducerSettings

_PACKAGES = ("paceline", "anthropic", "celery", "kombu", "redis", "pydantic", "opentelemetry-sdk")
_OLDEST_PYTHON = (3, 11)
_CLOCK_WARN_SECONDS = 2.0
_MEND_AGENT = (
    "mend what is named above; a tool's module is looked for beside the agent file, in the working folder, and in the "
    "folders that PACELINE_TOOLS_PATH names"
)


class Mark(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    mark: Mark
    found: str
    fix: str = ""


def examine(environ: Mapping[str, str], *, agent: Path | None = None) -> Iterator[Check]:
    """All checks, one after the other; none of them raises, changes anything or prints a secret."""
    yield _python()
    yield _packages()
    yield _key(environ)
    try:
        settings = ProducerSettings.from_environment(environ)
    except PacelineError as error:
        yield Check(name="settings", mark=Mark.FAIL, found=str(error), fix="set the variables named above")
        return
    yield from _record(settings)
    if agent:
        yield _agent(agent, settings)


def _python() -> Check:
    is_fit = sys.version_info >= _OLDEST_PYTHON
    return Check(
        name="python",
        mark=Mark.OK if is_fit else Mark.FAIL,
        found=f"{platform.python_version()} at {sys.executable}",
        fix="" if is_fit else "use Python 3.11 or newer",
    )


def _packages() -> Check:
    found: dict[str, str | None] = {name: _version(name) for name in _PACKAGES}
    missing = [name for name, version in found.items() if version is None]
    return Check(
        name="packages",
        mark=Mark.FAIL if missing else Mark.OK,
        found=", ".join(f"{name} {version or 'missing'}" for name, version in found.items()),
        fix="pip install --force-reinstall paceline" if missing else "",
    )


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _key(environ: Mapping[str, str]) -> Check:
    found = [name for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN") if environ.get(name)]
    return Check(
        name="key",
        mark=Mark.OK if found else Mark.WARN,
        found=f"{found[0]} is set" if found else "no key for the model in this environment",
        fix="" if found else "set ANTHROPIC_API_KEY where the workers run, or use --simulate PLAYBOOK",
    )


def _record(settings: ProducerSettings) -> Iterator[Check]:
    url = settings.redis_url or running_server(FOLDER)
    if url is None:
        yield Check(
            name="redis",
            mark=Mark.WARN,
            found="PACELINE_REDIS_URL is not set: `paceline run` will start an embedded Valkey under .paceline/",
            fix="set PACELINE_REDIS_URL to use a fleet",
        )
        return
    try:
        with closing(Fleet(settings=replace(settings, redis_url=url))) as fleet:
            yield from _reachable(fleet, settings)
    except PacelineError as error:
        yield Check(name="redis", mark=Mark.FAIL, found=str(error), fix="mend the server or PACELINE_REDIS_URL")


def _reachable(fleet: Fleet, settings: ProducerSettings) -> Iterator[Check]:
    store: Any = fleet.store
    problems = fleet.problems()
    info = fleet.loop.run(store.redis.info())
    marks = [Mark(problem.severity.value) for problem in problems]
    worst = max(marks, key=list(Mark).index, default=Mark.OK)
    yield Check(name="redis", mark=worst, found=_server(fleet.url, info))
    for problem in problems:
        yield Check(name="redis", mark=Mark(problem.severity.value), found=problem.what, fix=problem.fix)
    yield _clock(fleet.now_ms() / 1000)
    yield _broker(fleet.broker_url, settings.prefix)
    again = "run the same `paceline run ...` again"
    yield from _workers(fleet, again if settings.redis_url is None else "start some with `paceline worker`")


def _server(url: str, info: Mapping[str, Any]) -> str:
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = info.get("valkey_version") or info.get("redis_version")
    aof = "on" if info.get("aof_enabled") else "off"
    policy = info.get("maxmemory_policy")
    memory = (
        f"{info.get('used_memory_human')} of {info.get('maxmemory_human') if info.get('maxmemory') else 'no limit'}"
    )
    return f"{name} {version} at {without_password(url)}, append-only file {aof}, {policy}, memory {memory}"


def _clock(record_seconds: float) -> Check:
    apart = abs(time.time() - record_seconds)
    is_fit = apart < _CLOCK_WARN_SECONDS
    return Check(
        name="clock",
        mark=Mark.OK if is_fit else Mark.WARN,
        found=f"{duration(apart)} from the server's",
        fix="" if is_fit else "set both clocks by NTP: traces and reports mix times of both",
    )


def _broker(url: str, prefix: str) -> Check:
    address = broker_address(url, prefix=prefix)
    publisher = KombuPublisher(address.url, address.transport_options)
    try:
        publisher.publish_turns([])
    except PacelineError as error:
        return Check(name="broker", mark=Mark.FAIL, found=str(error), fix="mend the broker or PACELINE_BROKER_URL")
    finally:
        publisher.close()
    return Check(name="broker", mark=Mark.OK, found=f"{without_password(url)} takes messages")


def _workers(fleet: Fleet, get_workers: str) -> Iterator[Check]:
    workers = fleet.workers()
    slots, busy = sum(worker.concurrency for worker in workers), sum(worker.in_flight for worker in workers)
    yield Check(
        name="workers",
        mark=Mark.OK if workers else Mark.WARN,
        found=f"{len(workers)} alive, {busy} of {slots} slots taken" if workers else "none is alive",
        fix="" if workers else get_workers,
    )
    for worker in workers:
        for problem in worker.problems:
            yield Check(name=f"worker {worker.host}:{worker.pid}", mark=Mark.WARN, found=problem, fix="see its log")


def _agent(path: Path, settings: ProducerSettings) -> Check:
    try:
        file = load_agent_file(path, search_paths=settings.tools_path)
    except PacelineError as error:
        return Check(name="agent", mark=Mark.FAIL, found=str(error), fix=_MEND_AGENT)
    agent = file.agent
    tools = ", ".join(tool.name for tool in agent.tools) or "no tools"
    return Check(name="agent", mark=Mark.OK, found="; ".join([f"{agent.name} on {agent.model}: {tools}", *file.notes]))
