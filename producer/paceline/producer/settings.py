"""What the producer reads from the environment: once, at the edge."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.core.errors import UsageError
from paceline.store.durability import Durability, read_durability

WEEK_SECONDS = 7 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Where the record and the broker are, and where tools are looked for."""

    redis_url: str | None
    broker_url: str | None
    prefix: str
    claim_seconds: float
    retention_seconds: float
    tools_path: tuple[Path, ...]
    durability: Durability = Durability.FAST

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> ProducerSettings:
        """Raises UsageError that names each bad value."""
        problems: list[str] = []
        settings = cls(
            redis_url=environ.get("PACELINE_REDIS_URL") or None,
            broker_url=environ.get("PACELINE_BROKER_URL") or None,
            prefix=environ.get("PACELINE_PREFIX") or "paceline",
            claim_seconds=_seconds(environ, "PACELINE_CLAIM_SECONDS", 30.0, problems),
            retention_seconds=_seconds(environ, "PACELINE_RETENTION_SECONDS", WEEK_SECONDS, problems),
            tools_path=tuple(Path(p) for p in environ.get("PACELINE_TOOLS_PATH", "").split(os.pathsep) if p),
            durability=_durability(environ, problems),
        )
        if problems:
            raise UsageError("\n".join(problems))
        return settings


def _seconds(environ: Mapping[str, str], name: str, default: float, problems: list[str]) -> float:
    text = environ.get(name)
    try:
        value = float(text) if text else default
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        problems.append(f"{name}={text!r}: expected a number of seconds above 0")
    return value


def _durability(environ: Mapping[str, str], problems: list[str]) -> Durability:
    text = environ.get("PACELINE_DURABILITY") or Durability.FAST
    try:
        return read_durability(text)
    except ValueError as error:
        problems.append(f"PACELINE_DURABILITY={text!r}: {error}")
        return Durability.FAST
