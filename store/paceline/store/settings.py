"""Settings: read once from a mapping such as os.environ, each field from `PACELINE_<NAME>`, bad values told together.

What the producer and the workers of one fleet must read alike is here; each adds what it alone needs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from paceline.core.errors import UsageError
from paceline.core.log_lines import LogFormat, read_log_format

from .durability import Durability, read_durability


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSettings:
    """Where the record and the broker are, and what is agreed about them."""

    redis_url: str | None = None
    broker_url: str | None = None
    """None: the record's Redis is the broker too."""
    prefix: str = "paceline"
    tools_path: tuple[Path, ...] = ()
    """Folders with tool modules, in the variable separated as in PATH."""
    claim_seconds: float = 30.0
    """After this long without a sign of life a worker is gone."""
    retention_seconds: float = 7 * 86_400.0
    """How long a run is kept after its end."""
    durability: Durability = Durability.FAST
    """What is waited for before a call with an effect starts: see docs/guarantees.md."""
    log_format: LogFormat = LogFormat.AUTO
    """How the log lines of workers and of the exporter look."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """The settings in these variables. UsageError names every variable that has a bad value."""
        values: dict[str, Any] = {}
        problems: list[str] = []
        for field in fields(cls):
            name = f"PACELINE_{field.name.upper()}"
            if environment.get(name):
                try:
                    values[field.name] = _READERS[type(field.default)](environment[name])
                except ValueError as error:
                    problems.append(f"{name}={environment[name]!r}: {error}")
        if problems:
            raise UsageError("\n".join(problems))
        return cls(**values)


def _positive_int(text: str) -> int:
    if not text.strip().isdigit() or int(text) == 0:
        raise ValueError("it must be a whole number of at least 1")
    return int(text)


def _positive_seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError("it must be a number of seconds above 0")
    return value


def _folders(text: str) -> tuple[Path, ...]:
    return tuple(Path(folder) for folder in text.split(os.pathsep) if folder)


_READERS: Mapping[type, Callable[[str], Any]] = {
    str: str,
    type(None): str,
    int: _positive_int,
    float: _positive_seconds,
    tuple: _folders,
    Durability: read_durability,
    LogFormat: read_log_format,
}
"""By the type of a field's default."""
