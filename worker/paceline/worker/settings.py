"""What the operator of a worker can set."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.store.settings import SharedSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(SharedSettings):
    """Each field is read from `PACELINE_<NAME>`."""

    redis_url: str = "redis://127.0.0.1:6379/0"
    pool: str = "threads"
    """Celery's pool: `threads`, or `prefork`, where each task has a process for itself that a tool may take down."""
    concurrency: int = 64
    """Turns and tool calls that one process has in flight: each costs an idle thread."""
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
    health_file: str | None = None
    """A file that the worker touches for as long as its loops turn."""
    health_seconds: float = 15.0
    """A loop that has not turned for so long is stuck."""

    @property
    def broker(self) -> str:
        return self.broker_url or self.redis_url
