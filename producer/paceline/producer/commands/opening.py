"""Which record a command talks to: PACELINE_REDIS_URL's, or the one that `paceline run` keeps in this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.core.errors import UsageError

if TYPE_CHECKING:
    from paceline.producer.fleet import Fleet


_RUN_AGAIN = "run the same `paceline run ...` again"


def is_embedded() -> bool:
    """Whether commands talk to the record that `paceline run` keeps in this folder."""
    return not os.environ.get("PACELINE_REDIS_URL")


def how_to_get_workers() -> str:
    """What to do where no worker is alive."""
    return _RUN_AGAIN if is_embedded() else "start some with `paceline worker`"


def when_it_goes_on() -> str:
    """When a run goes on that somebody has let go on."""
    return f"with `paceline run`: {_RUN_AGAIN}" if is_embedded() else "within a few seconds, once a worker is alive"


@contextmanager
def opened_fleet(*, must_be_served: bool = False) -> Iterator[Fleet]:
    """The fleet to talk to. Raises UsageError if there is none, InfrastructureError if it does not answer.

    With `must_be_served`, UsageError too for the record of this folder while no `paceline run` is at work on it:
    nothing else serves it, so what is submitted there, or waited for, would never move.
    """
    from paceline.producer.embedded import FOLDER, embedded_valkey, running_server
    from paceline.producer.fleet import Fleet
    from paceline.producer.settings import ProducerSettings

    settings = ProducerSettings.from_environment(os.environ)
    beside = None if settings.redis_url else running_server(FOLDER)
    if settings.redis_url or beside or not FOLDER.is_dir():
        with Fleet(settings=replace(settings, redis_url=settings.redis_url or beside)) as fleet:
            fleet.problems()  # a server that cannot be reached is told of once, and well
            yield fleet
    elif must_be_served:
        raise UsageError(_not_served(FOLDER.parent))
    else:
        with embedded_valkey(FOLDER) as url, Fleet(settings=replace(settings, redis_url=url)) as fleet:
            yield fleet


def _not_served(home: Path) -> str:
    return (
        f"only `paceline run` serves the record in {home}/, and none is at work here: {_RUN_AGAIN}, or set "
        "PACELINE_REDIS_URL=redis://host:6379/0 to use a fleet"
    )
