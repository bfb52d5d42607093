"""A Celery app for the workers of these tests: one task, which says when it starts and ends and waits at a gate.

Its notes are lines in a file, not keys: the broker is what the tests kill.
"""

import os
import time
from pathlib import Path

from celery import Celery

from paceline.worker.transport import Amqp, transport_options

FOLDER = Path(os.environ["PROBE_FOLDER"])

app = Celery("probe", broker=os.environ["PROBE_BROKER"], amqp=Amqp)
app.conf.update(
    broker_transport_options=transport_options(4)
    | {"visibility_timeout": float(os.environ["PROBE_VISIBILITY_S"]), "unacked_restore_interval": 0.5},
    broker_connection_retry_on_startup=True,
    broker_channel_error_retry=True,
    worker_prefetch_multiplier=int(os.environ["PROBE_PREFETCH"]),
    worker_cancel_long_running_tasks_on_connection_loss=False,
    task_acks_late=True,
    task_ignore_result=True,
    task_default_queue="probe",
)


def note(line: str) -> None:
    with (FOLDER / "notes").open("a") as notes:
        notes.write(line + "\n")


@app.task(name="probe.wait")  # type: ignore[untyped-decorator]  # Celery ships no type information
def wait(name: str) -> None:
    """Say so, wait until somebody opens the gate of this task, say so again."""
    note(f"started {name}")
    while not (FOLDER / f"gate.{name}").exists():
        time.sleep(0.01)
    note(f"ended {name}")
