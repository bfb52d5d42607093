"""The worker's Celery app with a broker that gives messages up after a second, and a task that a tool may send.

`celery -A stories.impatient_app worker`. What is delivered is noted in the file that STORIES_DELIVERIES names.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
# Celery ships no type information.

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from celery import signals
from integration.effect_tools import append_line

from paceline.worker.app import create_app
from paceline.worker.settings import Settings

DELIVERIES_VARIABLE = "STORIES_DELIVERIES"
VISIBILITY_S = 1.0

app = create_app(Settings.from_environment(os.environ))
app.conf.broker_transport_options = {
    **app.conf.broker_transport_options,
    "visibility_timeout": VISIBILITY_S,
    "unacked_restore_interval": VISIBILITY_S / 5,
}


@signals.task_prerun.connect(weak=False)
def note_delivery(task: Any, args: Sequence[object], **_: object) -> None:
    """One line for each message that came to a worker, however often it came."""
    append_line(Path(os.environ[DELIVERIES_VARIABLE]), json.dumps([task.name, *args]))


@app.task(name="stories.note", shared=False)
def note(what: str) -> None:
    """A task of a tool's own: that it came is all it does."""
