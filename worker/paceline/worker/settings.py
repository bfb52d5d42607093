"""What an operator can set, read once from a mapping such as os.environ; all bad values are reported together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from paceline.core.errors import UsageError
from paceline.store.durability import Durability, read_durability


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Each field is read from `PACELINE_<NAME>`."""

    redis_url: str = "redis://127.0.0.1:6379/0"
    broker_url: str = ""
    """Empty: the record's Redis is the broker too."""
    prefix: str = "paceline"
    tools_path: str = ""
    """Folders with tool modules, separated as in PATH."""
    pool: str = "threads"
    """Celery's pool: `threads`, or `prefork`, where each task has a process for itself that a tool may take down."""
    concurrency: int = 64
    """Turns and tool calls that one process has in flight: each costs an idle thread."""
    claim_seconds: float = 30.0
    """After this long without a sign of life a worker is gone."""
    sweep_seconds: float = 5.0
    poison_after: int = 3
    """Workers that a run may lose in a row."""
    model_seconds: float = 600.0
    """The longest that one model call may take."""
    grace_seconds: float = 30.0
    """How long running work may go on after SIGTERM."""
    tool_memory_mb: int = 1024
    """What tools may take in a process that was forked for them, beyond what it holds when it starts."""
    tool_process_calls: int = 200
    """Calls after which such a process is replaced."""
    retention_seconds: float = 7 * 86_400.0
    """How long a run is kept after its end."""
    durability: Durability = Durability.FAST
    """What is waited for before a call with an effect starts: see docs/guarantees.md."""

    @property
    def broker(self) -> str:
        return self.broker_url or self.redis_url

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """The settings in these variables. UsageError names every variable that has a bad value."""
        values: dict[str, Any] = {}
        problems: list[str] = []
        for field in fields(cls):
            name = f"PACELINE_{field.name.upper()}"
            if environment.get(name):
                try:
                    values[field.name] = _READERS[type(field.default)](environment[name])
                except ValueError as error:
                    problems.append(f"{name} is {environment[name]!r}: {error}")
        if problems:
            raise UsageError("; ".join(problems))
        return cls(**values)


def _positive_int(text: str) -> int:
    if not text.strip().isdigit() or int(text) == 0:
        raise ValueError("it must be a whole number of at least 1")
    return int(text)


def _positive_float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError("it must be a number of seconds above 0")
    return value


_READERS: Mapping[type, Callable[[str], Any]] = {
    str: str,
    int: _positive_int,
    float: _positive_float,
    Durability: read_durability,
}
