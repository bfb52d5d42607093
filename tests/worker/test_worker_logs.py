"""What a worker's process writes to stderr: its own lines and Celery's, formatted alike."""

from __future__ import annotations

import json
import subprocess
import sys

LOGS_OF_A_WORKER = """
import logging
from celery.utils.log import get_task_logger
from paceline.worker.entry import app

app.log.setup(logging.INFO, redirect_stdouts=True)
logging.getLogger("paceline.run").info("run %s ended", "r-1", extra={"run_id": "r-1", "turn": 2})
logging.getLogger("celery.worker").warning("the broker is away")
get_task_logger("a.task").warning("a task says")
logging.getLogger("celery.app.trace").info("Task paceline.turn succeeded")
logging.getLogger("httpx2").info("HTTP Request: POST https://model/v1/messages 200 OK")
print("a tool prints")
"""


def test_without_a_terminal_every_line_is_json_whoever_logs_it() -> None:
    command = [sys.executable, "-c", LOGS_OF_A_WORKER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["level"], line["message"]) for line in lines] == [
        ("info", "run r-1 ended"),
        ("warning", "the broker is away"),
        ("warning", "a task says"),
        ("warning", "a tool prints"),
    ]
    assert lines[0]["run_id"] == "r-1"
    assert lines[0]["turn"] == 2
