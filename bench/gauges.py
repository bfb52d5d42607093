"""What is read off processes and the server: CPU from /proc, commands and bytes from INFO, sizes key by key."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis import Redis

from paceline.core.ids import RunId
from paceline.store.keys import Keys

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_KEYS_OF_OTHERS = ("due", "counts", "metrics")
"""Keys among those of a run that are shared by many runs."""


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and of all its children, living and dead."""
    user, system, dead_user, dead_system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
    own = (int(user) + int(system) + int(dead_user) + int(dead_system)) / _TICKS_PER_SECOND
    return own + sum(cpu_seconds(child) for child in _children(pid))


def _children(pid: int) -> list[int]:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for thread in threads for child in (thread / "children").read_text().split()]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReading:
    """Counters of the server since its start. `round_trips` are reads of requests from sockets: a pipeline is one."""

    commands: Mapping[str, int] = field(default_factory=dict)
    round_trips: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    aof_bytes: int = 0

    @classmethod
    def of(cls, redis: Redis) -> ServerReading:
        info: dict[str, Any] = redis.info("everything")
        return cls(
            commands={
                name.removeprefix("cmdstat_"): int(value["calls"])
                for name, value in info.items()
                if name.startswith("cmdstat_")
            },
            round_trips=int(info["total_reads_processed"]),
            bytes_in=int(info["total_net_input_bytes"]),
            bytes_out=int(info["total_net_output_bytes"]),
            aof_bytes=int(info["aof_current_size"]),
        )

    def since(self, earlier: ServerReading) -> ServerReading:
        """What was counted between two readings."""
        counted = {name: calls - earlier.commands.get(name, 0) for name, calls in self.commands.items()}
        return ServerReading(
            commands={name: calls for name, calls in counted.items() if calls},
            round_trips=self.round_trips - earlier.round_trips,
            bytes_in=self.bytes_in - earlier.bytes_in,
            bytes_out=self.bytes_out - earlier.bytes_out,
            aof_bytes=self.aof_bytes - earlier.aof_bytes,
        )


def stored_bytes(redis: Redis, keys: Keys, runs: Iterable[RunId]) -> int:
    """Memory that the server holds for these runs, key by key; what runs share is left out."""
    with redis.pipeline(transaction=False) as pipe:
        for run in runs:
            for key in keys.of_run(run):
                if key.split(":")[2] not in _KEYS_OF_OTHERS:
                    pipe.memory_usage(key, samples=0)
        return sum(size or 0 for size in pipe.execute())
