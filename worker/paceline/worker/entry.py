"""`celery -A paceline.worker.entry worker`: the one module that makes something when imported, as Celery wants it."""

from __future__ import annotations

import os

from .app import create_app
from .settings import Settings
from .telemetry.switch import check

check(os.environ)
app = create_app(Settings.from_environment(os.environ))
