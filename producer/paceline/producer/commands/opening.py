"""Which record a command talks to: PACELINE_REDIS_URL's, or the one that `paceline run` keeps in this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.producer.fleet import Fleet


@contextmanager
def opened_fleet() -> Iterator[Fleet]:
    """The fleet to talk to. Raises UsageError if there is none, InfrastructureError if it does not answer."""
    from paceline.producer.embedded import FOLDER, embedded_valkey, running_server
    from paceline.producer.fleet import Fleet
    from paceline.producer.settings import ProducerSettings

    settings = ProducerSettings.from_environment(os.environ)
    beside = None if settings.redis_url else running_server(FOLDER)
    if settings.redis_url or beside or not FOLDER.is_dir():
        with Fleet(settings=replace(settings, redis_url=settings.redis_url or beside)) as fleet:
            fleet.problems()  # a server that cannot be reached is told of once, and well
            yield fleet
    else:
        with embedded_valkey(FOLDER) as url, Fleet(settings=replace(settings, redis_url=url)) as fleet:
            yield fleet
