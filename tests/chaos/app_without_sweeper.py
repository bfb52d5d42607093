"""A mutant: the worker's Celery app without its sweeper. What is lost stays lost, and the checker must say so."""

from __future__ import annotations

import asyncio
import os

from paceline.worker.app import create_app
from paceline.worker.settings import Settings
from paceline.worker.sweeper import Sweeper


async def idle(_sweeper: Sweeper) -> None:
    """What it does in place of sweeping."""
    await asyncio.Event().wait()


Sweeper.sweep_forever = idle  # type: ignore[method-assign,assignment]  # that is the mutation
app = create_app(Settings.from_environment(os.environ))
