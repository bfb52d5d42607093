"""What log lines look like, and what is on none of them."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from paceline.core.log_lines import JsonLines, LogFormat, formatter, read_log_format


def a_record(message: str = "run %s ended", *values: object, **extra: object) -> logging.LogRecord:
    record = logging.LogRecord("paceline.run", logging.INFO, "x.py", 1, message, values or ("r-1",), None)
    record.created = 1_800_000_000.25
    vars(record).update(extra)
    return record


def test_a_json_line_has_the_time_the_level_the_message_and_the_fields() -> None:
    line = JsonLines().format(a_record(run_id="r-1", turn=2, attempt=3, trace_id="f" * 32, cost_usd=None))
    assert json.loads(line) == {
        "at": "2027-01-15T08:00:00.250+00:00",
        "level": "info",
        "logger": "paceline.run",
        "message": "run r-1 ended",
        "run_id": "r-1",
        "turn": 2,
        "attempt": 3,
        "trace_id": "f" * 32,
        "cost_usd": None,
    }


def test_what_other_libraries_hang_on_a_record_is_not_told() -> None:
    assert "secret" not in JsonLines().format(a_record(data={"args": "secret"}, args_repr="secret"))


def test_a_json_line_is_one_line_whatever_is_in_it() -> None:
    assert "\n" not in JsonLines().format(a_record("two\nlines %s", "r-1"))


def test_a_json_line_can_be_written_to_any_stream() -> None:
    line = JsonLines().format(a_record("half a character %s and one “more”", "\ud800"))
    assert json.loads(line.encode("ascii"))["message"].startswith("half a character")


def test_an_error_comes_with_its_traceback() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        record = a_record()
        record.exc_info = sys.exc_info()
    error = json.loads(JsonLines().format(record))["error"]
    assert error.startswith("Traceback")
    assert error.endswith("ValueError: broken")


@pytest.mark.parametrize(
    ("wanted", "is_terminal", "as_json"),
    [
        (LogFormat.AUTO, True, False),
        (LogFormat.AUTO, False, True),
        (LogFormat.JSON, True, True),
        (LogFormat.TEXT, False, False),
    ],
)
def test_a_terminal_gets_text_unless_it_is_asked_otherwise(wanted: LogFormat, is_terminal: bool, as_json: bool) -> None:
    assert isinstance(formatter(wanted, is_terminal=is_terminal), JsonLines) is as_json


def test_a_text_line_can_be_read() -> None:
    line = formatter(LogFormat.TEXT, is_terminal=True).format(a_record())
    assert line.endswith(" INFO paceline.run run r-1 ended")


def test_an_unknown_format_is_answered_with_those_that_there_are() -> None:
    assert read_log_format(" JSON ") is LogFormat.JSON
    with pytest.raises(ValueError, match="auto, json, text"):
        read_log_format("xml")
