"""What a worker's log looks like: Celery sets its handlers up, and theirs is the format of all other lines."""

# mypy: allow-untyped-calls
# Celery ships no type information.

from __future__ import annotations

import logging
from typing import Any

from celery import signals

from paceline.core.log_lines import LogFormat, formatter

_A_LINE_FOR_EACH_TASK = ("celery.worker.strategy", "celery.app.trace", "httpx2")
"""They tell when a task is received and when it is done, and of each request that the model client makes: a turn has a
line of its own, which says more."""


def format_logs(wanted: LogFormat) -> None:
    """Have everything that a worker logs formatted alike, Celery's own lines too."""

    def set_formats(logger: logging.Logger, **_: Any) -> None:
        for handler in logger.handlers:
            handler.setFormatter(formatter(wanted, is_terminal=_is_terminal(handler)))
        if logger.getEffectiveLevel() > logging.DEBUG:
            for name in _A_LINE_FOR_EACH_TASK:
                logging.getLogger(name).setLevel(logging.WARNING)

    signals.after_setup_logger.connect(set_formats, weak=False)
    signals.after_setup_task_logger.connect(set_formats, weak=False)


def _is_terminal(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.StreamHandler) and bool(getattr(handler.stream, "isatty", lambda: False)())
