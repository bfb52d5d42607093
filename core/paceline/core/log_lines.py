"""Log lines: one JSON object a line for machines, plain text for people, from the same records.

A line bears what its record was given by the names in FIELDS, and nothing else that hangs on the record: other
libraries leave arguments there.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from enum import StrEnum

FIELDS = (
    "run_id",
    "turn",
    "attempt",
    "trace_id",
    "outcome",
    "stop_reason",
    "calls",
    "input_tokens",
    "output_tokens",
    "cost_usd",
    "took_ms",
)
"""What a line may bear beside its message. None of it is content."""


class LogFormat(StrEnum):
    """How lines look."""

    AUTO = "auto"
    """Text on a terminal, JSON elsewhere."""
    JSON = "json"
    TEXT = "text"


def read_log_format(text: str) -> LogFormat:
    """The format of this name. ValueError says which there are."""
    try:
        return LogFormat(text.strip().lower())
    except ValueError:
        raise ValueError(f"it must be one of {', '.join(LogFormat)}") from None


def formatter(wanted: LogFormat, *, is_terminal: bool) -> logging.Formatter:
    """The formatter for a stream."""
    as_text = is_terminal if wanted is LogFormat.AUTO else wanted is LogFormat.TEXT
    return logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s") if as_text else JsonLines()


class JsonLines(logging.Formatter):
    """One JSON object a line: `at` in UTC, `level`, `logger`, `message`, the fields, and `error` with its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: vars(record)[name] for name in FIELDS if name in vars(record)},
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)  # in ASCII: half a character in an error must not cost the line
