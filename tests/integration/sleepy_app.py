"""The worker's Celery app, whose own loop stands still for a while when it is told to by SIGRTMIN."""

from __future__ import annotations

import os
import signal
import time

from paceline.worker.app import create_app
from paceline.worker.settings import Settings

STILL_SECONDS = 3.5

app = create_app(Settings.from_environment(os.environ))
signal.signal(signal.SIGRTMIN, lambda *_: time.sleep(STILL_SECONDS))
