"""`celery -A paceline.worker.entry worker`: the one module that makes something when imported, as Celery wants it."""

from __future__ import annotations

import os
import sys

from celery import Celery

from paceline.core.errors import UsageError

from .app import create_app
from .settings import Settings
from .telemetry.switch import check

_USAGE = 2
"""The exit code of `paceline` for what its user has to mend."""


def _app() -> Celery:
    """The app of this environment. What is wrong with a variable is told, and ends the process."""
    try:
        check(os.environ)
        return create_app(Settings.from_environment(os.environ))
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(_USAGE) from None


app = _app()
