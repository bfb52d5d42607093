"""`paceline worker` and `paceline sim`, which become the process they start, and `paceline exporter`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

_LOG_LEVELS = ("debug", "info", "warning", "error")


def worker(
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            "-c",
            min=1,
            envvar="PACELINE_CONCURRENCY",
            show_default="64; with --tools-only one a processor",
            help="turns and calls in flight at once",
        ),
    ] = None,
    queues: Annotated[
        str, typer.Option(envvar="PACELINE_QUEUES", help="which queues to serve, the first of them first")
    ] = "paceline.tools,paceline.turns,paceline.starts",
    tools_only: Annotated[
        bool,
        typer.Option(
            "--tools-only",
            envvar="PACELINE_TOOLS_ONLY",
            help="run tools and nothing else, each call in a process with limits of memory and time",
        ),
    ] = False,
    log_level: Annotated[str, typer.Option(envvar="PACELINE_LOG_LEVEL", help="debug, info, warning, error")] = "info",
) -> None:
    """Serve a fleet: take turns and run tools until told to stop. Ctrl-C or SIGTERM lets running work finish."""
    from paceline.core.errors import UsageError
    from paceline.core.wire import Queue
    from paceline.producer.local_workers import worker_command

    if not os.environ.get("PACELINE_REDIS_URL"):
        raise UsageError("there is no fleet to join: set PACELINE_REDIS_URL=redis://host:6379/0")
    served = [name.strip() for name in queues.split(",")]
    _refuse_unknown("--queues", served, list(Queue))
    _refuse_unknown("--log-level", [log_level.lower()], _LOG_LEVELS)
    slots = concurrency or (os.cpu_count() or 1 if tools_only else 64)
    os.environ["PACELINE_CONCURRENCY"] = str(slots)
    os.environ.setdefault("PACELINE_TOOLS_PATH", str(Path.cwd()))
    if tools_only:
        os.environ["PACELINE_POOL"] = "prefork"
    command = worker_command(
        slots,
        queues=Queue.TOOLS if tools_only else ",".join(served),
        log_level=log_level.upper(),
    )
    os.execv(command[0], command)


def _refuse_unknown(option: str, given: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        from paceline.core.errors import UsageError

        raise UsageError(f"{option}: there is no {unknown[0]!r}: give one of {', '.join(known)}")


def exporter(
    host: Annotated[str, typer.Option(envvar="PACELINE_EXPORTER_HOST", help="where to listen")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, envvar="PACELINE_EXPORTER_PORT", help="0: any free one")
    ] = 9464,
    every_seconds: Annotated[
        float,
        typer.Option("--every", min=0.1, envvar="PACELINE_EXPORTER_EVERY", help="seconds between two readings"),
    ] = 5.0,
) -> None:
    """Serve the fleet's metrics to Prometheus at /metrics. One for each fleet: two would count everything twice."""
    import asyncio

    from paceline.core.log_lines import formatter
    from paceline.producer.exporter import serve
    from paceline.producer.settings import ProducerSettings

    settings = ProducerSettings.from_environment(os.environ)
    to_stderr = logging.StreamHandler()
    to_stderr.setFormatter(formatter(settings.log_format, is_terminal=sys.stderr.isatty()))
    logging.basicConfig(level=logging.INFO, handlers=[to_stderr])
    asyncio.run(serve(settings, host=host, port=port, every_seconds=every_seconds))


def sim(
    playbook: Annotated[Path, typer.Option(envvar="PACELINE_PLAYBOOK", help="YAML file with the answers to give")],
    host: Annotated[
        str, typer.Option(envvar="PACELINE_SIM_HOST", help="address to listen at; in a container 0.0.0.0")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, envvar="PACELINE_SIM_PORT", help="0: any free one")] = 0,
    journal: Annotated[
        Path | None, typer.Option(envvar="PACELINE_SIM_JOURNAL", help="write each request and verdict to this file")
    ] = None,
) -> None:
    """A strict stand-in for the Messages API; prints its URL as JSON, for ANTHROPIC_BASE_URL."""
    command = [sys.executable, "-P", "-m", "paceline.sim", "--playbook", str(playbook)]
    command += ["--host", host, "--port", str(port)]
    os.execv(command[0], [*command, "--journal", str(journal)] if journal else command)
