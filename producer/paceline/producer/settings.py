"""What the producer reads from the environment: once, at the edge."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.store.settings import SharedSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(SharedSettings):
    """No more than what it must read as the workers do."""
