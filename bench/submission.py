"""What it takes to submit many rows: seconds, memory of the producer, bytes of the record."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from redis import Redis

from paceline.core.agent import Agent
from paceline.producer import Fleet
from paceline.producer.agent_file import AgentFile
from paceline.producer.row_source import row_source
from paceline.producer.rows import check_rows

from .stage import valkey

_AGENT = AgentFile(agent=Agent(name="bench", model="claude-sonnet-5-5"), template=None)
_MB = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionCost:
    """Of so many rows; the process that measures must have done nothing else before. MB are millions of bytes."""

    rows: int
    check_seconds: float
    check_mb: float
    """What checking all rows took beyond what the process held before."""
    submit_seconds: float
    most_mb: float
    """The most that the producer's process held, its code included."""
    bytes_a_run: float
    """What the server holds more for each run: its record, its places in the indexes, and its message."""

    def told(self) -> str:
        """For people."""
        return (
            f"{self.rows} rows: checked in {self.check_seconds:.1f} s (+{self.check_mb:.0f} MB), submitted in "
            f"{self.submit_seconds:.1f} s, at most {self.most_mb:.0f} MB, {self.bytes_a_run:.0f} bytes a run"
        )


def measure_submission(rows: int) -> SubmissionCost:
    """Submit so many rows to a server of their own, and to no worker."""
    with tempfile.TemporaryDirectory() as folder, valkey(Path(folder)) as port:
        return _measure(f"redis://127.0.0.1:{port}/0", Path(folder, "rows.jsonl"), rows)


def _measure(url: str, file: Path, rows: int) -> SubmissionCost:
    with Redis.from_url(url) as redis:
        _write_rows(file, rows)
        with Fleet(url) as fleet, row_source(file) as source:
            fleet.submit(_AGENT, [{"id": "first", "prompt": "x"}], batch="first")  # connections, imports
            before_mb, before_bytes, began = _most_mb(), _used_bytes(redis), time.monotonic()
            check_rows(source, None)
            checked, check_mb = time.monotonic(), _most_mb() - before_mb
            fleet.submit_checked(_AGENT, source, batch="many")
            submitted = time.monotonic()
        return SubmissionCost(
            rows=rows,
            check_seconds=checked - began,
            check_mb=check_mb,
            submit_seconds=submitted - checked,
            most_mb=_most_mb(),
            bytes_a_run=(_used_bytes(redis) - before_bytes) / rows,
        )


def measure_check(rows: int) -> float:
    """MB that checking so many rows takes beyond what the process held before."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.jsonl")
        _write_rows(file, rows)
        with row_source([{"id": "first", "prompt": "x"}]) as source:
            check_rows(source, None)
        before_mb = _most_mb()
        with row_source(file) as source:
            check_rows(source, None)
        return _most_mb() - before_mb


def _write_rows(file: Path, rows: int) -> None:
    with file.open("w", encoding="utf-8") as lines:
        for number in range(rows):
            row = {"id": str(number), "prompt": f"Which on-call rotation owns service {number}?"}
            lines.write(json.dumps(row) + "\n")


def _most_mb() -> float:
    # Not getrusage: its maximum begins with that of the process that started this one.
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / _MB


def _used_bytes(redis: Redis) -> int:
    return int(redis.info("memory")["used_memory"])
